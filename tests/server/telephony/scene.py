"""A call on a virtual clock: manager, core, carrier and dialect are real; line, far end and models are played."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from codec.pcm import Samples
from server.carriers.phone import PhoneCarrier
from server.carriers.webrtc.pacer import Pacer
from server.dialects.telephony.base import Message
from server.dialects.telephony.vendors import VENDORS
from server.phone_peers import FRAME_MS, Clear, Happened, Playout, Sound, VendorPeer
from sessions.core.config import SessionConfig
from sessions.core.timeline import Ticks, from_ms
from sessions.handle import SessionHandle
from sessions.manager import SessionManager
from tests.sessions.fakes import CountingEngine, LoudnessPerception

LOUD = 8000


class Ear(LoudnessPerception):
    """Speech is what is loud: codecs do not leave silence as it was."""

    def feed(self, session: str, start: Ticks, pcm: bytes, rate: int) -> None:
        samples = np.frombuffer(pcm, "<i2")
        loud = bool(len(samples)) and int(np.abs(samples.astype(np.int32)).max()) > LOUD // 4
        super().feed(session, start, (b"\1" if loud else b"\0") * len(pcm), rate)


class PlayedLine:
    """A `Line` whose other end is a vendor's peer, `delay` seconds away in each direction."""

    peer = "192.0.2.1"

    def __init__(self, peer: VendorPeer, delay: float = 0.0) -> None:
        self.vendor = peer
        self.delay = delay
        self.playout = Playout(peer.rate)
        self.sent: list[tuple[float, Message]] = []
        self.happened: list[tuple[float, Happened]] = []
        self.closed: list[tuple[int, str]] = []
        self.free = asyncio.Event()
        self.free.set()
        self.left = 0
        self._there: deque[Message] = deque()
        self._back: deque[Message] = deque()
        self.deaf = False
        """Nothing is written down any more: the scene is over."""
        self._over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._deliver: Callable[[Message], bool] | None = None

    def take(self, deliver: Callable[[Message], bool]) -> None:
        self._deliver = deliver

    def resume(self) -> None: ...

    def has_room(self) -> bool:
        return self.free.is_set()

    async def room(self) -> None:
        await self.free.wait()

    def send(self, *messages: Message) -> None:
        loop = asyncio.get_running_loop()
        for message in messages:
            self.sent.append((loop.time(), message))
            # Timers that are due together fire in no order, so each takes what is oldest.
            self._there.append(message)
            loop.call_later(self.delay, self._arrive)

    def _arrive(self) -> None:
        message = self._there.popleft()
        if self.deaf:
            return
        for happened in self.vendor.take(message):
            self.happened.append((asyncio.get_running_loop().time(), happened))
            for reply in self.playout.take(happened):
                self.give(reply)

    def give(self, message: Message) -> None:
        """The vendor sends `message`."""
        self._back.append(message)
        asyncio.get_running_loop().call_later(self.delay, self._given)

    def _given(self) -> None:
        message = self._back.popleft()
        if self._deliver is not None and not self._over.done():
            self._deliver(message)

    def unsent(self) -> int:
        return self.left

    async def ended(self) -> str:
        return await asyncio.shield(self._over)

    async def close(self, code: int, reason: str) -> None:
        self.closed.append((code, reason))

    def fail(self, code: int, reason: str) -> None:
        self.closed.append((code, reason))
        self.lose()

    def lose(self) -> None:
        if not self._over.done():
            self._over.set_result("connection_lost")


@dataclass
class Scene:
    """One call: `say` and `quiet` move time."""

    peer: VendorPeer
    config: SessionConfig = field(
        default_factory=lambda: SessionConfig(lead=from_ms(200), frame=from_ms(20), greet_after_ms=0)
    )
    delay: float = 0.0
    engine: CountingEngine = field(default_factory=lambda: CountingEngine(seconds=6.0, delay=0.05))
    ear: LoudnessPerception = field(default_factory=Ear)
    said: list[float] = field(default_factory=list)

    async def __aenter__(self) -> Scene:
        self.loop = asyncio.get_running_loop()
        self.manager = SessionManager(self.engine, self.ear)
        self.line = PlayedLine(self.peer, self.delay)
        dialect = VENDORS[self.peer.vendor]()
        if "?" in self.peer.path:
            dialect.addressed(dict(pair.split("=") for pair in self.peer.path.partition("?")[2].split("&")))
        self.carrier = PhoneCarrier(
            self.line, dialect, self.manager.counters, Pacer() if dialect.needs_pacing else None
        )
        starting = asyncio.create_task(self.carrier.start())
        await asyncio.sleep(0)
        for message in self.peer.begin():
            self.line.give(message)
        if dialect.needs_pacing:
            self.line.give(self.peer.speak(np.zeros(self.peer.rate // 50, np.int16)))
        await starting
        self.handle: SessionHandle = self.manager.open(self.carrier, self.config)
        self.running = asyncio.create_task(self.carrier.run(self.handle))
        return self

    async def __aexit__(self, *_: Any) -> None:
        self.line.deaf = True
        await self.manager.close()
        self.line.lose()
        await self.running

    async def _speak(self, seconds: float, loud: bool) -> None:
        size = self.peer.rate * FRAME_MS // 1000
        t = np.arange(size) / self.peer.rate
        frame = np.round(LOUD * np.sin(2 * np.pi * 300 * t) * loud).astype(np.int16)
        await self.sound(np.tile(frame, round(seconds * 1000 / FRAME_MS)))

    async def sound(self, pcm: Samples) -> None:
        """The caller's side sounds like `pcm`, int16 at the peer's rate, in real time."""
        size = self.peer.rate * FRAME_MS // 1000
        for at in range(0, len(pcm) - size + 1, size):
            self.line.give(self.peer.speak(pcm[at : at + size]))
            _, replies = self.playout.tick()
            for reply in replies:
                self.line.give(reply)
            await asyncio.sleep(FRAME_MS / 1000)

    @property
    def playout(self) -> Playout:
        return self.line.playout

    async def quiet(self, seconds: float) -> None:
        await self._speak(seconds, False)

    async def say(self, seconds: float) -> None:
        self.said.append(self.loop.time())
        await self._speak(seconds, True)

    def sounds(self) -> list[tuple[float, Sound]]:
        return [(at, one) for at, one in self.line.happened if isinstance(one, Sound)]

    def clears(self) -> list[float]:
        return [at for at, one in self.line.happened if isinstance(one, Clear)]

    def count(self, name: str) -> int:
        return self.manager.counters.snapshot().get(name, 0)
