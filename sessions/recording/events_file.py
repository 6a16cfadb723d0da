"""The file of events: lines in Zstandard frames (RFC 8878), of which each can be read by itself.

What was flushed is readable, by `zstdcat` too, even when the file ends in the middle of a frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import zstandard

LEVEL = 1
_MAGIC = b"\x28\xb5\x2f\xfd"
_READ = 1 << 10
"""Unpacked at a time: what is damaged costs no more of what comes before it."""


class EventsFile:
    """Compresses and appends lines. They are on the disk after `flush`."""

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("wb", buffering=0)
        self._compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True)
        self._frame = self._compressor.compressobj()
        self._waiting: list[str] = []
        self.write: Callable[[str], None] = self._waiting.append
        """Add a line; called for each of them, and thus no method of its own."""
        self._begun = False
        """Whether the frame holds anything that was flushed."""
        self.size = 0
        """Bytes on the disk."""

    def flush(self) -> None:
        """Everything so far is on the disk."""
        if self._waiting:
            self._put(self._take() + self._frame.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))

    def frame(self) -> None:
        """End a frame; the next line begins another one."""
        if not self._waiting and not self._begun:
            return
        self._put(self._take() + self._frame.flush(zstandard.COMPRESSOBJ_FLUSH_FINISH))
        self._begun = False
        self._frame = self._compressor.compressobj()

    def _take(self) -> bytes:
        # Half a surrogate pair is valid in JSON and not in UTF-8; its backslash escape is the same in both.
        lines = "".join(self._waiting).encode("utf-8", "backslashreplace")
        self._waiting.clear()
        self._begun = True
        return self._frame.compress(lines)

    def _put(self, data: bytes) -> None:
        if self._file.write(data) != len(data):
            raise OSError(28, "only a part of the events could be written")
        self.size += len(data)

    def close(self) -> None:
        try:
            self.frame()
        finally:
            self._file.close()


class Chapter:
    """One frame, unpacked as its lines are asked for.

    `lost`: whether something before it could not be read. `fault`: what ended its lines before their end; "" where
    nothing did, or only the end of the file.
    """

    def __init__(self, data: bytes, begin: int, lost: bool) -> None:
        self.lost = lost
        self.fault = ""
        self._data = data
        self._begin = begin
        self.end = begin + len(_MAGIC)
        self.whole = False

    def lines(self) -> Iterator[bytes]:
        """The lines, without their ends; one that was cut short is left out."""
        unpack = zstandard.ZstdDecompressor().decompressobj()
        rest = b""
        at = self._begin
        while at < len(self._data) and not unpack.eof:
            try:
                got = unpack.decompress(self._data[at : at + _READ])
            except zstandard.ZstdError as error:
                self.fault = str(error)
                return
            at += _READ
            *lines, rest = (rest + got).split(b"\n")
            yield from lines
        if unpack.eof:
            self.whole = True
            self.end = min(at, len(self._data)) - len(unpack.unused_data)


def read_chapters(path: Path) -> Iterator[Chapter]:
    """The frames of a file that can be found.

    A damaged frame gives its lines up to the damage; what follows goes on at the next frame. Raises OSError.
    """
    data = path.read_bytes()
    at, lost = 0, False
    while (begin := data.find(_MAGIC, at)) >= 0:
        chapter = Chapter(data, begin, lost or begin > at)
        yield chapter
        at, lost = chapter.end, not chapter.whole
