"""`server.voice_path`: codes where they can be, PCM where not, and an honest word about which."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
import torch

from codec.rvq.shipped import identity_of
from models.families.embedded.talker_hibari import HibariTalker
from models.families.embedded.voice_codec import VoiceCodec, VoiceCodecError
from server import voice_path as module
from server.settings import Settings, SettingsError, from_environment
from server.voice_path import voice_codec, voice_path
from tests.models.families.hearing import Metronome

AUTO = Settings()
CODES, PCM = replace(AUTO, voice_path="codes"), replace(AUTO, voice_path="pcm")


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def talker() -> HibariTalker:
    return HibariTalker()


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec

    def find_spec(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == "torch" else real(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)


@pytest.fixture
def no_weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "identity_of", lambda: identity_of(tmp_path / "none"))


@pytest.mark.models
def test_the_embedded_voice_travels_as_codes_by_default(talker: HibariTalker, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        codec = voice_codec(AUTO, talker, 8)
    assert codec is not None
    assert codec.identity == identity_of()
    assert codec.voices == set(talker.voices)
    assert str(codec.identity) in caplog.text


@pytest.mark.models
def test_pcm_is_taken_where_it_is_asked_for(talker: HibariTalker) -> None:
    assert voice_codec(PCM, talker, 8) is None


@pytest.mark.models
@pytest.mark.parametrize(
    ("missing", "told"), [("no_torch", "pip install"), ("no_weights", "install the package again")]
)
def test_without_torch_or_weights_it_is_pcm_and_that_is_said(
    missing: str, told: str, talker: HibariTalker, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    request.getfixturevalue(missing)
    assert voice_codec(AUTO, talker, 8) is None
    assert told in caplog.text
    with pytest.raises(SettingsError, match=f"--voice-path codes: .*{told}"):
        voice_codec(CODES, talker, 8)
    (finding,) = voice_path(AUTO)
    assert (finding.verdict, told in finding.remedy, "PCM" in finding.found) == ("warn", True, True)
    (finding,) = voice_path(CODES)
    assert (finding.verdict, told in finding.remedy) == ("fail", True)


@pytest.mark.models
def test_weights_that_are_damaged_are_no_reason_not_to_serve(
    talker: HibariTalker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def load(*, slots: int) -> VoiceCodec:
        raise VoiceCodecError("its content has another SHA-256")

    monkeypatch.setattr(VoiceCodec, "load", load)
    assert voice_codec(AUTO, talker, 8) is None
    assert "another SHA-256" in caplog.text
    with pytest.raises(SettingsError, match="another SHA-256"):
        voice_codec(CODES, talker, 8)


def test_another_talker_goes_as_pcm(caplog: pytest.LogCaptureFixture) -> None:
    assert voice_codec(AUTO, Metronome(), 8) is None
    assert "the embedded voice alone" in caplog.text
    with pytest.raises(SettingsError, match="embedded voice alone"):
        voice_codec(CODES, Metronome(), 8)


def test_the_doctor_says_which_way_the_voice_goes() -> None:
    assert [(finding.verdict, finding.found) for finding in voice_path(AUTO)] == [("ok", f"codes of {identity_of()}")]
    assert [(finding.verdict, finding.found) for finding in voice_path(PCM)] == [("ok", "PCM, as it was asked for")]
    assert not list(voice_path(replace(AUTO, engine="moshi")))


def test_the_setting_is_checked() -> None:
    assert from_environment({}, {"TALKOVER_VOICE_PATH": "pcm"}).voice_path == "pcm"
    with pytest.raises(SettingsError, match="--voice-path opus"):
        from_environment({}, {"TALKOVER_VOICE_PATH": "opus"})
    for elsewhere in ({"engine": "moshi", "random_weights": "tiny"}, {"tts_url": "ws://127.0.0.1:1"}):
        with pytest.raises(SettingsError, match="--engine embedded alone"):
            from_environment({"voice_path": "codes", **elsewhere}, {})
