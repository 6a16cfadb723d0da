"""Peaks at every level are those of the samples below them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from sessions.replay.peaks import BLOCK, BUCKET, FACTOR, LEVELS, Peaks

STEP = 32_768 / 127


class Samples:
    def __init__(self, samples: NDArray[np.int16]) -> None:
        self.data = samples
        self.reads = 0

    @property
    def samples(self) -> int:
        return len(self.data)

    def read(self, first: int, count: int) -> NDArray[np.int16]:
        self.reads += 1
        found = np.zeros(count, np.int16)
        part = self.data[first : first + count]
        found[: len(part)] = part
        return found


@pytest.fixture
def audio() -> Samples:
    chance = np.random.default_rng(3)
    return Samples(chance.integers(-32768, 32768, BLOCK + BLOCK // 3).astype(np.int16))


@pytest.mark.parametrize("level", [0, 3, LEVELS - 1])
def test_a_bucket_is_the_least_and_the_greatest_of_its_samples(audio: Samples, level: int) -> None:
    size = BUCKET * FACTOR**level
    first = max(0, BLOCK // size - 2)
    peaks = Peaks().read(audio, level, first, 4)
    for index, (least, greatest) in enumerate(peaks):
        part = audio.data[(first + index) * size : (first + index + 1) * size]
        if len(part) == size:
            assert (least, greatest) == (np.floor(part.min() / STEP), np.ceil(part.max() / STEP))
    assert len(peaks) == min(4, -(-audio.samples // size) - first)


def test_the_faintest_sound_is_no_silence() -> None:
    quiet = np.zeros(BUCKET * 2, np.int16)
    quiet[3], quiet[BUCKET + 1] = 1, -1
    assert Peaks().read(Samples(quiet), 0, 0, 2).tolist() == [[0, 1], [-1, 0]]


def test_a_block_is_read_once_and_one_that_grows_again(audio: Samples) -> None:
    peaks = Peaks()
    peaks.read(audio, 0, 0, 10)
    peaks.read(audio, 2, 5, 10)
    assert audio.reads == 1
    before = peaks.read(audio, 0, BLOCK // BUCKET, 10_000)
    audio.data = np.concatenate([audio.data, np.full(BUCKET * 4, 999, np.int16)])
    after = peaks.read(audio, 0, BLOCK // BUCKET, 10_000)
    assert len(after) == len(before) + 4
    assert after[-2].tolist() == [3, 4]


def test_nothing_is_there_beyond_the_end(audio: Samples) -> None:
    assert Peaks().read(audio, 0, 10**9, 5).shape == (0, 2)
    with pytest.raises(ValueError, match="level 9"):
        Peaks().read(audio, 9, 0, 5)
