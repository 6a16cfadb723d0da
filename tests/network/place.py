"""A server and a client with a network between them that is as bad as one says."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

import httpx

from server.carriers.webrtc import seam
from tests.caller import Caller, Json
from tests.servers import Engine, ServerProcess

from .emulator import Conditions, Counted, Emulator
from .namespaces import Namespace, sweep

_COUNTER: Final = re.compile(r'^talkover_events_total\{event="(\w+)"\} (\d+)$', re.MULTILINE)

Result = TypeVar("Result")

SERVER: Final = "10.77.0.1"
CLIENT: Final = "10.77.0.2"
MOVED: Final = "10.77.0.3"
"""The client's second address."""


class FarServer(ServerProcess):
    """`talkover serve` in a namespace, at SERVER."""

    def __init__(
        self, namespace: Namespace, engine: Engine, script: Path | str | None, arguments: Sequence[str]
    ) -> None:
        # The last of two equal options counts.
        beyond = ["--host", SERVER, "--insecure-no-auth", *arguments]
        super().__init__(engine, script, arguments=beyond)
        self._namespace = namespace

    @property
    def address(self) -> str:
        """Where it is reached, without a path."""
        return f"http://{SERVER}:{self.port}"

    def start(self) -> ServerProcess:
        return self._namespace.run(super().start)

    def _http(self, timeout: float) -> httpx.Client:
        return httpx.Client(base_url=self.address, timeout=timeout, trust_env=False)


class FarCaller(Caller):
    """A caller that has one address, and remembers when it sent what. `sent`: on the loop's clock, for each packet."""

    def __init__(self, address: str = CLIENT, *, playback: bool = True) -> None:
        super().__init__(playback=playback)
        self._address = address
        self.sent: list[float] = []

    @contextlib.asynccontextmanager
    async def microphone(self) -> AsyncIterator[None]:
        """Inside, silence is sent in real time, and a receiver's report once a second, as a browser does."""
        task = asyncio.create_task(self._room(), name="microphone")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _room(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            for _ in range(50):
                self.send_sound(bytes(640))
                due += 0.02
                await asyncio.sleep(due - loop.time())
            self.media.report(self._timestamp)

    def send_packet(self, payload: bytes) -> None:
        self.sent.append(asyncio.get_running_loop().time())
        super().send_packet(payload)

    async def offer(self) -> str:
        with seam.local_addresses([self._address]):
            await self.connection.setLocalDescription(await self.connection.createOffer())
        return self.connection.localDescription.sdp


class Place:
    """Three namespaces, a path between them, and a server at one end. A context manager; nothing remains after it."""

    def __init__(
        self,
        engine: Engine = "scripted",
        script: Path | str | None = None,
        arguments: Sequence[str] = (),
        seed: int = 1,
    ) -> None:
        self._engine = engine
        self._script = script
        self._arguments = arguments
        self._seed = seed
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        sweep()
        with contextlib.ExitStack() as stack:
            middle = stack.enter_context(Namespace("middle"))
            self._client = stack.enter_context(Namespace("client"))
            far = stack.enter_context(Namespace("server"))
            self._client.join("near", middle, "left")
            far.join("near", middle, "right")
            self._client.ip("address", "add", f"{CLIENT}/24", "dev", "near")
            far.ip("address", "add", f"{SERVER}/24", "dev", "near")
            self._emulator = stack.enter_context(Emulator(middle, "left", "right", self._seed))
            self.server = FarServer(far, self._engine, self._script, self._arguments)
            stack.enter_context(self.server)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def client(self, work: Callable[[], Coroutine[object, object, Result]]) -> Result:
        """Run a coroutine at the client's end, on an event loop of its own."""

        def enter() -> Result:
            # The user at the other end does not share this machine, and is little work.
            _prefer(0)
            return asyncio.run(work())

        return self._client.run(enter)

    def prefer_server(self) -> None:
        """Let the server's event loop, and nothing else of it, go before other processes: what is measured is then the
        way and not the machine. To be used where the loop has little work."""
        _prefer(self.server.pid)

    def conditions(self, up: Conditions | None = None, down: Conditions | None = None) -> dict[str, Counted]:
        """As Emulator.set: "up" is from the client to the server."""
        return self._emulator.set(up, down)

    def both(self, conditions: Conditions) -> dict[str, Counted]:
        """The same conditions both ways."""
        return self.conditions(conditions, conditions)

    def move(self) -> None:
        """The client loses the address CLIENT and gets MOVED."""
        # In this order: with the first address of a subnet the kernel removes the others.
        self._client.ip("address", "del", f"{CLIENT}/24", "dev", "near")
        self._client.ip("address", "add", f"{MOVED}/24", "dev", "near")

    def http(self) -> httpx.AsyncClient:
        """To the server; to be used at the client's end."""
        return httpx.AsyncClient(base_url=self.server.address, trust_env=False, timeout=30)

    async def call(self, caller: FarCaller, session: Json) -> FarCaller:
        """`caller`'s call to the server. Raises CallRefused."""
        async with self.http() as http:
            return await caller.call(http, session)

    async def counters(self) -> dict[str, int]:
        """What the server has counted, by name; what never happened is 0."""
        async with self.http() as http:
            text = (await http.get("/metrics")).text
        found = _COUNTER.findall(text)
        return defaultdict(int, {name: int(count) for name, count in found})

    async def hang_up(self, caller: FarCaller) -> None:
        """End the session of a call."""
        async with self.http() as http:
            await http.post(f"/v1/realtime/calls/{caller.call_id}/hangup")


def _prefer(thread: int) -> None:
    """Have the kernel run a thread (0: the calling one) before the ordinary ones, where it lets us."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(thread, os.SCHED_RR, os.sched_param(1))
