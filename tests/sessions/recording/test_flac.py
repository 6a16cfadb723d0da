"""Tracks that were cut off anywhere, read as far as they go."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import soundfile

from sessions.recording.flac import FlacFile, TrackError
from sessions.recording.flac_frames import crc8, crc16, stream_info
from sessions.recording.flac_track import FlacTrack

RATE = 24_000
BLOCK = 1152
NOISE = np.random.default_rng(7).normal(0, 2000, RATE * 8).astype("<i2")


def write(path: Path, samples: np.ndarray, rate: int = RATE) -> FlacTrack:
    """A track in pieces of 20 ms, flushed and not closed."""
    track = FlacTrack(path, rate)
    tick = 48_000 // rate
    piece = rate // 50
    for first in range(0, len(samples), piece):
        track.write(first * tick, samples[first : first + piece].tobytes())
    track.flush()
    return track


def test_a_finished_track_is_read_from_anywhere_and_by_other_programs(tmp_path: Path) -> None:
    write(tmp_path / "a.flac", NOISE).close()
    file = FlacFile(tmp_path / "a.flac")
    assert (file.rate, file.samples) == (RATE, len(NOISE))
    assert np.array_equal(file.read(100_000, 5000), NOISE[100_000:105_000])
    file.close()
    assert np.array_equal(soundfile.read(tmp_path / "a.flac", dtype="int16")[0], NOISE)


@pytest.mark.parametrize("rate", [8000, 16_000, 24_000, 48_000])
def test_a_track_that_was_never_finished_lacks_at_most_a_frame(tmp_path: Path, rate: int) -> None:
    track = write(tmp_path / "a.flac", NOISE, rate)
    file = FlacFile(tmp_path / "a.flac")
    assert file.rate == rate
    assert 0 <= len(NOISE) - file.samples < 2 * BLOCK
    assert np.array_equal(file.read(0, file.samples), NOISE[: file.samples])
    assert np.array_equal(file.read(file.samples - 700, 700), NOISE[file.samples - 700 : file.samples])
    file.close()
    track.close()


def test_wherever_it_is_cut_off_what_there_is_is_right(tmp_path: Path) -> None:
    write(tmp_path / "a.flac", NOISE).close()
    whole = bytearray((tmp_path / "a.flac").read_bytes())
    whole[21] &= 0xF0
    whole[22:26] = bytes(4)  # no length, as before it was finished
    dice = np.random.default_rng(1)
    lengths = []
    for size in sorted(int(size) for size in dice.integers(0, len(whole), 40)):
        (tmp_path / "b.flac").write_bytes(whole[:size])
        try:
            file = FlacFile(tmp_path / "b.flac")
        except TrackError:
            assert size < 100
            continue
        lengths.append(file.samples)
        assert np.array_equal(file.read(0, file.samples), NOISE[: file.samples])
        file.close()
    assert lengths == sorted(lengths)
    assert lengths[-1] > len(NOISE) * 3 // 4


def test_a_last_frame_that_is_damaged_is_left_out(tmp_path: Path) -> None:
    track = write(tmp_path / "a.flac", NOISE)
    whole = bytearray((tmp_path / "a.flac").read_bytes())
    before = FlacFile(tmp_path / "a.flac").samples
    whole[-40] ^= 0xFF
    (tmp_path / "b.flac").write_bytes(whole)
    file = FlacFile(tmp_path / "b.flac")
    assert file.samples == before - BLOCK
    assert np.array_equal(file.read(0, file.samples), NOISE[: file.samples])
    track.close()


def test_what_is_placed_behind_a_gap_leaves_silence_and_what_is_there_stays(tmp_path: Path) -> None:
    track = FlacTrack(tmp_path / "a.flac", RATE)
    track.write(0, NOISE[:480].tobytes())
    track.write(RATE * 2 * 3, NOISE[:480].tobytes())
    track.write(RATE * 2 * 3 + 480, NOISE[1000:1480].tobytes())
    track.close()
    samples, _ = soundfile.read(tmp_path / "a.flac", dtype="int16")
    assert len(samples) == RATE * 3 + 720
    assert np.array_equal(samples[:480], NOISE[:480])
    assert not samples[480 : RATE * 3].any()
    assert np.array_equal(samples[RATE * 3 : RATE * 3 + 480], NOISE[:480])
    assert np.array_equal(samples[RATE * 3 + 480 :], NOISE[1240:1480])


def test_silence_lies_around_a_track(tmp_path: Path) -> None:
    write(tmp_path / "a.flac", NOISE[:4800]).close()
    file = FlacFile(tmp_path / "a.flac")
    read = file.read(-100, 5000)
    assert not read[:100].any()
    assert np.array_equal(read[100:4900], NOISE[:4800])
    assert not read[4900:].any()


@pytest.mark.parametrize("content", [b"", b"fLaC", b"RIFF" + bytes(100), b"fLaC" + bytes(100), b"fLaC" + b"\xff" * 100])
def test_what_is_no_track_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.flac").write_bytes(content)
    with pytest.raises(TrackError, match=r"a\.flac"):
        FlacFile(tmp_path / "a.flac")
    with pytest.raises(TrackError, match=r"none\.flac"):
        FlacFile(tmp_path / "none.flac")


def test_a_file_of_nothing_but_headers_is_soon_done_with(tmp_path: Path) -> None:
    header = b"\xff\xf9\x77\x08\x00\x00\x0f"
    header += bytes([crc8(header)])
    (tmp_path / "b.flac").write_bytes(stream_info(RATE) + header * 5000)
    with mock.patch("sessions.recording.flac.crc16", wraps=crc16) as checked:
        file = FlacFile(tmp_path / "b.flac")
    assert file.samples == 0
    assert checked.call_count < 50
    file.close()
