"""Finds the chapters of an events file without unpacking it, so that a long recording opens at once.

A chapter is one Zstandard frame; its blocks say how long they are (RFC 8878, section 3.1.1), so walking over them costs
next to nothing. Chapters that are still being written end with the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import zstandard

from ..core.timeline import Ticks

_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_FIRST: Final = 1 << 16
"""Compressed bytes in which a chapter's first line is complete."""
_PIECE: Final = 1 << 14
"""Bytes that are unpacked at a time: what is damaged costs no more of what comes before it."""
_LONGEST: Final = 64 << 20
"""Bytes of a chapter: fifty times what one has. A small file can be packed so that it unpacks to terabytes."""
_NOW: Final = re.compile(rb'"now":(\d+)')


@dataclass(frozen=True, slots=True)
class Place:
    """Where a chapter lies: bytes [begin, end) of the file, and the session time of its first event."""

    begin: int
    end: int
    now: Ticks
    whole: bool
    """Whether nothing more is added to it."""


def places(path: Path) -> list[Place]:
    """The chapters of an events file, in order; what is damaged is passed over. Raises OSError."""
    data = path.read_bytes()
    found: list[Place] = []
    at = 0
    while (begin := data.find(_MAGIC, at)) >= 0:
        end, whole = _end(data, begin)
        now = _first(data, begin, end)
        if now is None:
            at = begin + len(_MAGIC)
            continue
        found.append(Place(begin, end, now, whole))
        at = end
    return found


def text(path: Path, place: Place) -> bytes:
    """The lines of a chapter, as far as they can be read. Raises OSError."""
    with path.open("rb") as file:
        file.seek(place.begin)
        data = file.read(place.end - place.begin)
    return b"".join(_unpacked(data))


def _unpacked(data: bytes) -> Iterator[bytes]:
    """Piece by piece, at most `_LONGEST` bytes in all."""
    with zstandard.ZstdDecompressor().stream_reader(data) as reader:
        for _ in range(_LONGEST // _PIECE):
            try:
                piece = reader.read(_PIECE)
            except zstandard.ZstdError:
                return
            if not piece:
                return
            yield piece


def _end(data: bytes, begin: int) -> tuple[int, bool]:
    """Where the frame at `begin` ends, and whether it is complete."""
    try:
        header = zstandard.get_frame_parameters(data[begin : begin + 18])
        at = begin + zstandard.frame_header_size(data[begin : begin + 18])
    except zstandard.ZstdError:
        return len(data), False
    while at + 3 <= len(data):
        block = int.from_bytes(data[at : at + 3], "little")
        last, kind, size = block & 1, block >> 1 & 3, block >> 3
        if kind == 3:
            break
        at += 3 + (1 if kind == 1 else size)
        if last:
            at += 4 if header.has_checksum else 0
            return min(at, len(data)), at <= len(data)
    # Damaged or unfinished: it goes up to where the next one can begin.
    following = data.find(_MAGIC, begin + len(_MAGIC))
    return (following, True) if following >= 0 else (len(data), False)


def _first(data: bytes, begin: int, end: int) -> Ticks | None:
    for piece in _unpacked(data[begin : min(end, begin + _FIRST)]):
        match = _NOW.search(piece.partition(b"\n")[0])
        return int(match[1]) if match else None
    return None
