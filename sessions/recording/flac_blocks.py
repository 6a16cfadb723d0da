"""What is encoded once and written more than once: encoders' frames by the samples in them."""

from __future__ import annotations

import io
import os
from collections import OrderedDict, deque
from typing import BinaryIO, Final

import soundfile

from .flac_frames import Block, taken

LEVELS: Final = {1152: 0.0, 4096: 0.375}
"""Levels of libFLAC as libsndfile wants them, by the samples of a block at that level. Bigger blocks take more time to
encode and less to copy."""
KEPT: Final = 64
"""Blocks on a shelf: ten seconds at 24 kHz, by which an engine may be ahead of what is heard."""


class Shelf:
    """The latest blocks by the `hash` of their samples: 64 bits that nobody can foresee."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[int, Block | bytes] = OrderedDict()

    def find(self, key: int) -> Block | None:
        found = self._blocks.get(key)
        if isinstance(found, bytes):
            found = self._blocks[key] = taken(found)
        return found

    def keep(self, key: int, block: Block | bytes) -> None:
        """`block`: or the frame that it came in, to be taken out when it is asked for."""
        self._blocks[key] = block
        if len(self._blocks) > KEPT:
            self._blocks.popitem(last=False)


class Sink:
    """What libsndfile takes for a file: collects what is encoded until `flush` writes it to `file`.

    `size`: bytes in the file. Frames come one at a time; those for which there is a key in `keys` go on `shelf` too.
    """

    def __init__(self, file: BinaryIO, shelf: Shelf | None = None) -> None:
        self.keys: deque[int] = deque()
        self.size = 0
        self._file = file
        self._shelf = shelf
        self._at = 0
        self._end = 0
        self._waiting: list[bytes] = []
        self._corrections: list[tuple[int, bytes]] = []
        """Of the header, once the length is known, and where they belong."""

    def write(self, data: memoryview) -> int:
        piece = bytes(data)
        if self._at < self._end:
            self._corrections.append((self._at, piece))
        else:
            self._waiting.append(piece)
            self._end += len(piece)
            if self.keys and self._shelf is not None and piece[:2] == b"\xff\xf8":
                self._shelf.keep(self.keys.popleft(), piece)
        self._at += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._end}[whence]
        return self._at

    def flush(self) -> None:
        """Write what waits; corrections come last. Raises OSError, which `write` must not: C calls it."""
        data = b"".join(self._waiting)
        self._waiting.clear()
        if data and self._file.write(data) != len(data):
            raise OSError(28, "only a part of a track could be written")
        self.size += len(data)
        for at, piece in self._corrections:
            self._file.seek(at)
            self._file.write(piece)
        self._corrections.clear()


def encoder(sink: Sink, rate: int, block: int) -> soundfile.SoundFile:
    """Encodes mono 16-bit PCM in blocks of `block` samples."""
    level = LEVELS[block]
    return soundfile.SoundFile(
        sink, "w", samplerate=rate, channels=1, format="FLAC", subtype="PCM_16", compression_level=level
    )


def encoded(pcm: bytes, block: int) -> Block:
    """One block of at most `block` samples by itself."""
    shelf = Shelf()
    sink = Sink(io.BytesIO(), shelf)
    sink.keys.append(0)
    # Whichever rate it is told: that is no matter of a block.
    file = encoder(sink, 48_000, block)
    file.buffer_write(pcm, dtype="int16")
    file.close()
    found = shelf.find(0)
    if found is None:
        raise ValueError(f"{len(pcm) // 2} samples are no block of at most {block}")
    return found
