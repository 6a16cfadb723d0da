"""A sideband: a WebSocket that sees every event of a call and gives commands to it (`?call_id=`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from starlette.responses import JSONResponse
from starlette.websockets import WebSocket, WebSocketDisconnect

from sessions.handle import SessionHandle

from . import http
from .auth import SUBPROTOCOL

WAITING_MOST: Final = 1000
"""Events that may wait for a sideband that does not read, before it is given up."""


WATCHERS_MOST: Final = 8
"""Sidebands of one call."""


class Watched(Protocol):
    """What a sideband needs of the carrier of its call."""

    def greet(self, session: str) -> list[str]: ...

    def listen(self, listener: Callable[[str], None], /) -> Callable[[], None]: ...

    def receive(self, message: str | bytes, /) -> None: ...


class WatchedCall(Protocol):
    """What a sideband needs of its call. `watchers`: how many there are."""

    id: str
    handle: SessionHandle
    watchers: int

    @property
    def carrier(self) -> Watched: ...


async def watch(socket: WebSocket, call_id: str, call: WatchedCall | None) -> None:
    """Serve one: every event of `call`, and commands to it. None: there is no call `call_id` for this client."""
    if call is None:
        await socket.send_denial_response(no_call(call_id))
        return
    if call.watchers >= WATCHERS_MOST:
        message = f"{WATCHERS_MOST} sidebands are open on this call, no more are taken; close one of them"
        await socket.send_denial_response(http.error(429, "too_many_sidebands", message))
        return
    call.watchers += 1
    try:
        await Sideband(socket, call.id, call.carrier, call.handle).run()
    finally:
        call.watchers -= 1


def no_call(call_id: str) -> JSONResponse:
    """The answer where there is no such call."""
    return http.error(404, "call_not_found", f"there is no call {call_id[:80]!r} any more", param="call_id")


class Sideband:
    """One connection to the call `name`, carried by `carrier`."""

    def __init__(self, socket: WebSocket, name: str, carrier: Watched, handle: SessionHandle) -> None:
        self._socket = socket
        self._name = name
        self._carrier = carrier
        self._handle = handle
        self._queue: asyncio.Queue[str | None] = asyncio.Queue(WAITING_MOST)
        self._over = False

    async def run(self) -> None:
        """Until either side ends."""
        offered = self._socket.scope.get("subprotocols", [])
        await self._socket.accept(subprotocol=SUBPROTOCOL if SUBPROTOCOL in offered else None)
        for message in self._carrier.greet(self._handle.session):
            self._queue.put_nowait(message)
        stop = self._carrier.listen(self._take)
        tasks = [
            asyncio.create_task(work, name=f"{self._name}-{name}")
            for name, work in (("writes", self._write()), ("reads", self._read()))
        ]
        parting = asyncio.create_task(self._part(), name=f"{self._name}-parts")
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop()
            for task in (*tasks, parting):
                task.cancel()
            await asyncio.gather(*tasks, parting, return_exceptions=True)

    def _take(self, message: str) -> None:
        if self._queue.full():
            # It does not read. What it missed cannot be made up for, so it is told to come again.
            self._end_queue()
        else:
            self._queue.put_nowait(message)

    def _end_queue(self) -> None:
        if self._queue.full():
            self._queue.get_nowait()
        self._queue.put_nowait(None)

    async def _read(self) -> None:
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            text = message.get("text")
            self._carrier.receive(message["bytes"] if text is None else text)

    async def _write(self) -> None:
        try:
            while (message := await self._queue.get()) is not None:
                await self._socket.send_text(message)
            if self._over:
                await self._socket.close(1000, "the call is over")
            else:
                await self._socket.close(1013, "slow_consumer: the peer did not read; connect again and keep reading")
        except (WebSocketDisconnect, RuntimeError):
            return

    async def _part(self) -> None:
        await self._handle.parted()
        self._over = True
        self._end_queue()
