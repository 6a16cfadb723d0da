"""WAV files written by position: what lies between two writes is silence."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

from .core.timeline import Ticks, ticks_per_sample

_HEADER = 44


class WavTrack:
    """Mono 16-bit PCM at `rate` Hz, placed in ticks. The header is true after `close`.

    Until then the sizes in it are the largest there are, which readers take as "to the end of the file", so that a
    track cut off by a crash can still be played.
    """

    def __init__(self, path: Path, rate: int) -> None:
        self.rate = rate
        self._file: BinaryIO = path.open("wb")
        self._end = 0
        self._file.write(self._header(0xFFFFFFFF - _HEADER))

    def _header(self, size: int) -> bytes:
        return struct.pack(
            "<4sI4s4sIHHIIHH4sI",
            b"RIFF",
            size + _HEADER - 8,
            b"WAVE",
            b"fmt ",
            16,
            1,
            1,
            self.rate,
            self.rate * 2,
            2,
            16,
            b"data",
            size,
        )

    def write(self, position: Ticks, pcm: bytes) -> None:
        """Put `pcm` at `position`; over what was there before, if anything."""
        offset = position // ticks_per_sample(self.rate) * 2
        self._file.seek(_HEADER + offset)
        self._file.write(pcm)
        self._end = max(self._end, offset + len(pcm))

    def silence(self, start: Ticks, end: Ticks) -> None:
        """Blank [start, end), as far as the track reaches."""
        first = start // ticks_per_sample(self.rate) * 2
        last = min(end // ticks_per_sample(self.rate) * 2, self._end)
        if last > first:
            self._file.seek(_HEADER + first)
            self._file.write(bytes(last - first))

    def close(self) -> None:
        self._file.seek(0)
        self._file.write(self._header(self._end))
        self._file.close()
