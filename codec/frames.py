"""One frame of codec codes with its place in time, and its compact form.

Packed, a code takes just the bits that its codebook needs, most significant bit first, and each frame begins on a byte:
8 codebooks of 1024 are 10 bytes every 80 ms, 1 kbit/s. All frames of one codec are equally long, so that frame n of
a recording is found at n times the length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .identity import CodecIdentity

Codes = NDArray[np.int64]
"""Codes, shape [frames, codebooks], int64."""

START_BYTES: int = 8
"""A packed frame leads with its first tick, unsigned, big-endian."""

MAX_TICK: int = (1 << 63) - 1


class CodecFrameError(ValueError):
    """A codec frame is malformed. `field` names what is wrong; the message says what would be right."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


@dataclass(frozen=True, slots=True)
class CodecFrame:
    """The codes of one instant, `codes[q]` of codebook q, and the half-open stretch [start, end) that they stand for.

    `start` and `end` are ticks of 1/48000 s on whichever track the envelope around the frame names; fence and sequence
    number are the envelope's too. Which codec made the codes is said once per stream and not in every frame: `check`
    compares a frame with it.

    Raises CodecFrameError.
    """

    start: int
    end: int
    codes: tuple[int, ...]

    def __post_init__(self) -> None:
        for field in ("start", "end"):
            tick = getattr(self, field)
            if not isinstance(tick, int) or isinstance(tick, bool) or not 0 <= tick <= MAX_TICK:
                raise CodecFrameError(field, f"{tick!r} is not a tick, a whole number from 0 on")
        if self.end <= self.start:
            raise CodecFrameError("end", f"{self.end} is not after the start, {self.start}")
        if not isinstance(self.codes, tuple) or not self.codes:
            raise CodecFrameError("codes", "give a tuple with one whole number for each codebook")
        for code in self.codes:
            # A numpy integer would compare equal and then fail in JSON, far from here.
            if type(code) is not int or code < 0:
                raise CodecFrameError("codes", f"{code!r} is not a code, a whole number from 0 on")

    def check(self, identity: CodecIdentity) -> None:
        """Raises CodecFrameError unless the frame can be one of `identity`'s: number and range of codes, length."""
        if len(self.codes) != identity.codebooks:
            raise CodecFrameError("codes", f"{len(self.codes)} codes, but {identity} has {identity.codebooks}")
        for codebook, code in enumerate(self.codes):
            if code >= identity.codebook_size:
                raise CodecFrameError("codes", f"code {code} of codebook {codebook} is outside {identity}")
        if self.end - self.start != identity.frame_ticks:
            raise CodecFrameError(
                "end", f"the frame lasts {self.end - self.start} ticks; one of {identity} lasts {identity.frame_ticks}"
            )

    def to_bytes(self, identity: CodecIdentity) -> bytes:
        """Start tick and packed codes, `START_BYTES + identity.frame_bytes` bytes. Raises CodecFrameError."""
        self.check(identity)
        return self.start.to_bytes(START_BYTES, "big") + pack_codes([self.codes], identity)

    @classmethod
    def from_bytes(cls, data: bytes, identity: CodecIdentity) -> CodecFrame:
        """The frame that `to_bytes` wrote under the same identity. Raises CodecFrameError."""
        length = START_BYTES + identity.frame_bytes
        if len(data) != length:
            raise CodecFrameError("data", f"{len(data)} bytes; a frame of {identity} has {length}")
        start = int.from_bytes(data[:START_BYTES], "big")
        codes = unpack_codes(data[START_BYTES:], identity)[0]
        return cls(start, start + identity.frame_ticks, tuple(codes.tolist()))


def pack_codes(codes: Codes | Sequence[Sequence[int]], identity: CodecIdentity) -> bytes:
    """Codes, whole numbers, shape [frames, codebooks], to frames * `identity.frame_bytes` bytes.

    Raises CodecFrameError for another shape or a code outside its codebook.
    """
    table = np.asarray(codes)
    if table.ndim != 2 or table.shape[1] != identity.codebooks:
        raise CodecFrameError(
            "codes", f"shape {list(table.shape)} is not [frames, {identity.codebooks}], as {identity} needs"
        )
    if not len(table):
        return b""
    if table.dtype.kind not in "iu":
        raise CodecFrameError("codes", f"dtype {table.dtype} is not one of whole numbers")
    if table.min() < 0 or table.max() >= identity.codebook_size:
        raise CodecFrameError(
            "codes", f"{table.min()}..{table.max()} reaches outside 0..{identity.codebook_size - 1} of {identity}"
        )
    places = np.arange(identity.code_bits - 1, -1, -1)
    bits = (table.astype(np.int64)[:, :, None] >> places & 1).astype(np.uint8)
    return np.packbits(bits.reshape(len(table), -1), axis=1).tobytes()


def unpack_codes(data: bytes, identity: CodecIdentity) -> Codes:
    """The inverse of `pack_codes`: int64, shape [frames, codebooks].

    Raises CodecFrameError for bytes that are no whole number of frames, a code outside its codebook, or filling bits
    that are not 0 (then the bytes are another codec's).
    """
    length = identity.frame_bytes
    if len(data) % length:
        raise CodecFrameError("data", f"{len(data)} bytes are no whole number of frames of {length} ({identity})")
    bits = np.unpackbits(np.frombuffer(data, np.uint8).reshape(-1, length), axis=1)
    used = identity.codebooks * identity.code_bits
    if bits[:, used:].any():
        raise CodecFrameError("data", f"the filling bits are not 0; these bytes were not packed for {identity}")
    places = 1 << np.arange(identity.code_bits - 1, -1, -1, dtype=np.int64)
    codes: Codes = bits[:, :used].reshape(-1, identity.codebooks, identity.code_bits) @ places
    if codes.size and codes.max() >= identity.codebook_size:
        raise CodecFrameError("data", f"code {codes.max()} is outside {identity}")
    return codes
