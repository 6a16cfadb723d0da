"""How loud a window is, and how much of it hisses: what `sessions.core.loudness` goes by."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sessions.core.loudness import SILENT

_NOTHING = 10 ** (SILENT / 10)


def levels(windows: NDArray[np.float32]) -> list[tuple[float, float]]:
    """Level and hiss in dBFS of each of `windows`, float32 [B, N] in -1..1 at 16 kHz; `SILENT` for nothing at all.

    Hiss is the level of the second difference. Both are rounded far below what decides anything, because digits are
    most of what a journal holds: the level to a tenth, the hiss to whole decibels.
    """
    steps = windows[:, 1:] - windows[:, :-1]
    bends = steps[:, 1:] - steps[:, :-1]
    return [(round(level, 1), float(round(hiss))) for level, hiss in zip(_dbfs(windows), _dbfs(bends), strict=True)]


def _dbfs(windows: NDArray[np.float32]) -> list[float]:
    length = windows.shape[1]
    powers: list[float] = np.einsum("bn,bn->b", windows, windows).tolist()
    return [10 * math.log10(power / length + _NOTHING) for power in powers]
