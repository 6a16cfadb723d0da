"""`server.models_loading`: a checkpoint is refused by what it lacks before it is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.checkpoint import CheckpointError
from models.descriptor import CannotSpeak, DescriptorMismatch
from models.registry import UnknownModel
from server.models_loading import _engine, _require
from server.settings import Settings, SettingsError
from tests.models.checkpoints import MOSHI, QWEN, changed, weights, write


def test_a_checkpoint_of_the_engines_family_that_speaks_is_taken(tmp_path: Path) -> None:
    _require(write(tmp_path / "Qwen3-Omni-Thinking", {"config.json": MOSHI}), "moshi")


def test_a_checkpoint_that_cannot_speak_is_refused_by_the_missing_part(tmp_path: Path) -> None:
    folder = write(tmp_path / "moshi", {"config.json": changed(QWEN, "enable_audio_output", False)})
    with pytest.raises(CannotSpeak) as caught:
        _require(folder, "moshi")
    assert "talker" in caught.value.missing


def test_a_checkpoint_of_another_family_is_refused_by_its_own_name(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="by its own files this is qwen3-omni"):
        _require(write(tmp_path / "moshi", {"config.json": QWEN}), "moshi")


def test_weights_that_are_not_those_of_the_configuration_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, {"config.json": MOSHI})
    weights(folder / "model.safetensors", {"text_emb.weight": (32000, 4096)})
    with pytest.raises(DescriptorMismatch, match=r"text_emb\.weight"):
        _require(folder, "moshi")


@pytest.mark.parametrize(("files", "error"), [({}, CheckpointError), ({"config.json": {"dim": "?"}}, UnknownModel)])
def test_a_folder_that_is_no_checkpoint_is_refused(
    files: dict[str, object], error: type[Exception], tmp_path: Path
) -> None:
    with pytest.raises(error):
        _require(write(tmp_path, files), "moshi")


def test_a_script_of_sounds_alone_waits_for_no_voice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Loaded(Exception):
        """The voice would be loaded."""

    def load(folder: Path) -> None:
        raise Loaded

    monkeypatch.setattr("models.families.embedded.talker_hibari.HibariTalker", load)
    script = tmp_path / "script.toml"

    def engine_of(replies: str) -> None:
        script.write_text(replies)
        settings = Settings(engine="scripted", script=script)
        _, stop = _engine(settings, {"hibari": tmp_path}, lambda stage, fraction: None)
        stop()

    engine_of("[[reply]]\ntone_hz = 440\nseconds = 0.1\n")
    with pytest.raises(Loaded):
        engine_of('[[reply]]\ntone_hz = 440\nseconds = 0.1\n[[reply]]\ntext = "Good morning."\n')
