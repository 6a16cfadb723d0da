"""`talkover say` with the real voice, and what it refuses."""

from __future__ import annotations

import io
import json
import wave
from pathlib import Path

import numpy as np
import pytest

from models.families.embedded.talker_hibari import HibariTalker
from server import cli
from server.say import LONGEST, SayError, read_text, speak_to_file
from sessions.core.timeline import TICK_RATE


@pytest.fixture(scope="module")
def talker() -> HibariTalker:
    return HibariTalker()


def samples_of(path: Path) -> tuple[np.ndarray[tuple[int], np.dtype[np.int16]], int]:
    with wave.open(str(path), "rb") as wav:
        assert (wav.getnchannels(), wav.getsampwidth()) == (1, 2)
        return np.frombuffer(wav.readframes(wav.getnframes()), "<i2"), wav.getframerate()


def test_the_file_holds_the_words_at_the_times_that_are_told(talker: HibariTalker, tmp_path: Path) -> None:
    out = tmp_path / "out.wav"
    said = speak_to_file("Good morning. **This** is the voice.", talker, out, "default", 1.0)
    pcm, rate = samples_of(out)
    assert rate == said.rate == talker.rate
    assert len(pcm) / rate == pytest.approx(said.seconds)
    assert [word.text.strip() for word in said.words] == ["Good", "morning.", "This", "is", "the", "voice."]
    level = float(np.sqrt(np.mean(np.square(pcm.astype(float)))))
    end = 0
    for word in said.words:
        assert end <= word.start < word.end <= said.seconds * TICK_RATE
        end = word.end
        piece = pcm[word.start * rate // TICK_RATE : word.end * rate // TICK_RATE].astype(float)
        assert np.sqrt(np.mean(piece**2)) > level / 20  # between sentences there is nothing at all
    assert said.made_in > 0


def test_faster_is_shorter(talker: HibariTalker, tmp_path: Path) -> None:
    text = "This sentence is spoken twice."
    slow, fast = (speak_to_file(text, talker, tmp_path / "x.wav", "default", speed).seconds for speed in (1.0, 1.5))
    assert fast < 0.85 * slow


def test_what_cannot_be_pronounced_writes_no_file(talker: HibariTalker, tmp_path: Path) -> None:
    with pytest.raises(SayError, match="pronounced"):
        speak_to_file("... --- !!!", talker, tmp_path / "out.wav", "default", 1.0)
    assert not (tmp_path / "out.wav").exists()


def test_a_lone_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("from a pipe\n"))
    assert read_text(["-"]) == "from a pipe\n"
    assert read_text(["good", "morning"]) == "good morning"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe"), encoding="utf-8"))
    with pytest.raises(SayError, match="UTF-8"):
        read_text(["-"])


@pytest.mark.parametrize("text", ["", " ", "\n"])
def test_nothing_to_say_is_a_mistake(text: str) -> None:
    with pytest.raises(SayError, match="nothing to say"):
        read_text([text])


def test_a_text_without_end_is_a_mistake() -> None:
    with pytest.raises(SayError, match="pieces"):
        read_text(["word " * LONGEST])


def test_the_command_tells_words_and_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "hello.wav"
    assert cli.main(["say", "Hello", "world.", "--out", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in lines[:2]] == ["Hello", "world."]
    assert lines[2].startswith(f"{out}: ")
    assert "24000 Hz" in lines[2]
    assert samples_of(out)[1] == 24_000


def test_the_command_tells_the_same_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "hello.wav"
    assert cli.main(["say", "Hello world.", "--json", "--out", str(out)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["file"] == str(out)
    assert told["text"] == "Hello world."
    assert told["rate"] == 24_000
    assert told["seconds"] == pytest.approx(len(samples_of(out)[0]) / 24_000, abs=1e-3)
    assert [word["text"] for word in told["words"]] == ["Hello", "world."]
    assert told["words"][0]["end"] <= told["words"][1]["start"] < told["words"][1]["end"] <= told["seconds"]


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["hi", "--voice", "nobody"], 2, "choose one of"),
        (["hi", "--speed", "9"], 2, "0.25..2"),
        (["hi", "--speed", "nan"], 2, "0.25..2"),
        ([" "], 2, "nothing to say"),
        (["?!"], 1, "pronounced"),
        (["hi", "--out", "/nonexistent/folder/x.wav"], 1, "/nonexistent/folder/x.wav cannot be written: No such file"),
    ],
)
def test_a_mistake_is_told_and_leaves_no_file(
    arguments: list[str],
    status: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["say", *arguments]) == status
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.startswith("talkover say: ")
    assert list(tmp_path.iterdir()) == []
