"""Where a sound begins and ends: the label of a clip."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FLOOR_DB = -40.0
"""A 5 ms window belongs to the sound when its RMS is within this of the loudest window's."""

_WINDOW_MS = 5
_HOP_MS = 1


def window_db(signal: NDArray[np.float64], rate: int) -> NDArray[np.float64]:
    """RMS of 5 ms windows every 1 ms, in dB relative to the loudest one; float64 [windows]."""
    window, hop = rate * _WINDOW_MS // 1000, rate * _HOP_MS // 1000
    energy = np.concatenate(([0.0], np.cumsum(signal**2)))
    starts = np.arange(0, max(1, len(signal) - window + 1), hop)
    mean = (energy[np.minimum(starts + window, len(signal))] - energy[starts]) / window
    return np.asarray(10.0 * np.log10(np.maximum(mean / max(mean.max(), 1e-20), 1e-12)), np.float64)


def find_edges(signal: NDArray[np.float64], rate: int, floor_db: float = FLOOR_DB) -> tuple[int, int]:
    """First and one-past-last sample of the sound in `signal` (float64 [samples], any scale).

    The start of the first window above the floor and the end of the last, so that nothing audible is cut. Raises
    ValueError for a signal without sound.
    """
    if not np.any(signal):
        raise ValueError("signal holds no sound; nothing to label")
    window, hop = rate * _WINDOW_MS // 1000, rate * _HOP_MS // 1000
    loud = np.flatnonzero(window_db(signal, rate) > floor_db)
    return int(loud[0] * hop), int(min(loud[-1] * hop + window, len(signal)))
