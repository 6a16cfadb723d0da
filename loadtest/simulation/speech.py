"""What people say, as speech detection hears it: a probability and two levels for each window of 32 ms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sessions.core.timeline import TICK_RATE, Ticks, from_ms
from sessions.core.turns import HYSTERESIS

WINDOW: Ticks = from_ms(32)
STEP: Ticks = from_ms(4)
"""Frames of 20 ms begin so apart, seen from windows of 32 ms."""
ALIGNMENTS = WINDOW // STEP
THRESHOLD = 0.5
"""Of the simulated sessions, for speech."""
SPEAKING = THRESHOLD - HYSTERESIS
"""The same while somebody speaks already."""
SILENT = -120.0
"""dBFS of what is said by nobody."""

Window = tuple[float, float, float]
"""Probability of speech, level in dBFS, and that of what hisses in it (`SpeechProbability.hiss`)."""
NOTHING: Window = (0.02, SILENT, SILENT)
"""A window in which nobody speaks, in a room without a sound."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The windows of something said, the first of which holds its beginning.

    `runs`: for each window the number of the first one behind it that counts otherwise as speech.
    """

    windows: tuple[Window, ...]
    runs: tuple[int, ...]

    @classmethod
    def of(cls, windows: Sequence[Window]) -> Trace:
        """Rounded as perception rounds them."""
        runs = [len(windows)] * len(windows)
        for number in range(len(windows) - 2, -1, -1):
            same = _kind(windows[number]) == _kind(windows[number + 1])
            runs[number] = runs[number + 1] if same else number + 1
        rounded = ((round(chance, 4), round(level, 1), float(round(hiss))) for chance, level, hiss in windows)
        return cls(tuple(rounded), tuple(runs))


def _kind(window: Window) -> tuple[bool, bool]:
    return window[0] >= THRESHOLD, window[0] >= SPEAKING


@dataclass(frozen=True, slots=True)
class Speech:
    """Something that can be said. `onset` and `end`: of its sound, from its first sample.

    `traces`: how it is heard, by how far its first sample lies behind the beginning of a window (in `STEP`).
    """

    onset: Ticks
    end: Ticks
    traces: tuple[Trace, ...]

    def at(self, begin: Ticks) -> Trace:
        """How it is heard where its first sample is at `begin` of the input track, a multiple of `STEP`."""
        return self.traces[begin % WINDOW // STEP]


def plain(seconds: float) -> Speech:
    """Sound from beginning to end, of which each window is heard for what most of it is."""
    end = round(seconds * TICK_RATE)

    def trace(offset: Ticks) -> Trace:
        middles = range(WINDOW // 2, end + offset + WINDOW, WINDOW)
        return Trace.of([(0.95, SILENT, SILENT) if offset <= at < offset + end else NOTHING for at in middles])

    return Speech(0, end, tuple(trace(number * STEP) for number in range(ALIGNMENTS)))
