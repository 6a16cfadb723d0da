"""An event loop on a thread of its own: what talks to remote models never shares the server's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import TypeVar

from .errors import RemoteError

T = TypeVar("T")


class RemoteLoop:
    """Runs coroutines for callers on other threads. `close` cancels all of them; what waits for one is told."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()
        self._lock = threading.Lock()
        self._closed = False

    def start(self, main: Coroutine[None, None, T]) -> Future[T]:
        """Begin `main`. Raises RemoteError once closed."""
        with self._lock:
            if self._closed:
                main.close()
                raise RemoteError("remote_closed", "the connection is shut down; start the server again")
            return asyncio.run_coroutine_threadsafe(main, self._loop)

    def call(self, main: Coroutine[None, None, T]) -> T:
        """Run `main` and wait for it. Raises what it raises, and RemoteError where it is cut off by `close`."""
        try:
            return self.start(main).result()
        except CancelledError:
            raise RemoteError("remote_closed", "the connection was shut down; start the server again") from None

    def soon(self, call: Callable[[], None]) -> None:
        """Call it on the loop; nothing happens once closed."""
        with self._lock:
            if not self._closed:
                self._loop.call_soon_threadsafe(call)

    def close(self) -> None:
        """Cancel everything, wait until it has ended, end the thread. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_all() -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
