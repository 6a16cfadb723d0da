"""When to step: absolute deadlines that do not drift, and what becomes of the ones that were missed."""

from __future__ import annotations


class Ticker:
    """Ticks every `period` seconds from `start` on.

    A step that overran is followed at once by the next, so that a short stall is caught up; but of more than
    `catch_up` ticks behind, the older are given up: a stalled engine must not run after its own past.
    """

    def __init__(self, start: float, period: float = 0.08, *, catch_up: int = 3) -> None:
        if period <= 0:
            raise ValueError(f"period {period} must be above 0")
        if catch_up < 0:
            raise ValueError(f"catch_up {catch_up} must not be negative")
        self.period = period
        self.missed = 0
        """Ticks that were given up."""
        self._start = start
        self._catch_up = catch_up
        self._number = 0

    @property
    def deadline(self) -> float:
        """When the next tick is due, on the clock of `start`."""
        return self._start + self._number * self.period

    def due(self, now: float) -> bool:
        """Whether a tick is to be done now; then it counts as done."""
        if now < self.deadline:
            return False
        behind = int((now - self.deadline) / self.period)
        if behind > self._catch_up:
            self.missed += behind - self._catch_up
            self._number += behind - self._catch_up
        self._number += 1
        return True
