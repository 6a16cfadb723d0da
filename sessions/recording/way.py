"""How long what is sent is on its way to the ear of one peer: what its reports say, else what the model has.

A report says what sounds at the moment of its arrival. It may be late and is never early, so of several the lower ones
count; what it names moves on in steps of a packet, so the very lowest does not.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from ..core.timeline import Ticks, from_ms

UNHEARD: Final[Ticks] = from_ms(15)
"""By how much the way may change while the sound goes on before it is followed: a step in the middle of a sound is a
fault of its own, and reports scatter by a packet."""
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

    def report(self, now: Ticks, way: Ticks) -> None:
        """What sounds at `now` was placed `way` ticks before. What is heard before its time is no report."""
        if way >= 0:
            self._reports.append((now, way))

    def of(self, placed_at: Ticks, length: Ticks, goes_on: bool = False) -> Ticks:
        """The way of a piece of sound at `placed_at`: from the reports that came while it sounded, or next after it
        where it is short.

        `goes_on`: it is heard without a pause behind what was asked for last. Places must not go back.
        """
        while self._reports and self._reports[0][0] <= placed_at:
            self._reports.popleft()
        until = placed_at + length + self.latest
        ways = sorted(way for index, (now, way) in enumerate(self._reports) if index < ENOUGH or now <= until)
        if ways:
            found = ways[(len(ways) - 1) // 4]
            if not goes_on or abs(found - self.latest) > UNHEARD:
                self.latest = found // _MILLISECOND * _MILLISECOND
        return self.latest
