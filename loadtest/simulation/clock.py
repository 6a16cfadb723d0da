"""What happens next, in ticks of the session timeline."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from sessions.core.timeline import Ticks


class Clock:
    """A heap of calls. `now` only grows."""

    def __init__(self) -> None:
        self.now: Ticks = 0
        self.happened = 0
        self._planned: list[tuple[Ticks, int, Callable[[], None]]] = []
        self._number = 0

    def at(self, time: Ticks, action: Callable[[], None]) -> None:
        """Call `action` at `time`, or now where that has passed; what is planned for one time comes in its order."""
        self._number += 1
        heapq.heappush(self._planned, (max(time, self.now), self._number, action))

    def run(self, until: Ticks) -> None:
        """Let everything happen that is due up to `until`."""
        planned = self._planned
        while planned and planned[0][0] <= until:
            self.now, _, action = heapq.heappop(planned)
            self.happened += 1
            action()
        self.now = until
