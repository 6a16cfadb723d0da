from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest
import soundfile

from sessions.core.timeline import from_ms
from sessions.wav import WavTrack


def ones(ms: float, rate: int = 24_000, value: int = 1) -> bytes:
    return value.to_bytes(2, "little") * round(ms * rate / 1000)


def read(path: Path) -> tuple[list[int], int]:
    """Samples and rate, by a reader that goes by the header."""
    with wave.open(str(path)) as file:
        assert (file.getnchannels(), file.getsampwidth()) == (1, 2)
        frames = file.readframes(file.getnframes())
        assert len(frames) == 2 * file.getnframes()
        return np.frombuffer(frames, "<i2").tolist(), file.getframerate()


@pytest.mark.parametrize("rate", [8_000, 16_000, 24_000, 48_000])
def test_samples_lie_where_they_were_placed_at_any_rate(tmp_path: Path, rate: int) -> None:
    track = WavTrack(tmp_path / "a.wav", rate)
    track.write(from_ms(20), ones(10, rate))
    track.close()
    samples, read_rate = read(tmp_path / "a.wav")
    assert read_rate == rate
    assert samples == [0] * (rate // 50) + [1] * (rate // 100)


def test_what_lies_between_two_writes_is_silence_of_exactly_that_length(tmp_path: Path) -> None:
    track = WavTrack(tmp_path / "a.wav", 24_000)
    for second in range(5):
        track.write(from_ms(1000 * second), ones(20, value=second + 1))
    track.close()
    samples, _ = read(tmp_path / "a.wav")
    assert len(samples) == 4 * 24_000 + 480
    assert [samples[24_000 * second] for second in range(5)] == [1, 2, 3, 4, 5]
    assert np.count_nonzero(samples) == 5 * 480


def test_a_later_write_to_the_same_place_is_the_one_that_counts(tmp_path: Path) -> None:
    track = WavTrack(tmp_path / "a.wav", 24_000)
    track.write(0, ones(20, value=1))
    track.write(from_ms(10), ones(5, value=2))
    track.close()
    samples, _ = read(tmp_path / "a.wav")
    assert samples == [1] * 240 + [2] * 120 + [1] * 120


def test_blanking_reaches_no_further_than_the_track(tmp_path: Path) -> None:
    track = WavTrack(tmp_path / "a.wav", 24_000)
    track.write(0, ones(20))
    track.silence(from_ms(15), from_ms(500))
    track.silence(from_ms(100), from_ms(200))
    track.silence(from_ms(5), from_ms(5))
    track.close()
    samples, _ = read(tmp_path / "a.wav")
    assert samples == [1] * 360 + [0] * 120


def test_an_empty_track_is_a_valid_file(tmp_path: Path) -> None:
    WavTrack(tmp_path / "a.wav", 16_000).close()
    assert read(tmp_path / "a.wav") == ([], 16_000)


def test_a_track_that_was_never_closed_can_still_be_played(tmp_path: Path) -> None:
    track = WavTrack(tmp_path / "a.wav", 24_000)
    track.write(0, ones(500))
    track._file.flush()
    pcm, rate = soundfile.read(tmp_path / "a.wav", dtype="int16")
    assert rate == 24_000
    assert pcm.tolist() == [1] * 12_000
    track.close()
