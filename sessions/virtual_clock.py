"""An event loop whose time jumps to the next timer when there is nothing else to do.

With it a test of minutes of conversation runs in milliseconds and depends on no machine's speed (after trio's
autojump clock). Only for code that waits on timers and in-process events: a thread's or a socket's answer does not
stop the clock from jumping.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

THREAD_PATIENCE = 120.0
"""Real seconds to wait for a thread when no timer is set at all: one that writes hours of audio may take so long."""


class _JumpingSelector(selectors.DefaultSelector):
    """Turns waiting into a jump of the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0 if timeout is not None else THREAD_PATIENCE)
        if not ready and timeout is None:
            raise RuntimeError("deadlock: no timer is set and no thread answers; something waits for ever")
        if not ready and timeout:
            self.now += timeout
        return ready


class VirtualClockLoop(asyncio.SelectorEventLoop):
    """`loop.time()` is virtual and begins at 0."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now if hasattr(self, "_jumping") else 0.0

    def block(self, seconds: float) -> None:
        """Time goes by and nothing happens, as when the process gets no processor: what is due meanwhile is late."""
        self._jumping.now += seconds


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` on a virtual clock, from time 0."""
    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        return runner.run(main)
