"""FLAC tracks that are put together from the blocks of another one, so that what it holds is encoded once (RFC 9639).

Its samples are cut where those that they are taken from were, at multiples of a block of that track, so that the same
samples are the same blocks wherever they lie. Silence between is blocks of its own, which cost nothing; only where
something begins and ends within a block is there anything to be encoded.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, Final

from ..core.timeline import Ticks, ticks_per_sample
from .flac_blocks import Shelf, encoded
from .flac_frames import SMALLEST, Block, framed, silent, stream_info
from .flac_track import shared_block, silence

_TOTAL: Final = 21
"""Where in the file the number of all samples is: the last 36 bits of five bytes (section 8.2)."""
_IDLE: Final = 2
"""Flushes without new samples after which those that wait for a block to become whole do not wait any longer."""


class FlacCopy:
    """Mono 16-bit PCM at `rate` Hz, written forward only; positions in ticks. What lies between is silence.

    `first`: position of its first sample. `shelf`: the blocks of the track that it is taken from.
    """

    def __init__(self, path: Path, rate: int, first: Ticks, shelf: Shelf) -> None:
        self.rate = rate
        self.size = 0
        """Bytes on the disk."""
        self._ticks = ticks_per_sample(rate)
        self._samples = first // self._ticks
        """Position of the next one."""
        self._block = shared_block(rate)
        self._shelf = shelf
        self._waiting = bytearray()
        """Of the block that is not whole yet."""
        self._room = self._block
        """Samples of that block when it is whole."""
        self._next = -1
        """The next sample, in what those before were taken from."""
        self._idle = 0
        self._framed = 0
        """Samples in `_frames` and before."""
        self._frames = [stream_info(rate)]
        self._file: BinaryIO = path.open("wb", buffering=0)

    @property
    def end(self) -> Ticks:
        return self._samples * self._ticks

    def write(self, position: Ticks, pcm: bytes, source: Ticks) -> None:
        """Add `pcm` at `position`; of what lies before the end, nothing is written again.

        `source`: its position on the track that it is taken from.
        """
        first = position // self._ticks
        start = source // self._ticks
        late = self._samples - first
        if late < 0:
            self._next = -1
            at = 0
            for piece in silence(-late):
                self._add(piece, at)
                at += len(piece) // 2
            self._next = -1
        elif late > 0:
            pcm = pcm[late * 2 :]
            start += late
        if pcm:
            self._add(pcm, start)

    def _add(self, pcm: bytes, start: int) -> None:
        if start != self._next:
            self._turn(start)
        samples = len(pcm) // 2
        self._samples += samples
        self._next = start + samples
        self._idle = 0
        waiting = self._waiting
        waiting += pcm
        while len(waiting) >= self._room * 2:
            block = bytes(waiting[: self._room * 2])
            del waiting[: self._room * 2]
            self._put(block)
            self._room = self._up_to_whole(self._next - len(waiting) // 2)

    def _turn(self, start: int) -> None:
        """Something else follows, of which `start` is the first sample."""
        if len(self._waiting) >= SMALLEST * 2:
            self._part()
        # What is too short for a block takes along so much of what follows.
        self._room = SMALLEST if self._waiting else self._up_to_whole(start)

    def _up_to_whole(self, start: int) -> int:
        return max(SMALLEST, self._block - start % self._block)

    def _part(self) -> None:
        """What waits becomes a block, whole or not."""
        block = bytes(self._waiting)
        self._waiting.clear()
        self._put(block)

    def _put(self, pcm: bytes) -> None:
        if not pcm.strip(b"\0"):
            self._frame(silent(len(pcm) // 2))
            return
        key = hash(pcm)
        block = self._shelf.find(key)
        if block is None:
            block = encoded(pcm, self._block)
            self._shelf.keep(key, block)
        self._frame(block)

    def _frame(self, block: Block) -> None:
        self._frames.append(framed(block, self.rate, self._framed))
        self._framed += block.samples

    def flush(self) -> None:
        """Every whole block is on the disk, and what is no whole one as soon as nothing follows it for a while."""
        self._idle += 1
        if self._idle == _IDLE and len(self._waiting) >= SMALLEST * 2:
            self._part()
            self._room = self._up_to_whole(self._next)
        data = b"".join(self._frames)
        self._frames.clear()
        if data and self._file.write(data) != len(data):
            raise OSError(28, "only a part of a track could be written")
        self.size += len(data)

    def close(self) -> None:
        if self._file.closed:
            return
        try:
            if self._waiting:
                self._part()
            self.flush()
            self._file.seek(_TOTAL)
            self._file.write((15 << 36 | self._framed).to_bytes(5, "big"))
        finally:
            self._file.close()
