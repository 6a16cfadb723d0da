"""What happens next, in ticks of the session timeline."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from sessions.core.timeline import Ticks


class Clock:
    """A heap of calls. `now` only grows."""

    def __init__(self) -> None:
        self.now: Ticks = 0
        self.happened = 0
        self._planned: list[tuple[Ticks, int, Callable[..., object], tuple[Any, ...]]] = []
        self._number = 0

    def at(self, time: Ticks, action: Callable[..., object], *arguments: object) -> None:
        """Call `action` at `time`, or now where that has passed; what is planned for one time comes in its order.

        With arguments rather than as a closure: hundreds of thousands wait at a time.
        """
        self._number += 1
        now = self.now
        heapq.heappush(self._planned, (time if time > now else now, self._number, action, arguments))

    def run(self, until: Ticks) -> None:
        """Let everything happen that is due up to `until`."""
        planned, pop = self._planned, heapq.heappop
        while planned and planned[0][0] <= until:
            self.now, _, action, arguments = pop(planned)
            self.happened += 1
            action(*arguments)
        self.now = until
