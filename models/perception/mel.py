"""Whisper's log-mel front end in numpy: 16 kHz mono in, 80 mel bands per 10 ms out.

Definition: Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision", section 2.2; mel scale and
area normalisation after Slaney's Auditory Toolbox. Both Whisper and Smart Turn read these features.

Written out here, and not taken from torchaudio, transformers or faster-whisper, because each of those brings a large
runtime (torch, or FFmpeg bindings) into a server that should start in seconds and stay small.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE: int = 16_000
HOP: int = 160
"""Samples between frames (10 ms)."""
WINDOW: int = 400
"""Samples in a frame (25 ms)."""
BANDS: int = 80

_BREAK_HZ = 1000.0
_LINEAR_HZ_PER_MEL = 200.0 / 3.0
_LOG_STEP = np.log(6.4) / 27.0
_FLOOR = 1e-10
_DYNAMIC_RANGE = 8.0
_BLOCK = 16
"""Frames per step. OpenBLAS multiplies up to 2**18 products (80 x 201 x 16 is just under) in the calling thread. For
more it wakes a pool that waits by spinning, at full priority: the recognizer cost twice as much, and others waited."""


def log_mel(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """Log-mel features of `samples`.

    Takes float32 [N] in -1..1 at 16 kHz, N >= 201 (half a window is mirrored at either edge); gives float32
    [80, N // 160]. As in Whisper, the loudest point of the stretch sets the floor (80 dB below it), so the features
    of a stretch are not those of its parts.
    """
    if samples.ndim != 1 or samples.size <= WINDOW // 2:
        raise ValueError(f"samples: shape {samples.shape}, need [N] with N > {WINDOW // 2} samples at 16 kHz")
    padded = np.pad(samples, WINDOW // 2, mode="reflect")
    # The last frame of a centred transform is dropped, as Whisper does; hence N // HOP and not one more.
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP][: samples.size // HOP]
    filters, window = _filters(), _window()
    mel = np.empty((BANDS, len(frames)), np.float32)
    for first in range(0, len(frames), _BLOCK):
        spectrum = np.fft.rfft(frames[first : first + _BLOCK] * window)
        power = np.square(spectrum.real) + np.square(spectrum.imag)
        mel[:, first : first + _BLOCK] = filters @ power.T
    np.maximum(mel, _FLOOR, out=mel)
    np.log10(mel, out=mel)
    np.maximum(mel, mel.max(initial=-np.inf) - _DYNAMIC_RANGE, out=mel)
    mel += 4.0
    mel *= 0.25
    return mel


def normalize(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """Zero mean and unit variance, float32 [N]; silence stays silence. Smart Turn was trained on such input."""
    centred = samples - samples.mean(dtype=np.float64)
    return np.asarray(centred / np.sqrt(centred.var(dtype=np.float64) + 1e-7), np.float32)


@cache
def _window() -> NDArray[np.float32]:
    """Periodic Hann window."""
    return np.asarray(0.5 - 0.5 * np.cos(2.0 * np.pi * np.arange(WINDOW) / WINDOW), np.float32)


def _mel_to_hz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    knee = _BREAK_HZ / _LINEAR_HZ_PER_MEL
    return np.where(mel < knee, mel * _LINEAR_HZ_PER_MEL, _BREAK_HZ * np.exp(_LOG_STEP * (mel - knee)))


@cache
def _filters() -> NDArray[np.float32]:
    """Triangular filters [80, 201] of equal area over 0..8000 Hz, evenly spaced on Slaney's mel scale."""
    top = _BREAK_HZ / _LINEAR_HZ_PER_MEL + np.log(SAMPLE_RATE / 2 / _BREAK_HZ) / _LOG_STEP
    edges = _mel_to_hz(np.linspace(0.0, top, BANDS + 2))
    bins = np.linspace(0.0, SAMPLE_RATE / 2, WINDOW // 2 + 1)
    lower, centre, upper = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising = (bins - lower) / (centre - lower)
    falling = (upper - bins) / (upper - centre)
    triangles = np.maximum(0.0, np.minimum(rising, falling))
    return np.asarray(triangles * (2.0 / (upper - lower)), np.float32)
