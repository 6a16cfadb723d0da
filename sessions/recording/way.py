"""How long what is sent is on its way to the ear of one peer: what its reports say, else what the model has.

A report says what sounds at the moment of its arrival. It may be late and is never early, so of several the one with
the shortest way is right.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from ..core.timeline import Ticks, from_ms

UNHEARD: Final[Ticks] = from_ms(15)
"""By how much the way may change while the sound goes on before it is followed: a step in the middle of a sound is a
fault of its own, and reports scatter, as what they name moves on in steps of a packet."""
ENOUGH: Final = 8
"""Reports that tell a way."""
_MILLISECOND: Final[Ticks] = from_ms(1)
"""Ways are whole milliseconds, as these are whole samples at every rate."""
_MOST_REPORTS: Final = 256


class Way:
    """The way of one carrier; times and lengths in ticks. `delay`: as the model has it."""

    def __init__(self, delay: Ticks) -> None:
        self._reports: deque[tuple[Ticks, Ticks]] = deque(maxlen=_MOST_REPORTS)
        self.latest: Ticks = delay
        """As it was known last."""

    def report(self, placed_at: Ticks, way: Ticks) -> None:
        """What was placed at `placed_at` sounded `way` later. What is heard before its time is no report."""
        if way >= 0:
            self._reports.append((placed_at, way))

    def of(self, placed_at: Ticks, length: Ticks, goes_on: bool = False) -> Ticks:
        """The way of a piece of sound at `placed_at`: from the reports on it, or on what follows where it is short.

        `goes_on`: it is heard without a pause behind what was asked for last. Places must not go back.
        """
        while self._reports and self._reports[0][0] <= placed_at:
            self._reports.popleft()
        end = placed_at + length
        ways = [way for index, (place, way) in enumerate(self._reports) if index < ENOUGH or place <= end]
        if ways and (not goes_on or abs(min(ways) - self.latest) > UNHEARD):
            self.latest = min(ways) // _MILLISECOND * _MILLISECOND
        return self.latest
