"""Sessions of a load: a person at a line, paced by one clock for all."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable

from loadtest.lines import Line
from loadtest.person import Memory, Person
from loadtest.sessions import Tally
from loadtest.voice import FRAME_S
from server.carriers.webrtc.pacer import Pacer


class Talker:
    """One person at one line from beginning to end."""

    def __init__(self, line: Callable[[], Line], person: Callable[[], Person], pacer: Pacer, seed: int = 0) -> None:
        """`line` and `person` make new ones, for those that come again; `seed` says when they leave."""
        self.tally = Tally()
        self._chance = random.Random(seed)
        self.memories: list[Memory] = []
        self.connect_s: list[float] = []
        self._new_line = line
        self._new_person = person
        self._pacer = pacer
        self._loop = asyncio.get_running_loop()

    async def run(self, began: asyncio.Event, until: asyncio.Event) -> None:
        """Connect, and talk from `began` until `until`."""
        await self._connect()
        self.tally.connected.set()
        try:
            await began.wait()
            await self._talk(until)
        finally:
            await self._hang_up()

    async def _connect(self) -> None:
        self._line, self._person = self._new_line(), self._new_person()
        self.memories.append(self._person.memory)
        before = self._loop.time()
        await self._line.connect(self)
        self.connect_s.append(self._loop.time() - before)

    async def _talk(self, until: asyncio.Event) -> None:
        self._pacer.add(self)
        await until.wait()

    async def _hang_up(self) -> None:
        self._pacer.remove(self)
        await self._line.close()

    def tick(self, due: int, missed: int) -> None:
        """The pacer's: `due` frames have been captured, `missed` more never were."""
        self.tally.late_sends += missed + due - 1
        now = self._loop.time()
        for one in range(due - 1, -1, -1):
            self._line.send(self._person.frame(now - one * FRAME_S))

    # --- the line's listener -----------------------------------------------------------------------------------------

    def piece(self, at: float, payload: str | bytes, seconds: float) -> None:
        """The agent speaks."""
        self.tally.frames += 1
        self._person.piece(at, payload, seconds)

    def cleared(self, at: float) -> None:
        """The agent has fallen silent."""
        self._person.cleared(at)

    def failed(self, at: float, reason: str) -> None:
        """Something went wrong."""
        self._person.failed(at, reason)


class Comer(Talker):
    """Comes and goes: asks one thing, hears the answer begin, hangs up, and is somebody else."""

    async def _talk(self, until: asyncio.Event) -> None:
        ended = asyncio.create_task(until.wait())
        try:
            while not until.is_set():
                self._pacer.add(self)
                await asyncio.wait([ended], timeout=self._chance.uniform(3.0, 8.0))
                await self._hang_up()
                if not until.is_set():
                    await self._connect()
        finally:
            ended.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await ended


class SlowReader(Talker):
    """Stops reading for a while, again and again, as a client on a train or one that hangs."""

    async def _talk(self, until: asyncio.Event) -> None:
        self._pacer.add(self)
        ended = asyncio.create_task(until.wait())
        stalled = False
        try:
            while not until.is_set():
                await asyncio.wait([ended], timeout=4.0)
                stalled = not stalled
                self._line.stall(stalled)
        finally:
            ended.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await ended
