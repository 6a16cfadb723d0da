"""Compute threads give way to perception."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

THINKING = 5
"""Niceness; enough for the kernel to prefer a voice activity detector that wakes for a millisecond every 32 ms."""
TALKING = 2
"""A clause takes some 20 ms to speak and somebody waits for it, so it goes before the thoughts of others."""


def give_way(niceness: int = THINKING) -> None:
    """Lower the priority of the calling thread and of the threads that it will create (Linux; elsewhere no-op)."""
    if sys.platform != "linux":
        return  # a priority belongs to the whole process there
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)


def run_giving_way(make: Callable[[], T]) -> T:
    """`make()` in a thread of low priority, whose native worker threads inherit it; returns or raises as `make`."""
    results: list[T] = []
    failures: list[BaseException] = []

    def body() -> None:
        give_way()
        try:
            results.append(make())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=body, name="talkover-load")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]
