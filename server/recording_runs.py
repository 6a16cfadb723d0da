"""What takes a processor for a while: recordings that are run otherwise, or told step by step.

It is done in a process of its own, below all else, so that the conversations of this one do not wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import os
import resource
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar, cast

from sessions.core.records import Plain
from sessions.core.timeline import TICK_RATE, Ticks
from sessions.recording.format import JournalError
from sessions.replay.account import account
from sessions.replay.alterations import AlterationError, Alterations
from sessions.replay.explain import explain
from sessions.replay.reader import Recording
from sessions.replay.view import marks_of
from sessions.replay.what_if import what_if

T = TypeVar("T")

log = logging.getLogger(__name__)

LONGEST: Final[Ticks] = 4 * 3600 * TICK_RATE
"""A longer session is run otherwise on the command line."""
WAITING_MOST: Final = 4
PATIENCE: Final = 15.0
"""Seconds that a request waits for a run; proxies give up on those that wait for a minute."""
MEMORY: Final = 4 << 30
"""Bytes of memory for it."""
UNALTERED: Final = ("vad", "arrived", "speech")
"""Marks of the user's side, which are those of the recording; of hours they are megabytes."""
UNCLAIMED_MOST: Final = 4
"""Results that nobody has come back for."""


class Overloaded(Exception):
    """So many runs wait that no more are taken."""


class StillRunning(Exception):
    """It is not finished, `seconds` after it was asked for."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"running for {seconds:.1f} s")
        self.seconds = seconds


@dataclass(frozen=True, slots=True)
class _Run:
    began: float
    result: asyncio.Task[object]


class Runs:
    """Runs one after the other. Methods are called on the event loop."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._pool: ProcessPoolExecutor | None = None
        self._pid: Future[int] | None = None
        self._runs: dict[tuple[object, ...], _Run] = {}

    async def run(self, work: Callable[..., T], folder: Path, *given: object) -> T:
        """`work` of `folder` and `given` in the process, or the rest of that run where it was begun before.

        Raises what `work` raises, Overloaded, and StillRunning after the patience: to be asked for again then.
        """
        key = (work, folder, *map(str, given))
        run = self._runs.get(key)
        if run is None:
            if sum(not one.result.done() for one in self._runs.values()) >= WAITING_MOST:
                raise Overloaded("other recordings are being run otherwise; try again soon")
            run = _Run(_now(), asyncio.create_task(self._done(work, folder, *given), name="recording-run"))
            # One that fails after everybody has left is nobody's fault.
            run.result.add_done_callback(lambda task: task.cancelled() or task.exception())
            self._runs[key] = run
            unclaimed = [one for one, known in self._runs.items() if known.result.done()]
            for one in unclaimed[: max(0, len(unclaimed) - UNCLAIMED_MOST)]:
                del self._runs[one]
        await asyncio.wait([run.result], timeout=self._patience)
        if not run.result.done():
            raise StillRunning(_now() - run.began)
        self._runs.pop(key, None)
        return cast(T, run.result.result())

    async def _done(self, work: Callable[..., T], folder: Path, *given: object) -> T:
        if self._pool is None:
            # Not forked: this process has threads and models.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(1, mp_context=context, initializer=_below)
            self._pid = self._pool.submit(os.getpid)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work, folder, *given)
        except BrokenExecutor:
            self._pool = None
            raise Overloaded("the process that runs recordings ended; try again") from None
        except (JournalError, AlterationError):
            raise
        except MemoryError:
            raise JournalError(
                f"{folder} does not fit into {MEMORY >> 30} GB of memory; use `talkover` there"
            ) from None
        except Exception as error:
            # What the core never wrote it need not understand.
            log.exception("the recording %s could not be run", folder.name)
            raise JournalError(f"{folder} is damaged: its events are not those of a session ({error!r})") from None

    async def close(self) -> None:
        """Give up what runs."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        if self._pid is not None:
            # It is not there yet where it was just begun.
            with contextlib.suppress(BrokenExecutor, ProcessLookupError):
                os.kill(await asyncio.wrap_future(self._pid), signal.SIGTERM)
        await asyncio.to_thread(pool.shutdown, True, cancel_futures=True)
        await asyncio.gather(*(run.result for run in self._runs.values()), return_exceptions=True)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _below() -> None:
    """Conversations come first: what runs here gets what they leave, and no more memory than is its due."""
    os.nice(10)
    if hasattr(resource, "RLIMIT_DATA"):
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))


def check(set_: Sequence[str], drop: Sequence[str], shift: Sequence[str]) -> None:
    """Raises AlterationError for what cannot be altered so."""
    if Alterations.parse(set_, drop, shift).none:
        raise AlterationError("nothing is to be otherwise; give 'set', 'drop' or 'shift'")


def altered(folder: Path, set_: Sequence[str], drop: Sequence[str], shift: Sequence[str]) -> dict[str, Plain]:
    """How the session in `folder` would have gone (docs/recordings-api.md). Raises JournalError, AlterationError."""
    result = what_if(folder, Alterations.parse(set_, drop, shift))
    limits: list[Plain] = list(result.limits)
    marks = {name: value for name, value in marks_of(result.steps).items() if name not in UNALTERED}
    return {"same": result.same, "text": str(result), "limits": limits, "marks": marks}


def explained(folder: Path) -> str:
    """What happened in the session in `folder`, in words. Raises JournalError."""
    recording = Recording(folder)
    try:
        return explain(account(recording.manifest.config, recording.steps([])))
    finally:
        recording.close()
