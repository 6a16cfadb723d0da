"""Who may compute next: a semaphore whose waiters go by urgency, asked anew at every release."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeAlias

from sessions.core.timeline import Ticks, from_ms

from .stop import Stop

Urgency: TypeAlias = tuple[int, int]
"""Smaller goes first. Class (0: has not been heard yet, 1: speaks already, 2: nobody waits for it), then rank within
the class.

Rank in class 0 is the order of arrival, in class 1 the ticks of audio before a gap.
"""

_LEAD: Ticks = from_ms(4000)
"""How much sooner a waiter must fall silent before work in progress is put aside for it: reading a prompt again costs
as much as four tokens, a second of speech."""


class Gate:
    """At most `permits` holders. A holder asks before every token whether it should step back.

    A first clause that someone waits for thus goes before one that would only lengthen seconds of finished audio.
    """

    def __init__(self, permits: int) -> None:
        if permits < 1:
            raise ValueError(f"permits {permits} must be at least 1")
        self._free = permits
        self._changed = threading.Condition()
        self._waiting: dict[object, Callable[[], Urgency]] = {}

    def enter(self, urgency: Callable[[], Urgency], stop: Stop) -> bool:
        """Wait for a permit; False (and no permit) once `stop` is set, if its owner had `stop.then(gate.wake)`."""
        ticket = object()
        with self._changed:
            self._waiting[ticket] = urgency
            try:
                while not stop:
                    if self._free and self._is_first(ticket):
                        self._free -= 1
                        return True
                    self._changed.wait()
                return False
            finally:
                del self._waiting[ticket]
                # Another permit may be free for the next in line.
                self._changed.notify_all()

    def wants_back(self, urgency: Urgency) -> bool:
        """Whether a holder of this urgency should leave, and come back later, for somebody who waits."""
        with self._changed:
            if self._free or not self._waiting:
                return False
            first = min(ask() for ask in self._waiting.values())
        if first[0] != urgency[0]:
            return first[0] < urgency[0]
        return urgency[0] == 1 and first[1] + _LEAD < urgency[1]

    def leave(self) -> None:
        with self._changed:
            self._free += 1
            self._changed.notify_all()

    def wake(self) -> None:
        """Let every waiter look at its `stop` again."""
        with self._changed:
            self._changed.notify_all()

    def _is_first(self, ticket: object) -> bool:
        first = min(self._waiting, key=lambda waiting: self._waiting[waiting]())
        return first is ticket
