"""FLAC tracks that are written as they come and can be read before they are finished (RFC 9639)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from ..core.timeline import Ticks, ticks_per_sample
from .flac_blocks import Shelf, Sink, encoder

CHUNK_SECONDS: Final = 0.5
"""How much is encoded at a time: calls cost more than samples."""
_SILENCE: Final = bytes(1 << 16)


def shared_block(rate: int) -> int:
    """Samples of a block of tracks that share a shelf: a sixth of a second at most, as only whole blocks are on the
    disk."""
    return 4096 if rate >= 24_000 else 1152


def silence(samples: int) -> Iterator[bytes]:
    """So many zero samples, piece by piece."""
    size = samples * 2
    while size > 0:
        yield _SILENCE[:size]
        size -= len(_SILENCE)


class FlacTrack:
    """Mono 16-bit PCM at `rate` Hz, written forward only; positions in ticks. What lies between is silence.

    `first`: position of its first sample. `shelf`: where its blocks are put for others to take.
    """

    def __init__(self, path: Path, rate: int, first: Ticks = 0, shelf: Shelf | None = None) -> None:
        self.rate = rate
        self._ticks = ticks_per_sample(rate)
        self._waiting = bytearray()
        self._chunk = round(rate * CHUNK_SECONDS) * 2
        self._samples = first // self._ticks
        """Position of the next one."""
        block = shared_block(rate) if shelf is not None else 1152
        self._block = block * 2
        self._shared = shelf is not None
        self._begun = bytearray()
        """Samples of a block that is not whole yet."""
        self._file: BinaryIO = path.open("wb", buffering=0)
        self._sink = Sink(self._file, shelf)
        self._encoder = encoder(self._sink, rate, block)

    @property
    def end(self) -> Ticks:
        return self._samples * self._ticks

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return self._sink.size

    def write(self, position: Ticks, pcm: bytes) -> None:
        """Add `pcm` at `position`; of what lies before the end, nothing is written again."""
        gap = position // self._ticks - self._samples
        if gap > 0:
            self._samples += gap
            for piece in silence(gap):
                self._add(piece)
        elif gap < 0:
            pcm = pcm[-gap * 2 :]
        self._samples += len(pcm) // 2
        self._add(pcm)

    def _add(self, pcm: bytes) -> None:
        self._waiting += pcm
        if len(self._waiting) >= self._chunk:
            self._encode()

    def _encode(self) -> None:
        if not self._waiting:
            return
        pcm = bytes(self._waiting)
        self._waiting.clear()
        if self._shared:
            self._key(pcm)
        self._encoder.buffer_write(pcm, dtype="int16")

    def _key(self, pcm: bytes) -> None:
        """Say by what the blocks that this completes are found."""
        begun = self._begun
        begun += pcm
        whole = len(begun) - len(begun) % self._block
        self._sink.keys.extend([hash(bytes(begun[at : at + self._block])) for at in range(0, whole, self._block)])
        del begun[:whole]

    def flush(self) -> None:
        """Everything that can be is on the disk; the encoder keeps less than a block."""
        self._encode()
        self._sink.flush()

    def close(self) -> None:
        if self._file.closed:
            return
        try:
            self.flush()
            self._encoder.close()
            self._sink.flush()
        finally:
            self._file.close()
