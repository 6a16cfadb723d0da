"""The way from other threads to the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Protocol

from .core.events import Event
from .mailbox import Mail

log = logging.getLogger(__name__)


class Receiver(Protocol):
    """Whose mail it is; called on the loop."""

    def arrive(self, event: Event, pcm: bytes | None = None, rate: int = 0) -> None: ...


class Crossing:
    """Whatever came before the loop's next turn crosses in one.

    A wake-up of the loop costs more than handling what it brings, and models answer for many sessions at once.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[Receiver, Mail]] = deque()
        self._called = False

    def put(self, receiver: Receiver, mail: Mail) -> None:
        """From any thread. Mail of one thread keeps its order."""
        self._waiting.append((receiver, mail))
        # Whoever finds it called may rely on it: `_deliver` takes it back before it looks what waits.
        if not self._called:
            self._called = True
            try:
                self._loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:
                # The loop is closed: the process is going down and nobody is left to tell.
                log.debug("event after the loop closed: %s", type(mail.event).__name__)

    def _deliver(self) -> None:
        self._called = False
        while self._waiting:
            receiver, mail = self._waiting.popleft()
            receiver.arrive(mail.event, mail.pcm, mail.rate)
