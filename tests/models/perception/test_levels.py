from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from models.perception.levels import levels
from sessions.core.loudness import ABOVE_HISS, SILENT

RATE = 16_000
WINDOW = 512


def tone(hertz: float, dbfs: float) -> NDArray[np.float32]:
    t = np.arange(WINDOW) / RATE
    return np.asarray(10 ** (dbfs / 20) * np.sqrt(2) * np.sin(2 * np.pi * hertz * t), np.float32)


def test_nothing_is_silent_and_hisses_not() -> None:
    assert levels(np.zeros((2, WINDOW), np.float32)) == [(SILENT, SILENT)] * 2


@pytest.mark.parametrize("hertz", [250.0, 1000.0, 4000.0])
def test_hiss_weighs_a_tone_by_the_square_of_its_pitch(hertz: float) -> None:
    [(level, hiss)] = levels(tone(hertz, -20.0)[None])
    # |1 - 2 z^-1 + z^-2| = (2 sin(w/2))^2
    weight = 40 * np.log10(2 * np.sin(np.pi * hertz / RATE))
    assert level == pytest.approx(-20.0, abs=0.2)
    assert hiss == pytest.approx(-20.0 + weight, abs=1.0)


def test_each_window_is_measured_by_itself_and_rounded() -> None:
    windows = np.stack([tone(500.0, -20.0), tone(3000.0, -47.33)])
    together = levels(windows)
    assert together == [levels(one[None])[0] for one in windows]
    assert all(level == round(level, 1) and hiss == round(hiss) for level, hiss in together)


def test_a_fricative_under_a_humming_room_stands_out_by_its_hiss_alone() -> None:
    rng = np.random.default_rng(1)
    room = sum(tone(50.0 * n, -38.0 - 3 * n) for n in range(1, 9))
    fricative = room + np.asarray(rng.normal(size=WINDOW) * 10 ** (-45 / 20), np.float32)
    [(quiet, below), (loud, above)] = levels(np.stack([room, fricative]).astype(np.float32))
    assert loud - quiet < 3
    assert above - below > 2 * ABOVE_HISS
