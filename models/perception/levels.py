"""How loud a window is, and how much of it hisses: what `sessions.core.loudness` goes by."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sessions.core.loudness import SILENT

_NOTHING = 10 ** (SILENT / 10)


def levels(windows: NDArray[np.float32]) -> list[tuple[float, float]]:
    """Level and hiss in dBFS of each of `windows`, float32 [B, N] in -1..1 at 16 kHz; `SILENT` for nothing at all.

    Hiss is the level of the second difference. Both are rounded far below what decides anything, because digits are
    most of what a journal holds: the level to a tenth, the hiss to whole decibels.
    """
    whole = np.round(_dbfs(windows), 1)
    hiss = np.round(_dbfs(np.diff(windows, 2, axis=1)))
    return [(round(one, 1), other) for one, other in zip(whole.tolist(), hiss.tolist(), strict=True)]


def _dbfs(windows: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(10 * np.log10(np.mean(np.square(windows), axis=1) + _NOTHING), np.float32)
