"""What happens next, in ticks of the session timeline."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, TypeAlias

from sessions.core.timeline import Ticks, from_ms

SLOT: Ticks = from_ms(10)
"""A stretch of time whose plans are put in order together."""

Plan: TypeAlias = tuple[Ticks, int, Callable[..., object], tuple[Any, ...]]


class Clock:
    """Calls that wait for their time. `now` only grows.

    Plans lie in slots by their time, and only those of the slot that has begun in a heap: where tens of thousands wait,
    a heap of all of them would touch another corner of memory at each step.
    """

    def __init__(self) -> None:
        self.now: Ticks = 0
        self.happened = 0
        self._near: list[Plan] = []
        self._begun = -1
        """The slot of what is near."""
        self._later: dict[int, list[Plan]] = {}
        self._slots: list[int] = []
        """Those of what comes later, a heap."""
        self._number = 0

    def at(self, time: Ticks, action: Callable[..., object], *arguments: object) -> None:
        """Call `action` at `time`, or now where that has passed; what is planned for one time comes in its order.

        With arguments rather than as a closure: hundreds of thousands wait at a time.
        """
        self._number += 1
        now = self.now
        if time < now:
            time = now
        slot = time // SLOT
        if slot <= self._begun:
            heapq.heappush(self._near, (time, self._number, action, arguments))
        elif slot in self._later:
            self._later[slot].append((time, self._number, action, arguments))
        else:
            self._later[slot] = [(time, self._number, action, arguments)]
            heapq.heappush(self._slots, slot)

    def run(self, until: Ticks) -> None:
        """Let everything happen that is due up to `until`."""
        near, pop = self._near, heapq.heappop
        while near or self._next(until):
            if near[0][0] > until:
                break
            self.now, _, action, arguments = pop(near)
            self.happened += 1
            action(*arguments)
        self.now = until

    def _next(self, until: Ticks) -> bool:
        """Begin the next slot with a plan; whether there is one that begins up to `until`."""
        if not self._slots or self._slots[0] * SLOT > until:
            return False
        self._begun = heapq.heappop(self._slots)
        self._near += self._later.pop(self._begun)
        heapq.heapify(self._near)
        return True
