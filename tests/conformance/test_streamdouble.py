"""streamdouble, a simulator of Twilio Media Streams that others wrote, calls the running server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.tones import script
from tests.bench.words import word_error_rate
from tests.conformance.conftest import Hear, question, telephone_file
from tests.conformance.results import number, strings
from tests.conformance.venvs import run_client
from tests.servers import ServerProcess
from tests.speech import Clip, load

pytestmark = [pytest.mark.conformance, pytest.mark.models, pytest.mark.wide]

FAMILY = "streamdouble"
CAPITAL = "What is the capital of France?"


@pytest.fixture(scope="module")
def tones() -> Iterator[ServerProcess]:
    """`talkover serve` with replies of six seconds of tone."""
    with ServerProcess("scripted", script(6.0)) as process:
        yield process


def wav(clip: Clip, folder: Path) -> str:
    """The clip as a WAV file at 8 kHz."""
    import numpy as np
    import soundfile

    pcm = np.frombuffer(telephone_file(clip, folder).read_bytes(), "<i2")
    soundfile.write(folder / f"{clip.name}.wav", pcm, 8000)
    return f"{clip.name}.wav"


def call(server: ServerProcess, folder: Path, steps: list[object], **more: object) -> dict[str, object]:
    url = f"ws://127.0.0.1:{server.port}/telephony/twilio"
    result = run_client(FAMILY, "call", {"url": url, "folder": str(folder), "steps": steps, **more})
    assert (result["violations"], result["unknown"], result["failed"]) == ([], [], [])
    assert result["timed_out"] is False
    return result


def test_a_plain_call_is_answered_and_every_mark_comes_back(tones: ServerProcess, tmp_path: Path) -> None:
    said = wav(question(CAPITAL), tmp_path)
    result = call(tones, tmp_path, [{"say": said}, {"wait_for": "audio"}, {"wait_for": "quiet"}, {"expect": "mark"}])
    assert number(result, "sound_s") == pytest.approx(6.0, abs=0.05)
    assert number(result, "marks") == number(result, "echoed") >= 30
    assert result["clears"] == 0


def test_a_barge_in_clears_the_carriers_buffer(tones: ServerProcess, tmp_path: Path) -> None:
    command = next(clip for clip in load("commands", "test") if clip.seconds > 0.5)
    said = wav(command, tmp_path)
    steps = [
        {"wait_for": "audio"},
        {"wait": 1.5},
        {"expect": "no clear"},
        {"say": said},
        {"wait": 0.5},
        {"expect": "clear"},
    ]
    # On a busy machine the command's words take their time.
    result = call(tones, tmp_path, [*steps, {"wait": 6.0}, {"wait_for": "quiet"}], parameters={"greet": "0"})
    assert result["clears"] == 1
    # Of the first reply what was sent until the interruption, of the second one all.
    assert 7.0 < number(result, "sound_s") < 9.0


def test_pressed_keys_are_a_turn(tones: ServerProcess, tmp_path: Path) -> None:
    result = call(tones, tmp_path, [{"wait": 0.3}, {"dtmf": "42#"}, {"wait_for": "audio"}, {"wait_for": "quiet"}])
    assert number(result, "sound_s") == pytest.approx(6.0, abs=0.05)


@pytest.mark.wide
def test_a_question_over_a_bad_network_is_understood_and_the_answer_is_intelligible(
    server: ServerProcess, hear: Hear, tmp_path: Path
) -> None:
    said, reply = wav(question(CAPITAL), tmp_path), tmp_path / "reply.raw"
    steps: list[object] = [{"say": said}, {"wait_for": "audio"}, {"wait_for": "quiet"}]
    result = call(server, tmp_path, steps, loss=0.03, jitter_ms=60.0, reply=str(reply))
    assert number(result, "dropped") > 0
    assert "paris" in hear(reply, 8000).lower()


@pytest.mark.wide
def test_a_question_by_telephone_is_answered_in_words_that_survive_the_telephone(
    server: ServerProcess, hear: Hear, tmp_path: Path
) -> None:
    said, reply = wav(question(CAPITAL), tmp_path), tmp_path / "reply.raw"
    result = call(server, tmp_path, [{"say": said}, {"wait_for": "audio"}, {"wait_for": "quiet"}], reply=str(reply))
    assert strings(result, "warnings") == []
    heard = hear(reply, 8000)
    assert word_error_rate(["The capital of France is Paris."], [heard]) <= 0.2
