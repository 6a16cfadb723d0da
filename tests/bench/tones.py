"""Scripts whose replies can be told apart by their samples alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from server.client import RATE

TONES = tuple(range(400, 2300, 100))
"""Hz of the replies, in the order in which the script gives them. 20 ms windows resolve 50 Hz."""

WINDOW = RATE // 50


def script(seconds: float) -> str:
    """A scripted engine's TOML: one reply of `seconds` per tone."""
    return "".join(f"[[reply]]\ntone_hz = {tone}\nseconds = {seconds}\n\n" for tone in TONES)


def tone_of(pcm: NDArray[np.int16]) -> int | None:
    """Which of `TONES` sounds in `pcm` (int16 [samples] at 24 kHz); None for silence, another tone, or under 5 ms."""
    if len(pcm) < RATE // 200 or np.abs(pcm.astype(int)).max() < 100:
        return None
    windowed = pcm.astype(np.float64) * np.hanning(len(pcm))
    spectrum = np.abs(np.fft.rfft(windowed, 8192))
    peak = np.argmax(spectrum) * RATE / 8192
    nearest = min(TONES, key=lambda tone: abs(tone - peak))
    return nearest if abs(nearest - peak) <= 40 else None


def tones_in(pcm: NDArray[np.int16]) -> list[tuple[int, int]]:
    """(tone, samples) for each run of 20 ms windows with the same tone; silent windows are passed over.

    A last window shorter than 5 ms is too short to judge and counts to the run before it.
    """
    runs: list[tuple[int, int]] = []
    for start in range(0, len(pcm), WINDOW):
        piece = pcm[start : start + WINDOW]
        tone = tone_of(piece)
        if tone is None:
            if len(piece) < RATE // 200 and runs:
                runs[-1] = (runs[-1][0], runs[-1][1] + len(piece))
            continue
        if runs and runs[-1][0] == tone:
            runs[-1] = (tone, runs[-1][1] + len(piece))
        else:
            runs.append((tone, len(piece)))
    return runs
