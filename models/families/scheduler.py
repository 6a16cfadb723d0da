"""Doing something later: one thread for all, so that a thousand waiting replies cost nothing."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from typing import Protocol


class Cancellable(Protocol):
    def cancel(self) -> None:
        """Do not run it, if it has not run yet. Idempotent."""


class Scheduler(Protocol):
    """What an engine with delays needs; an asyncio loop's `call_later` fits as well, on its own thread."""

    def call_later(self, seconds: float, call: Callable[[], None]) -> Cancellable: ...


class _Entry:
    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None


class TimerThread:
    """A `Scheduler` on the monotonic clock. `close` drops what has not run and ends the thread; idempotent."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._queue: list[tuple[float, int, _Entry]] = []
        self._numbers = itertools.count()
        self._closed = False
        self._thread: threading.Thread | None = None

    def call_later(self, seconds: float, call: Callable[[], None]) -> Cancellable:
        entry = _Entry(call)
        with self._changed:
            heapq.heappush(self._queue, (time.monotonic() + max(0.0, seconds), next(self._numbers), entry))
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="talkover-timer", daemon=True)
                self._thread.start()
            self._changed.notify()
        return entry

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._queue.clear()
            thread, self._thread = self._thread, None
            self._changed.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._closed:
                    return
                now = time.monotonic()
                if not self._queue or self._queue[0][0] > now:
                    self._changed.wait(self._queue[0][0] - now if self._queue else None)
                    continue
                entry = heapq.heappop(self._queue)[2]
            call, entry.call = entry.call, None
            if call is not None:
                call()
