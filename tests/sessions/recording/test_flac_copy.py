"""Tracks that are put together from another one's blocks: the same samples, at other places, encoded once."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pytest
import soundfile

from sessions.recording import flac_copy
from sessions.recording.flac import FlacFile
from sessions.recording.flac_blocks import Shelf, encoded
from sessions.recording.flac_copy import FlacCopy
from sessions.recording.flac_frames import LARGEST, SMALLEST, Block, crc16, framed, read_header, silent, taken
from sessions.recording.flac_track import FlacTrack

RATE = 24_000
TICK = 48_000 // RATE
NOISE = np.random.default_rng(3).normal(0, 2000, RATE * 12).astype("<i2")


class Tracks:
    """What was made, and a copy of parts of it. `expected`: what the copy holds."""

    def __init__(self, folder: Path, rate: int = RATE) -> None:
        shelf = Shelf()
        self.path = folder / "copy.flac"
        self.tick = 48_000 // rate
        self.made = FlacTrack(folder / "made.flac", rate, 0, shelf)
        self.copy = FlacCopy(self.path, rate, 0, shelf)
        self.expected = np.zeros(0, "<i2")

    def make(self, samples: np.ndarray) -> None:
        for piece in np.array_split(samples, max(1, len(samples) // 480)):
            self.made.write(self.made.end, piece.tobytes())
        self.made.flush()

    def put(self, at: int, start: int, count: int) -> None:
        """Samples [start, start + count) of what was made, at sample `at` of the copy."""
        samples = NOISE[start : start + count]
        self.copy.write(at * self.tick, samples.tobytes(), start * self.tick)
        late = max(0, len(self.expected) - at)
        gap = np.zeros(max(0, at - len(self.expected)), "<i2")
        self.expected = np.concatenate([self.expected, gap, samples[late:]])

    def held(self) -> np.ndarray:
        file = FlacFile(self.path)
        samples = file.read(0, file.samples)
        file.close()
        return samples


@pytest.fixture
def encodings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Samples of each block that a copy had to have encoded."""
    sizes: list[int] = []

    def counted(pcm: bytes, block: int) -> Block:
        sizes.append(len(pcm) // 2)
        return encoded(pcm, block)

    monkeypatch.setattr(flac_copy, "encoded", counted)
    return sizes


def sizes_of(path: Path) -> list[int]:
    """Samples of each frame of a whole file, as FFmpeg takes it apart."""
    with av.open(str(path)) as container:
        return [int(frame.samples) for frame in container.decode(audio=0)]


def test_what_was_made_is_not_encoded_again_wherever_it_lies(tmp_path: Path, encodings: list[int]) -> None:
    tracks = Tracks(tmp_path)
    tracks.make(NOISE[: RATE * 3])
    for first in range(0, RATE * 2, 960):
        tracks.put(7001 + first, 5000 + first, 960)
    tracks.copy.flush()
    tracks.copy.close()
    tracks.made.close()
    # Where it begins and ends it is cut within a block.
    assert encodings == [LARGEST - 5000 % LARGEST, (5000 + RATE * 2) % LARGEST]
    assert np.array_equal(tracks.held(), tracks.expected)
    assert np.array_equal(soundfile.read(tracks.path, dtype="int16")[0], tracks.expected)
    with av.open(str(tracks.path)) as container:
        decoded = np.concatenate([frame.to_ndarray().ravel() for frame in container.decode(audio=0)])
    assert np.array_equal(decoded, tracks.expected)


@pytest.mark.parametrize("seed", range(8))
def test_whatever_is_cut_held_and_left_out_every_sample_is_at_its_place(tmp_path: Path, seed: int) -> None:
    dice = np.random.default_rng(seed)
    tracks = Tracks(tmp_path, int(dice.choice([8000, 16_000, 24_000, 48_000])))
    tracks.make(NOISE)
    at = start = 0
    for _ in range(60):
        count = int(dice.choice([1, 5, 15, 16, 17, 480, 960, 4096, 9000]))
        if dice.random() < 0.3:
            start = int(dice.integers(0, len(NOISE) - 20_000))
        if dice.random() < 0.4:
            at += int(dice.choice([1, 15, 16, 17, 500, 40_000]))
        tracks.put(max(0, at - int(dice.choice([0, 0, 3]))), start, count)
        at = len(tracks.expected)
        start = min(start + count, len(NOISE) - 20_000)
        if dice.random() < 0.3:
            tracks.copy.flush()
    tracks.copy.close()
    tracks.made.close()
    assert np.array_equal(tracks.held(), tracks.expected)
    assert min(sizes_of(tracks.path)[:-1]) >= SMALLEST
    file = FlacFile(tracks.path)
    for first in dice.integers(0, len(tracks.expected) - 100, 40):
        assert np.array_equal(file.read(int(first), 100), tracks.expected[first : first + 100])
    file.close()


def test_wherever_a_copy_is_cut_off_what_there_is_is_right(tmp_path: Path) -> None:
    tracks = Tracks(tmp_path)
    tracks.make(NOISE)
    for number in range(6):
        tracks.put(number * 40_000, number * 30_000 + 77, 30_000)
    tracks.copy.flush()
    whole = tracks.path.read_bytes()
    lengths = []
    for size in np.linspace(60, len(whole), 50).astype(int):
        tracks.path.write_bytes(whole[:size])
        held = tracks.held()
        assert np.array_equal(held, tracks.expected[: len(held)])
        lengths.append(len(held))
    assert lengths == sorted(lengths)
    assert len(tracks.expected) - lengths[-1] < LARGEST
    tracks.copy.close()
    tracks.made.close()


def test_what_nothing_follows_is_on_the_disk_after_two_flushes(tmp_path: Path) -> None:
    tracks = Tracks(tmp_path)
    tracks.put(0, 0, 5000)
    tracks.copy.flush()
    assert len(tracks.held()) == LARGEST
    tracks.copy.flush()
    assert np.array_equal(tracks.held(), tracks.expected)
    tracks.put(5000, 5000, 5000)
    tracks.copy.close()
    assert np.array_equal(tracks.held(), tracks.expected)
    tracks.made.close()


def test_silence_takes_no_room(tmp_path: Path) -> None:
    tracks = Tracks(tmp_path)
    tracks.put(RATE * 3600, 0, 480)
    tracks.copy.close()
    tracks.made.close()
    assert tracks.path.stat().st_size < 400_000  # 86 million samples
    assert tracks.held()[: RATE * 3600].max() == 0


@pytest.mark.parametrize("first", [0, 0x7F, 0x80, 0x7FF, 0x800, 0xFFFF, 0x10000, 0x1FFFFF, 0x200000, 2**31, 2**36 - 1])
def test_a_frame_has_its_own_header_and_checksums_wherever_it_is_put(first: int) -> None:
    block = encoded(NOISE[:LARGEST].tobytes(), LARGEST)
    frame = framed(block, RATE, first)
    head = read_header(frame, 0, 0)
    assert head is not None
    assert (head.first, head.samples) == (first, LARGEST)
    assert crc16(frame) == 0
    assert taken(frame) == block


def test_what_is_no_frame_of_ours_is_refused() -> None:
    frame = bytearray(framed(silent(100), RATE, 0))
    assert taken(bytes(frame)).body == b"\0\0\0"
    frame[3] = 0x18  # two channels; the header's checksum is wrong besides
    with pytest.raises(ValueError, match="one channel"):
        taken(bytes(frame))
