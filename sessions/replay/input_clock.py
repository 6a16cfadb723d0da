"""Where the user's track lies on the session timeline.

The input track counts samples; it stands still while a client sends nothing. Packets come late and never early, so the
least delay of a stretch is its true place (the rule of `sessions.own_voice`).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from ..core.timeline import TICK_RATE, Ticks

PAUSE: Ticks = TICK_RATE // 5
"""Lag over the best of a stretch from which the client had paused."""
WINDOW: Ticks = 10 * TICK_RATE
"""How long a stretch is: clocks drift apart."""
SAME: Ticks = TICK_RATE // 100
"""Up to so much two stretches lie alike: packets are never quite as late as the ones before."""


@dataclass(slots=True)
class Stretch:
    """Input positions [start, end) lie at position + `offset` of the session timeline."""

    start: Ticks
    end: Ticks
    offset: Ticks


class InputClock:
    """Built from the arrival of audio, in order."""

    def __init__(self) -> None:
        self.stretches: list[Stretch] = []

    def arrived(self, start: Ticks, end: Ticks, now: Ticks) -> None:
        """Input [start, end) was handled at session time `now`."""
        offset = now - end
        last = self.stretches[-1] if self.stretches else None
        if last is None or offset > last.offset + PAUSE or last.end - last.start >= WINDOW:
            self._settle()
            self.stretches.append(Stretch(start, end, offset))
            return
        last.end = max(last.end, end)
        last.offset = min(last.offset, offset)

    def _settle(self) -> None:
        """The last stretch is over: it lies as the one before where the two hardly differ."""
        if len(self.stretches) > 1 and abs(self.stretches[-1].offset - self.stretches[-2].offset) <= SAME:
            self.stretches[-1].offset = self.stretches[-2].offset

    @property
    def starts(self) -> Ticks:
        """Where position 0 lies; negative for a client that was sending before its session was there."""
        return self.stretches[0].offset if self.stretches else 0

    def session_time(self, position: Ticks) -> Ticks:
        """Session time of an input position."""
        if not self.stretches:
            return position
        index = bisect_right(self.stretches, position, key=lambda stretch: stretch.start) - 1
        return position + self.stretches[max(0, index)].offset

    def input_position(self, now: Ticks) -> Ticks:
        """The input position that lies at session time `now`, the nearest where the client had paused."""
        for stretch in reversed(self.stretches):
            if now >= stretch.start + stretch.offset:
                return min(now - stretch.offset, stretch.end)
        return 0
