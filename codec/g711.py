"""G.711 µ-law and A-law (ITU-T G.711, 1988), bit-exact to the reference of the ITU-T G.191 tool library.

Both laws are tables: 256 entries to expand, 65,536 to compress. Negative samples are taken by their one's complement,
as G.191 does, so that +0 and -1 are the two innermost codes; implementations after Sun's g711.c differ there by one
code at some interval borders.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from .pcm import Samples, to_samples

Law = Literal["ulaw", "alaw"]

RATE: Final = 8000
"""Samples per second; G.711 knows no other."""

SILENCE: Final[dict[Law, int]] = {"ulaw": 0xFF, "alaw": 0xD5}
"""The code of a zero sample."""

_ULAW_BIAS = 33
_ULAW_MAX = 0x1FFF


def _expand_ulaw() -> NDArray[np.int16]:
    code = np.arange(256)
    inverted = ~code & 0xFF
    segment, step = (inverted >> 4) & 7, inverted & 15
    # 14-bit magnitudes, left-justified in 16 bits: hence every constant is four times that of the recommendation.
    magnitude = (((2 * step + 33) << segment) - _ULAW_BIAS) << 2
    samples: NDArray[np.int16] = np.where(code >= 128, magnitude, -magnitude).astype(np.int16)
    return samples


def _compress_ulaw() -> NDArray[np.uint8]:
    sample = np.arange(65536).astype(np.uint16).view(np.int16).astype(np.int32)
    magnitude = np.minimum((np.where(sample < 0, ~sample, sample) >> 2) + _ULAW_BIAS, _ULAW_MAX)
    segment = _bit_length(magnitude) - 6
    step = (magnitude >> (segment + 1)) & 15
    code = (~((segment << 4) | step)) & 0x7F
    codes: NDArray[np.uint8] = np.where(sample >= 0, code | 0x80, code).astype(np.uint8)
    return codes


def _expand_alaw() -> NDArray[np.int16]:
    code = np.arange(256)
    plain = code ^ 0x55
    segment, step = (plain >> 4) & 7, plain & 15
    mantissa = np.where(segment > 0, 2 * step + 33, 2 * step + 1) << 3
    magnitude = mantissa << np.maximum(segment - 1, 0)
    samples: NDArray[np.int16] = np.where(code >= 128, magnitude, -magnitude).astype(np.int16)
    return samples


def _compress_alaw() -> NDArray[np.uint8]:
    sample = np.arange(65536).astype(np.uint16).view(np.int16).astype(np.int32)
    magnitude = np.where(sample < 0, ~sample, sample) >> 4
    segment = np.maximum(_bit_length(magnitude) - 4, 0)
    step = (magnitude >> np.maximum(segment - 1, 0)) & 15
    code = (segment << 4) | step
    codes: NDArray[np.uint8] = (np.where(sample >= 0, code | 0x80, code) ^ 0x55).astype(np.uint8)
    return codes


def _bit_length(values: NDArray[np.int32]) -> NDArray[np.int32]:
    return np.frexp(values)[1].astype(np.int32)


_EXPAND: Final = {"ulaw": _expand_ulaw().astype("<i2"), "alaw": _expand_alaw().astype("<i2")}
_EXPAND_BYTES: Final = {law: (table.tobytes()[0::2], table.tobytes()[1::2]) for law, table in _EXPAND.items()}
"""The low and the high bytes of the same."""
_SHORT: Final = 1_000
"""Codes up to which bytes are faster than an array, or nearly."""
_COMPRESS: Final[dict[Law, NDArray[np.uint8]]] = {"ulaw": _compress_ulaw(), "alaw": _compress_alaw()}


def decode(codes: bytes, law: Law) -> bytes:
    """G.711 codes, one byte per 8 kHz sample, to PCM16 little-endian bytes (twice as many)."""
    if len(codes) > _SHORT:
        return _EXPAND[law].take(np.frombuffer(codes, dtype=np.uint8)).tobytes()
    # As fast for a packet, and it keeps the interpreter's lock: one that is given away 50 times a second and call is
    # waited for as often, wherever another thread computes.
    low, high = _EXPAND_BYTES[law]
    pcm = bytearray(2 * len(codes))
    pcm[0::2] = codes.translate(low)
    pcm[1::2] = codes.translate(high)
    return bytes(pcm)


def encode(pcm: bytes, law: Law) -> bytes:
    """PCM16 little-endian bytes at 8 kHz to G.711 codes (half as many bytes).

    Raises ValueError for an odd number of bytes.
    """
    return compress(to_samples(pcm), law)


def compress(samples: Samples, law: Law) -> bytes:
    """8 kHz samples, shape (n,), int16, to G.711 codes, n bytes."""
    return _COMPRESS[law].take(samples.astype(np.int16, copy=False).view(np.uint16)).tobytes()
