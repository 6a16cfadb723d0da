"""Reads FLAC tracks, also before they are finished (RFC 9639).

A track that was never finished (the process died, or still writes) has no length in its header and may end in the
middle of a frame. `FlacFile` finds the last whole frame and shows the decoder a file that ends there.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import soundfile
from numpy.typing import NDArray

from ..core.timeline import ticks_per_sample
from .flac_frames import crc16, read_header

_SEARCH = 1 << 16
"""Bytes at the end of a file in which its last frames begin: far more than one holds."""
_TRIES = 8
"""Headers among those bytes that are looked at: a file can be made of nothing else."""
_STREAMINFO = 42
"""Bytes of the marker, the block header and the STREAMINFO block, which comes first (section 8.2)."""


class TrackError(ValueError):
    """A file that holds no readable audio; says which and why."""


class FlacFile:
    """A finished or unfinished FLAC file, to be read from anywhere in it. Raises TrackError.

    `rate` in Hz; `samples`: its length, in samples.
    """

    def __init__(self, path: Path) -> None:
        self._file: soundfile.SoundFile | None = None
        try:
            file = path.open("rb")
        except OSError as error:
            raise TrackError(f"{path} cannot be read: {error.strerror}") from None
        try:
            head, self.samples, end = _measure(file, path)
            self.rate = int.from_bytes(head[18:21], "big") >> 4
            ticks_per_sample(self.rate)
            if self.samples:
                self._file = soundfile.SoundFile(_Patched(file, head, end))
        except TrackError:
            file.close()
            raise
        except (soundfile.SoundFileError, ValueError) as error:
            file.close()
            raise TrackError(f"{path} is damaged: {error}") from None

    def read(self, first: int, count: int) -> NDArray[np.int16]:
        """`count` samples from `first` on; silence where the track does not reach or cannot be decoded."""
        samples = np.zeros(max(0, count), np.int16)
        start = max(first, 0)
        wanted = min(first + count, self.samples) - start
        if self._file is None or wanted <= 0:
            return samples
        try:
            self._file.seek(start)
            read = self._file.read(wanted, dtype="int16")
        except soundfile.SoundFileError:
            return samples
        samples[start - first : start - first + len(read)] = read
        return samples

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _measure(file: BinaryIO, path: Path) -> tuple[bytes, int, int]:
    """The header with the true length in it, that length in samples, and where in the file the last of them ends."""
    head = file.read(_STREAMINFO)
    if len(head) < _STREAMINFO or head[:4] != b"fLaC":
        raise TrackError(f"{path} is no FLAC file")
    packed = int.from_bytes(head[18:26], "big")
    samples = packed & (1 << 36) - 1
    if samples:
        return head, samples, file.seek(0, os.SEEK_END)
    samples, end = _whole_frames(file, block=int.from_bytes(head[8:10], "big"))
    return head[:18] + (packed | samples).to_bytes(8, "big") + head[26:], samples, end


def _whole_frames(file: BinaryIO, block: int) -> tuple[int, int]:
    """Samples in whole frames, and where in the file they end. `block`: samples of each, where all are alike."""
    size = file.seek(0, os.SEEK_END)
    begin = max(_STREAMINFO, size - _SEARCH)
    file.seek(begin)
    tail = file.read()
    stops = [len(tail)]
    at = len(tail)
    found = 0, size
    while len(stops) <= _TRIES and (at := tail.rfind(b"\xff", 0, at)) >= 0:
        head = read_header(tail, at, block)
        if head is None:
            continue
        # A frame is whole when its two last bytes are the CRC of the others (section 9.3). It ends where the file does
        # or at a later header; what looks like one may be a few samples.
        for stop in stops:
            if crc16(tail[at:stop]) == 0:
                return head.first + head.samples, begin + stop
        stops.append(at)
        found = head.first, begin + at
    return found


class _Patched(io.RawIOBase):
    """A file with another beginning and an earlier end."""

    def __init__(self, file: BinaryIO, head: bytes, end: int) -> None:
        self._file = file
        self._head = head
        self._end = end
        self._at = 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._end}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        size = max(0, min(len(buffer), self._end - self._at))
        if self._at < len(self._head):
            data = self._head[self._at : self._at + size]
        else:
            self._file.seek(self._at)
            data = self._file.read(size)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()
