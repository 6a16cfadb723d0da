"""What takes a processor for a while: recordings that are run otherwise, or told step by step.

It is done in a process of its own, below all else, so that the conversations of this one do not wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from sessions.core.records import Plain
from sessions.core.timeline import TICK_RATE, Ticks
from sessions.replay.account import account
from sessions.replay.alterations import AlterationError, Alterations
from sessions.replay.explain import explain
from sessions.replay.reader import Recording
from sessions.replay.view import marks_of
from sessions.replay.what_if import what_if

T = TypeVar("T")

LONGEST: Final[Ticks] = 30 * 60 * TICK_RATE
"""A longer session is run otherwise on the command line."""
WAITING_MOST: Final = 4


class Overloaded(Exception):
    """So many runs wait that no more are taken."""


class Runs:
    """Runs one after the other. Methods are called on the event loop."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None
        self._pid: Future[int] | None = None
        self._waiting = 0

    async def run(self, work: Callable[..., T], *given: object) -> T:
        """`work` of `given` in the process. Raises what it raises, and Overloaded."""
        if self._waiting >= WAITING_MOST:
            raise Overloaded("other recordings are being run otherwise; try again soon")
        if self._pool is None:
            # Not forked: this process has threads and models.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(1, mp_context=context, initializer=os.nice, initargs=(10,))
            self._pid = self._pool.submit(os.getpid)
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work, *given)
        except BrokenExecutor:
            self._pool = None
            raise Overloaded("the process that runs recordings ended; try again") from None
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        """Give up what runs."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        if self._pid is not None and self._pid.done():
            with contextlib.suppress(BrokenExecutor, ProcessLookupError):
                os.kill(self._pid.result(), signal.SIGTERM)
        await asyncio.to_thread(pool.shutdown, True, cancel_futures=True)


def check(set_: Sequence[str], drop: Sequence[str], shift: Sequence[str]) -> None:
    """Raises AlterationError for what cannot be altered so."""
    if Alterations.parse(set_, drop, shift).none:
        raise AlterationError("nothing is to be otherwise; give 'set', 'drop' or 'shift'")


def altered(folder: Path, set_: Sequence[str], drop: Sequence[str], shift: Sequence[str]) -> dict[str, Plain]:
    """How the session in `folder` would have gone (docs/recordings-api.md). Raises JournalError, AlterationError."""
    result = what_if(folder, Alterations.parse(set_, drop, shift))
    limits: list[Plain] = list(result.limits)
    return {"same": result.same, "text": str(result), "limits": limits, "marks": marks_of(result.steps)}


def explained(folder: Path) -> str:
    """What happened in the session in `folder`, in words. Raises JournalError."""
    recording = Recording(folder)
    try:
        return explain(account(recording.manifest.config, recording.steps([])))
    finally:
        recording.close()
