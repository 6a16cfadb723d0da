"""G.722 at 64 kbit/s (ITU-T G.722, mode 1), streaming, by FFmpeg's codec.

A byte holds two samples of 16 kHz audio. RTP counts G.722 with a clock of 8000 Hz by an old mistake (RFC 3551 section
4.5.2); nothing here does.
"""

from __future__ import annotations

from typing import Final

import av
import numpy as np

from .pcm import Samples, to_bytes, to_samples

RATE: Final = 16_000
"""Hz of the audio."""
BYTES_PER_SECOND: Final = 8_000


class G722Encoder:
    """One lane of 16 kHz PCM to G.722. Keep one per lane; `reset` only at an epoch's edge."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything; the next sample is the first of a new stream."""
        self._context = av.CodecContext.create("g722", "w")
        self._context.sample_rate = RATE
        self._context.layout = "mono"
        self._context.format = "s16"
        self._context.open()
        self._at = 0

    def encode(self, samples: Samples) -> bytes:
        """Samples, shape (n,), int16, n even, to n / 2 bytes. Raises ValueError for an odd number of samples."""
        if len(samples) % 2:
            raise ValueError(f"there are {len(samples)} samples; a byte of G.722 holds two, give an even number")
        if not len(samples):
            return b""
        frame = av.AudioFrame.from_ndarray(
            np.ascontiguousarray(samples, np.int16).reshape(1, -1), format="s16", layout="mono"
        )
        frame.sample_rate = RATE
        frame.pts = self._at
        self._at += len(samples)
        return b"".join(bytes(packet) for packet in self._context.encode(frame))


class G722Decoder:
    """One lane of G.722 to 16 kHz PCM."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything; the next byte is the first of a new stream."""
        self._context = av.CodecContext.create("g722", "r")
        self._context.layout = "mono"
        self._context.open()

    def decode(self, codes: bytes) -> Samples:
        """n bytes to samples, shape (2 n,), int16."""
        if not codes:
            return np.zeros(0, dtype=np.int16)
        pieces = [frame.to_ndarray().reshape(-1) for frame in self._context.decode(av.Packet(codes))]
        return np.concatenate(pieces).astype(np.int16, copy=False) if pieces else np.zeros(0, dtype=np.int16)


def decode(codes: bytes) -> bytes:
    """A whole stream of G.722 to PCM16 little-endian bytes at 16 kHz."""
    return to_bytes(G722Decoder().decode(codes))


def encode(pcm: bytes) -> bytes:
    """PCM16 little-endian bytes at 16 kHz to a whole stream of G.722."""
    return G722Encoder().encode(to_samples(pcm))
