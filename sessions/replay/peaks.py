"""Peaks of a track in levels, for drawing waveforms: made for what is asked for, and kept.

A bucket of level k holds the least and the greatest sample of `BUCKET * 4**k` samples. Tracks are read in blocks, each
once, so a look at a minute of a two-hour session costs a minute.
"""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

BUCKET: Final = 64
"""Samples of a bucket of level 0: 2.7 ms at 24 kHz."""
LEVELS: Final = 8
FACTOR: Final = 4
_STEP: Final = 32_768 / 127
BLOCK: Final = BUCKET * FACTOR ** (LEVELS - 1)
"""Samples that are read at a time: one bucket of the highest level."""


class Audio(Protocol):
    """A track; `samples` is its length now."""

    @property
    def samples(self) -> int: ...

    def read(self, first: int, count: int) -> NDArray[np.int16]: ...


class Peaks:
    """The peaks of one track. Not safe for several threads at once."""

    def __init__(self) -> None:
        self._blocks: dict[int, list[NDArray[np.int8]]] = {}

    def read(self, audio: Audio, level: int, first: int, count: int) -> NDArray[np.int8]:
        """Buckets [first, first + count) of `level`, as far as the track goes: int8 [n, 2], full scale ±127."""
        if not 0 <= level < LEVELS:
            raise ValueError(f"level {level} must be 0..{LEVELS - 1}")
        size = BUCKET * FACTOR**level
        per_block = BLOCK // size
        last = min(first + count, -(-audio.samples // size))
        if last <= first:
            return np.zeros((0, 2), np.int8)
        blocks = [
            self._block(audio, number)[level] for number in range(first // per_block, (last - 1) // per_block + 1)
        ]
        joined = np.concatenate(blocks)
        begin = first % per_block
        return joined[begin : begin + last - first]

    def _block(self, audio: Audio, number: int) -> list[NDArray[np.int8]]:
        kept = self._blocks.get(number)
        if kept is not None:
            return kept
        samples = audio.read(number * BLOCK, BLOCK).reshape(-1, BUCKET)
        # Rounded away from zero, so that a faint sound is not drawn as silence.
        least = np.floor(samples.min(axis=1) / _STEP).astype(np.int8)
        greatest = np.ceil(samples.max(axis=1) / _STEP).astype(np.int8)
        levels = [np.stack([least, greatest], axis=1)]
        for _ in range(LEVELS - 1):
            pairs = levels[-1].reshape(-1, FACTOR, 2)
            levels.append(np.stack([pairs[:, :, 0].min(axis=1), pairs[:, :, 1].max(axis=1)], axis=1))
        if (number + 1) * BLOCK <= audio.samples:
            # One that still grows is read again.
            self._blocks[number] = levels
        return levels
