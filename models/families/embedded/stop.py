"""A flag that stops work on another thread, and tells those who cannot poll it."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Stop:
    """Set once, never cleared."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._set = False
        self._calls: list[Callable[[], None]] = []

    def __bool__(self) -> bool:
        return self._set

    def set(self) -> None:
        """Stop; calls what was registered, once, on this thread. Idempotent."""
        with self._lock:
            if self._set:
                return
            self._set = True
            calls, self._calls = self._calls, []
        for call in calls:
            call()

    def then(self, call: Callable[[], None]) -> None:
        """Run `call` (which must not block) when stopped; at once if that has already happened."""
        with self._lock:
            if not self._set:
                self._calls.append(call)
                return
        call()
