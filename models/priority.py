"""Thread priorities: what must answer in milliseconds goes before what computes for a tenth of a second.

Speech detection and the event loop run at the process's own priority; recognizers, language models and synthesizers
run below it. On two cores this is the difference between a hold after 40 ms and one after 150 ms.

Linux gives every thread its own nice value, and a new thread inherits that of the thread that creates it. So a
library whose threads cannot be reached (CTranslate2's pool, for one) is lowered by being loaded from a lowered thread.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

HEAVY: int = 5
"""How far below the process heavy computing runs, in steps of nice."""

PROMPT: int = 2
"""For what is heavy but short and waited for: a clause takes some 20 ms to speak."""

T = TypeVar("T")


def lower_priority(steps: int = HEAVY) -> None:
    """Lower the calling thread, for good (only root may raise one again). No effect where threads have no priority."""
    if not sys.platform.startswith("linux"):
        return  # elsewhere the call would lower the whole process, the event loop included
    thread = threading.get_native_id()
    os.setpriority(os.PRIO_PROCESS, thread, min(19, os.getpriority(os.PRIO_PROCESS, thread) + steps))


def load_lowered(load: Callable[[], T]) -> T:
    """Run `load` in a lowered thread and return its result, so that the threads it starts are lowered too.

    Raises what `load` raises.
    """
    result: Future[T] = Future()

    def run() -> None:
        try:
            lower_priority()
            result.set_result(load())
        except BaseException as error:
            result.set_exception(error)

    thread = threading.Thread(target=run, name="load")
    thread.start()
    thread.join()
    return result.result()
