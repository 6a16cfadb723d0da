"""One clock for all sessions, on a loop whose time the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from server.carriers.webrtc.pacer import CATCH_UP, INTERVAL, PHASES, Pacer


class Loop:
    """Time and timers. `late` is added to every deadline."""

    def __init__(self) -> None:
        self.now = 100.0
        self.late = 0.0
        self._timers: list[tuple[float, Callable[..., Any], asyncio.Event]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[..., Any]) -> Any:
        timer = _Timer(self, when, callback)
        self._timers.append((when, callback, timer))  # type: ignore[arg-type]
        return timer

    def drop(self, timer: object) -> None:
        self._timers = [one for one in self._timers if one[2] is not timer]

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self._timers:
            when, callback, timer = min(self._timers, key=lambda one: one[0])
            if when + self.late > end:
                break
            self.drop(timer)
            self.now = max(self.now, when + self.late)
            callback()
        self.now = end

    @property
    def waiting(self) -> int:
        return len(self._timers)


class _Timer:
    def __init__(self, loop: Loop, when: float, callback: Callable[..., Any]) -> None:
        self._loop = loop

    def cancel(self) -> None:
        self._loop.drop(self)


class Member:
    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.ticks: list[tuple[float, int, int]] = []

    def tick(self, due: int, missed: int) -> None:
        self.ticks.append((self._loop.time(), due, missed))


def pacer_on(loop: Loop) -> Pacer:
    return Pacer(loop)  # type: ignore[arg-type]


def test_a_member_is_ticked_fifty_times_a_second_at_absolute_deadlines() -> None:
    loop = Loop()
    pacer, member = pacer_on(loop), Member(loop)
    pacer.add(member)
    loop.run(10.0)
    assert sum(due for _, due, _ in member.ticks) in (499, 500)
    assert all((due, missed) == (1, 0) for _, due, missed in member.ticks)
    first = member.ticks[0][0]
    assert all(abs(at - first - index * INTERVAL) < 1e-9 for index, (at, _, _) in enumerate(member.ticks))


def test_lateness_does_not_add_up() -> None:
    loop = Loop()
    pacer, member = pacer_on(loop), Member(loop)
    pacer.add(member)
    loop.late = 0.007
    loop.run(10.0)
    assert sum(due for _, due, _ in member.ticks) in (499, 500)


def test_members_are_spread_over_the_interval() -> None:
    loop = Loop()
    pacer = pacer_on(loop)
    members = [Member(loop) for _ in range(2 * PHASES)]
    for member in members:
        pacer.add(member)
    loop.run(1.0)
    offsets = sorted({round((member.ticks[0][0] - 100.0) % INTERVAL, 6) for member in members})
    assert len(offsets) == PHASES


def test_after_a_stall_a_few_packets_are_made_up_for_and_the_time_of_the_others_passes() -> None:
    loop = Loop()
    pacer, member = pacer_on(loop), Member(loop)
    pacer.add(member)
    loop.run(0.1)
    before = len(member.ticks)
    loop.late = 0.5
    loop.run(0.6)
    loop.late = 0.0
    loop.run(0.2)
    _, due, missed = member.ticks[before]
    assert due == CATCH_UP
    assert missed == 25 + 1 - CATCH_UP
    assert sum(due + missed for _, due, missed in member.ticks) in (44, 45)


def test_a_short_stall_is_made_up_for_whole() -> None:
    loop = Loop()
    pacer, member = pacer_on(loop), Member(loop)
    pacer.add(member)
    loop.late = 0.05
    loop.run(0.5)
    assert all(missed == 0 for _, _, missed in member.ticks)


def test_whoever_leaves_during_a_tick_is_not_ticked_any_more() -> None:
    loop = Loop()
    pacer = pacer_on(loop)
    other = Member(loop)

    class Leaver(Member):
        def tick(self, due: int, missed: int) -> None:
            super().tick(due, missed)
            for one in everyone:
                pacer.remove(one)

    everyone: list[Member] = [Leaver(loop) for _ in range(PHASES + 1)]
    for one in everyone:
        pacer.add(one)
    loop.run(1.0)
    assert sum(len(one.ticks) for one in everyone) == 1
    assert other.ticks == []


def test_without_members_no_timer_runs() -> None:
    loop = Loop()
    pacer, member = pacer_on(loop), Member(loop)
    pacer.add(member)
    loop.run(0.1)
    pacer.remove(member)
    pacer.remove(member)
    assert loop.waiting == 0
    assert len(pacer) == 0
    pacer.add(member)
    loop.run(0.1)
    assert sum(missed for _, _, missed in member.ticks) == 0
