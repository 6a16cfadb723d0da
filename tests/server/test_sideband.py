"""A sideband alone: socket, carrier and session are played. Over real connections it is tested with the calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from server import sideband as module
from server.sideband import Sideband


class Socket:
    """Takes messages only while `reads` is set."""

    def __init__(self) -> None:
        self.scope: dict[str, Any] = {"subprotocols": ["realtime"]}
        self.accepted: str | None = None
        self.sent: list[str] = []
        self.closed: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()
        self.reads = asyncio.Event()
        self.incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def accept(self, subprotocol: str | None = None) -> None:
        self.accepted = subprotocol

    async def send_text(self, text: str) -> None:
        await self.reads.wait()
        self.sent.append(text)

    async def receive(self) -> dict[str, Any]:
        return await self.incoming.get()

    async def close(self, code: int, reason: str) -> None:
        self.closed.set_result((code, reason))


class Carrier:
    def __init__(self) -> None:
        self.listeners: list[Callable[[str], None]] = []
        self.received: list[str | bytes] = []
        self.listened = asyncio.Event()

    def greet(self, session: str) -> list[str]:
        return [f"hello {session}"]

    def listen(self, listener: Callable[[str], None]) -> Callable[[], None]:
        self.listeners.append(listener)
        self.listened.set()
        return lambda: self.listeners.remove(listener)

    def receive(self, message: str | bytes) -> None:
        self.received.append(message)


class Handle:
    session = "sess_1"

    def __init__(self) -> None:
        self.over = asyncio.Event()

    async def parted(self) -> None:
        await self.over.wait()


class Stage:
    def __init__(self) -> None:
        self.socket, self.carrier, self.handle = Socket(), Carrier(), Handle()
        one = Sideband(cast("Any", self.socket), "rtc_1", cast("Any", self.carrier), cast("Any", self.handle))
        self.running = asyncio.create_task(one.run())

    async def listening(self) -> Callable[[str], None]:
        """The way of an event to it, once it listens."""
        async with asyncio.timeout(10):
            await self.carrier.listened.wait()
        return self.carrier.listeners[0]


async def test_it_is_greeted_and_sees_what_is_said_until_the_call_is_over() -> None:
    stage = Stage()
    say = await stage.listening()
    stage.socket.reads.set()
    say("event")
    stage.handle.over.set()
    await stage.running
    assert stage.socket.accepted == "realtime"
    assert stage.socket.sent == ["hello sess_1", "event"]
    assert (await stage.socket.closed)[0] == 1000
    assert stage.carrier.listeners == []


async def test_its_commands_reach_the_call_and_it_may_leave_alone() -> None:
    stage = Stage()
    await stage.listening()
    await stage.socket.incoming.put({"type": "websocket.receive", "text": "command"})
    await stage.socket.incoming.put({"type": "websocket.receive", "bytes": b"x"})
    await stage.socket.incoming.put({"type": "websocket.disconnect", "code": 1000})
    await stage.running
    assert stage.carrier.received == ["command", b"x"]
    assert stage.carrier.listeners == []
    assert not stage.socket.closed.done()


async def test_one_that_does_not_read_is_given_up_and_costs_no_more_than_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "WAITING_MOST", 5)
    stage = Stage()
    say = await stage.listening()
    for number in range(1000):
        say(f"event {number}")
    stage.socket.reads.set()
    await stage.running
    code, reason = await stage.socket.closed
    assert code == 1013
    assert "slow_consumer" in reason
    assert len(stage.socket.sent) <= 6
