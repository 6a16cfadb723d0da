"""PCM as bytes and as arrays: mono, signed 16-bit little-endian."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.int16]
"""Mono PCM, shape (n,), dtype int16."""

SAMPLE_BYTES: int = 2


def to_samples(pcm: bytes) -> Samples:
    """Little-endian PCM16 bytes to samples, shape (len(pcm) / 2,). A read-only view, not a copy.

    Raises ValueError for an odd number of bytes: half a sample means that the stream was cut in the wrong place, and
    everything after it would be noise.
    """
    if len(pcm) % SAMPLE_BYTES:
        raise ValueError(f"pcm has {len(pcm)} bytes; 16-bit samples need an even number")
    return np.frombuffer(pcm, dtype="<i2")


def to_bytes(samples: Samples) -> bytes:
    """Samples, shape (n,), int16, to little-endian PCM16 bytes."""
    return samples.astype("<i2", copy=False).tobytes()


def silence(samples: int) -> bytes:
    """`samples` samples of digital silence."""
    return bytes(SAMPLE_BYTES * samples)


def fade_in(samples: Samples, length: int) -> Samples:
    """The same samples with a raised-cosine rise over the first `length` of them (fewer if there are fewer).

    For audio that begins at an epoch's edge or after a hold: it uses no sample of what came before, so nothing stale
    can leak through it.
    """
    n = min(length, len(samples))
    out = samples.copy()
    if n > 0:
        out[:n] = np.rint(samples[:n] * _rise(n)).astype(np.int16)
    return out


def fade_out(samples: Samples, length: int) -> Samples:
    """The same samples with a raised-cosine fall over the last `length` of them (fewer if there are fewer)."""
    n = min(length, len(samples))
    out = samples.copy()
    if n > 0:
        out[-n:] = np.rint(samples[-n:] * _rise(n)[::-1]).astype(np.int16)
    return out


def _rise(n: int) -> NDArray[np.float64]:
    # Half a sample off both ends: neither a dead sample nor one at full level belongs to a ramp.
    gain: NDArray[np.float64] = 0.5 - 0.5 * np.cos(np.pi * (np.arange(n) + 0.5) / n)
    return gain
