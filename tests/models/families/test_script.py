"""`models.families.script`."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest

from models.families.script import RATE, Script, ScriptedTool, ScriptError, speak_all, tone
from sessions.core.timeline import from_ms

from .hearing import WORD_MS, Metronome


def write(folder: Path, text: str) -> Path:
    path = folder / "script.toml"
    path.write_text(text)
    return path


def write_wav(path: Path, samples: np.ndarray, rate: int, width: int = 2) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1 if samples.ndim == 1 else samples.shape[1])
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(samples.astype("<i2" if width == 2 else "u1").tobytes())


def loudest_hz(pcm: bytes) -> float:
    samples = np.frombuffer(pcm, "<i2").astype(float)
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(np.argmax(spectrum)) * RATE / len(samples)


def test_every_kind_of_reply_is_read_and_prepared(tmp_path: Path) -> None:
    write_wav(tmp_path / "a.wav", np.full(2400, 1000), RATE)
    script = Script.load(
        write(
            tmp_path,
            """
            [[reply]]
            text = "Hello there. How are you?"
            delay_ms = 250
            [[reply]]
            wav = "a.wav"
            [[reply]]
            tone_hz = 440
            seconds = 0.5
            [[reply]]
            tool = { name = "f", arguments = { x = 1 } }
            """,
        )
    )
    text, recorded, sine, tool = script.prepare(Metronome())
    assert text.delay_ms == 250
    assert text.text == "Hello there. How are you?"
    assert text.words[2].start == from_ms(2 * WORD_MS)
    assert recorded.pcm == np.full(2400, 1000, "<i2").tobytes()
    assert len(sine.pcm) == RATE
    assert loudest_hz(sine.pcm) == pytest.approx(440, abs=2)
    assert tool.tool == ScriptedTool("f", '{"x": 1}')


@pytest.mark.parametrize("rate", [8000, 16_000, 22_050, 44_100, 48_000])
def test_a_recording_of_any_rate_keeps_its_pitch_and_length(tmp_path: Path, rate: int) -> None:
    samples = 10_000 * np.sin(2 * np.pi * 500 * np.arange(rate) / rate)
    write_wav(tmp_path / "a.wav", np.stack([samples, samples], axis=1), rate)
    reply = Script.load(write(tmp_path, '[[reply]]\nwav = "a.wav"')).prepare()[0]
    assert len(reply.pcm) // 2 == pytest.approx(RATE, abs=2)
    assert loudest_hz(reply.pcm) == pytest.approx(500, abs=2)


@pytest.mark.parametrize(
    ("text", "reply", "field"),
    [
        ("[[reply]\n", 0, "file"),
        ("", 0, "reply"),
        ("reply = 3", 0, "reply"),
        ("reply = [3]", 1, "reply"),
        ('title = "x"\n[[reply]]\ntext = "a"', 0, "title"),
        ("[[reply]]", 1, "text"),
        ('[[reply]]\ntext = "a"\ntone_hz = 3\nseconds = 1', 1, "tone_hz"),
        ('[[reply]]\ntext = "a"\n[[reply]]\ntext = " "', 2, "text"),
        ('[[reply]]\ntext = "a"\nseconds = 1', 1, "seconds"),
        ('[[reply]]\ntext = "a"\ncolour = 1', 1, "colour"),
        ('[[reply]]\ntext = "a"\ndelay_ms = -1', 1, "delay_ms"),
        ('[[reply]]\ntext = "a"\ndelay_ms = true', 1, "delay_ms"),
        ("[[reply]]\ntone_hz = 440", 1, "seconds"),
        ("[[reply]]\ntone_hz = 20000\nseconds = 1", 1, "tone_hz"),
        ("[[reply]]\ntone_hz = 440\nseconds = 0", 1, "seconds"),
        ("[[reply]]\ntone_hz = nan\nseconds = 1", 1, "tone_hz"),
        ('[[reply]]\nwav = "none.wav"', 1, "wav"),
        ("[[reply]]\nwav = 7", 1, "wav"),
        ("[[reply]]\ntool = {}", 1, "tool"),
        ('[[reply]]\ntool = { name = "f", arguments = [1] }', 1, "tool.arguments"),
        ('[[reply]]\ntool = { name = "f", arguments = "{" }', 1, "tool.arguments"),
        ('[[reply]]\ntool = { name = "f", arguments = { d = 2020-01-01 } }', 1, "tool.arguments"),
        ('[[reply]]\ntool = { name = "f", x = 1 }', 1, "tool.x"),
    ],
)
def test_a_bad_script_names_file_reply_and_field(tmp_path: Path, text: str, reply: int, field: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ScriptError) as refused:
        Script.load(path)
    assert (refused.value.reply, refused.value.field) == (reply, field)
    assert str(path) in str(refused.value)


def test_a_script_that_is_not_there_is_a_script_error(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="file"):
        Script.load(tmp_path / "none.toml")


@pytest.mark.parametrize("content", [b"", b"RIFF", b"not a wave file at all, but long enough to look at"])
def test_a_broken_recording_is_a_script_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.wav").write_bytes(content)
    with pytest.raises(ScriptError, match="reply 1, wav"):
        Script.load(write(tmp_path, '[[reply]]\nwav = "a.wav"')).prepare()


def test_an_eight_bit_or_empty_recording_is_a_script_error(tmp_path: Path) -> None:
    write_wav(tmp_path / "a.wav", np.zeros(100), RATE, width=1)
    script = Script.load(write(tmp_path, '[[reply]]\nwav = "a.wav"'))
    with pytest.raises(ScriptError, match="8-bit"):
        script.prepare()
    write_wav(tmp_path / "a.wav", np.zeros(0), RATE)
    with pytest.raises(ScriptError, match="empty"):
        script.prepare()


def test_text_needs_a_talker_at_the_right_rate(tmp_path: Path) -> None:
    script = Script.load(write(tmp_path, '[[reply]]\ntext = "Hello."'))
    with pytest.raises(ScriptError, match="needs a talker"):
        script.prepare()
    slow = Metronome()
    slow.rate = 16_000
    with pytest.raises(ScriptError, match="24000"):
        script.prepare(slow)


def test_text_with_nothing_to_pronounce_is_a_script_error(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="nothing in it"):
        Script.load(write(tmp_path, '[[reply]]\ntext = "😀"')).prepare(Metronome())


def test_a_tone_begins_and_ends_without_a_click() -> None:
    samples = np.frombuffer(tone(1000, 0.1), "<i2").astype(int)
    assert abs(samples[0]) < 100
    assert abs(samples[-1]) < 100
    assert samples.max() > 9000


def test_a_long_text_is_spoken_in_clauses_whose_words_follow_on() -> None:
    pcm, words = speak_all("One two. Three four.", Metronome())
    assert "".join(word.text for word in words) == "One two. Three four."
    assert [word.start for word in words] == [from_ms(WORD_MS) * at for at in range(4)]
    assert len(pcm) == 4 * RATE * WORD_MS // 1000 * 2
