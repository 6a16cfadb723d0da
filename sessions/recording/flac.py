"""FLAC tracks that are written as they come and can be read before they are finished (RFC 9639).

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

from ..core.timeline import Ticks, ticks_per_sample

CHUNK_SECONDS = 0.5
"""How much is encoded at a time: calls cost more than samples."""
_SEARCH = 1 << 16
"""Bytes at the end of a file in which its last frames begin: far more than one holds."""
_STREAMINFO = 42
"""Bytes of the marker, the block header and the STREAMINFO block, which comes first (section 8.2)."""
_SILENCE = bytes(1 << 16)


class FlacTrack:
    """Mono 16-bit PCM at `rate` Hz, written forward only; positions in ticks. What lies between is silence.

    `first`: position of its first sample.
    """

    def __init__(self, path: Path, rate: int, first: Ticks = 0) -> None:
        self.rate = rate
        self._path = path
        self._ticks = ticks_per_sample(rate)
        self._waiting = bytearray()
        self._chunk = round(rate * CHUNK_SECONDS) * 2
        self._samples = first // self._ticks
        """Position of the next one."""
        self._file = soundfile.SoundFile(
            path, "w", samplerate=rate, channels=1, format="FLAC", subtype="PCM_16", compression_level=0.0
        )

    @property
    def end(self) -> Ticks:
        return self._samples * self._ticks

    def write(self, position: Ticks, pcm: bytes) -> None:
        """Add `pcm` at `position`; of what lies before the end, nothing is written again."""
        first = position // self._ticks
        gap = first - self._samples
        if gap > 0:
            self._silence(gap)
        elif gap < 0:
            pcm = pcm[-gap * 2 :]
        self._samples += len(pcm) // 2
        self._waiting += pcm
        if len(self._waiting) >= self._chunk:
            self.flush()

    def extend(self, end: Ticks) -> None:
        """Silence up to `end`."""
        gap = end // self._ticks - self._samples
        if gap > 0:
            self._silence(gap)

    def _silence(self, samples: int) -> None:
        self._samples += samples
        size = samples * 2
        while size > 0:
            self._waiting += _SILENCE[:size]
            size -= len(_SILENCE)
            if len(self._waiting) >= self._chunk:
                self.flush()

    def flush(self) -> None:
        """Encode what waits. The encoder keeps less than a frame (1,152 samples)."""
        if self._waiting:
            self._file.buffer_write(bytes(self._waiting), dtype="int16")
            self._waiting.clear()

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return self._path.stat().st_size

    def close(self) -> None:
        if not self._file.closed:
            self.flush()
            self._file.close()


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
    """Samples in whole frames, and where in the file they end."""
    size = file.seek(0, os.SEEK_END)
    begin = max(_STREAMINFO, size - _SEARCH)
    file.seek(begin)
    tail = file.read()
    at = len(tail)
    while (at := tail.rfind(b"\xff\xf8", 0, at)) >= 0:
        number = _frame_number(tail, at)
        if number is None:
            continue
        # The last frame counts when it is whole: its two last bytes are the CRC of the others (section 9.3).
        if _crc16(tail[at:]) == 0:
            return (number + 1) * block, size
        return number * block, begin + at
    return 0, size


def _frame_number(data: bytes, at: int) -> int | None:
    """Number of the frame whose header begins at `at`; None where it is no header (section 9.1)."""
    head = data[at : at + 16]
    if len(head) < 6 or head[2] >> 4 == 0 or head[3] & 1:
        return None
    first = head[4]
    extra = 0 if first < 0x80 else 8 - (first ^ 0xFF).bit_length() - 1
    if first >= 0x80 and not 1 <= extra <= 6:
        return None
    number = first if first < 0x80 else first & (1 << 6 - extra) - 1
    for byte in head[5 : 5 + extra]:
        number = number << 6 | byte & 0x3F
    end = 5 + extra + {6: 1, 7: 2}.get(head[2] >> 4, 0) + {12: 1, 13: 2, 14: 2}.get(head[2] & 15, 0)
    if end >= len(head) or _crc8(head[:end]) != head[end]:
        return None
    return number


def _crc8(data: bytes) -> int:
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc << 1 ^ 0x107 if crc & 0x80 else crc << 1
    return crc


def _table16() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte << 8
        for _ in range(8):
            crc = crc << 1 ^ 0x18005 if crc & 0x8000 else crc << 1
        table.append(crc)
    return table


_CRC16 = _table16()


def _crc16(data: bytes) -> int:
    crc = 0
    for byte in data:
        crc = crc << 8 & 0xFFFF ^ _CRC16[crc >> 8 ^ byte]
    return crc


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
