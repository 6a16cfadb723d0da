"""Running a load, and what it costs the server."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from loadtest.server_cpu import Cpu, cpu
from loadtest.sessions import Tally

CONNECT_WITHIN = 120.0
"""Seconds that all sessions together have to connect."""
SETTLE = 3.0
"""Seconds from the first frame until the load is even."""


class LoadOf(Protocol):
    """One session of a load."""

    tally: Tally

    async def run(self, began: asyncio.Event, until: asyncio.Event) -> None:
        """Connect, and talk from `began` until `until`."""


@dataclass(frozen=True, slots=True)
class Used:
    """What `seconds` of load took. `cpu`: of the server; `frames`: that came from it."""

    seconds: float
    cpu: Cpu
    frames: int

    def per_session(self, sessions: int) -> float:
        """CPU in ms per second and session."""
        return self.cpu.total / self.seconds / sessions * 1000

    @property
    def per_frame(self) -> float:
        """CPU in µs for each frame that came, the one that went the other way included.

        Where this process or the server gets too little of the processor, fewer frames come, and this still holds.
        """
        return self.cpu.total / max(1, self.frames) * 1e6


@contextlib.asynccontextmanager
async def talking(running: Sequence[LoadOf]) -> AsyncIterator[list[BaseException]]:
    """All of `running` talk inside the block; afterwards the list has what went wrong.

    Raises TimeoutError where they are not all connected within `CONNECT_WITHIN`, and whatever kept one from it.
    """
    began, until = asyncio.Event(), asyncio.Event()
    tasks = [asyncio.create_task(one.run(began, until)) for one in running]
    failed: list[BaseException] = []
    await _all_connected(running, tasks)
    # A collection would hold up everything that this process sends, and count as a gap of the server.
    gc.collect()
    gc.freeze()
    began.set()
    await asyncio.sleep(SETTLE)
    for one in running:
        one.tally.gap = 0.0
    try:
        yield failed
    finally:
        until.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        failed += [result for result in results if result is not None]


async def measure(running: Sequence[LoadOf], pid: int, seconds: float) -> Used:
    """What the process `pid` uses in so many seconds of this load."""
    frames, before = sum(one.tally.frames for one in running), cpu(pid)
    await asyncio.sleep(seconds)
    return Used(seconds, cpu(pid) - before, sum(one.tally.frames for one in running) - frames)


async def _all_connected(running: Sequence[LoadOf], tasks: Sequence[asyncio.Task[None]]) -> None:
    async def everyone() -> None:
        for one in running:
            await one.tally.connected.wait()

    all_of_them = asyncio.create_task(everyone())
    await asyncio.wait([all_of_them, *tasks], timeout=CONNECT_WITHIN, return_when=asyncio.FIRST_COMPLETED)
    if all_of_them.done():
        return
    for task in (all_of_them, *tasks):
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    failures = [one for one in results if isinstance(one, Exception)]
    raise failures[0] if failures else TimeoutError(f"not all of {len(tasks)} sessions connected in {CONNECT_WITHIN} s")
