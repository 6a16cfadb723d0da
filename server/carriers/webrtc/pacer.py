"""One clock for the packets of all sessions.

Every session sends a packet each 20 ms at absolute deadlines. The sessions are spread over ten phases of 2 ms, so that
their work does not stand in one heap before everything else on the loop.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

INTERVAL: Final = 0.02
"""Seconds of a packet."""
PHASES: Final = 10
EARLY: Final = 0.001
"""Seconds that a deadline may be early: timers of the faster event loop are rounded to the millisecond."""
CATCH_UP: Final = 5
"""Packets at most that are made up for after the loop was late; the time of all others passes in silence."""


class Paced(Protocol):
    """What is called each 20 ms."""

    def tick(self, due: int, missed: int) -> None:
        """Send `due` packets (1, or up to `CATCH_UP` after a stall); before them, the time of `missed` has passed.

        Never raises: others wait for their turn.
        """


class _Seat:
    __slots__ = ("member", "phase", "ticks")

    def __init__(self, member: Paced, phase: int, ticks: int) -> None:
        self.member = member
        self.phase = phase
        self.ticks = ticks


class Pacer:
    """Ticks its members from one timer, which runs only while there are any. Methods are called on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop or asyncio.get_running_loop()
        self._origin = self._loop.time()
        self._phases: list[dict[Paced, _Seat]] = [{} for _ in range(PHASES)]
        self._where: dict[Paced, _Seat] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.latest = 0.0
        """Seconds that the latest tick came after its deadline."""

    def __len__(self) -> int:
        return len(self._where)

    def add(self, member: Paced) -> None:
        """Tick `member` from the next deadline of its phase on."""
        phase = min(range(PHASES), key=lambda one: len(self._phases[one]))
        seat = _Seat(member, phase, self._passed(phase, self._loop.time()))
        self._phases[phase][member] = seat
        self._where[member] = seat
        self._plan()

    def remove(self, member: Paced) -> None:
        """Tick it no more. Idempotent."""
        seat = self._where.pop(member, None)
        if seat is not None:
            del self._phases[seat.phase][member]
            if not self._where and self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _passed(self, phase: int, now: float) -> int:
        """Deadlines of `phase` up to `now`."""
        return int((now - self._origin - phase * INTERVAL / PHASES + EARLY) / INTERVAL)

    def _plan(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._where:
            self._timer = self._loop.call_at(self._next(self._loop.time()), self._fire)

    def _next(self, now: float) -> float:
        """The next deadline of a phase that has members."""
        due = float("inf")
        for phase, members in enumerate(self._phases):
            if members:
                offset = self._origin + phase * INTERVAL / PHASES
                due = min(due, offset + (self._passed(phase, now) + 1) * INTERVAL)
        return due

    def _fire(self) -> None:
        self._timer = None
        now = self._loop.time()
        for phase, members in enumerate(self._phases):
            if not members:
                continue
            passed = self._passed(phase, now)
            for seat in list(members.values()):
                behind = passed - seat.ticks
                if behind <= 0 or seat.member not in members:
                    continue
                seat.ticks = passed
                self.latest = now - self._origin - phase * INTERVAL / PHASES - passed * INTERVAL
                due = min(behind, CATCH_UP)
                seat.member.tick(due, behind - due)
        if self._where:
            self._timer = self._loop.call_at(self._next(now), self._fire)
