"""Telephone calls over TCP: a line that is a stream of bytes, and the server that takes such lines."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Final, cast

from .phone import Line
from .phone_line import GONE, Message

log = logging.getLogger(__name__)

LINES_MOST: Final = 1000
"""Connections at a time."""


class TcpLine(asyncio.Protocol):
    """One connection; a `Line`."""

    def __init__(self, connected: Callable[[TcpLine], None]) -> None:
        self._connected = connected
        self._deliver: Callable[[Message], bool] | None = None
        self._early: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._room = asyncio.Event()
        self._room.set()
        self._over: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    # --- asyncio.Protocol --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A peer connected."""
        # uvloop's transports are not of asyncio's class, but have its methods.
        self._transport = stream = cast("asyncio.Transport", transport)
        # Like the WebSockets' wire: nothing gathers in user space.
        stream.set_write_buffer_limits(high=0)
        sock = stream.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connected(self)

    def data_received(self, data: bytes) -> None:
        """Bytes of the stream, cut anywhere."""
        if self._deliver is None:
            self._early.append(data)
        elif not self._deliver(data) and self._transport is not None:
            self._transport.pause_reading()

    def connection_lost(self, error: Exception | None) -> None:
        """It is over."""
        self._room.set()
        if not self._over.done():
            self._over.set_result("client_closed" if error is None else GONE)

    def pause_writing(self) -> None:
        """The kernel takes no more."""
        self._room.clear()

    def resume_writing(self) -> None:
        """It does again."""
        self._room.set()

    # --- Line --------------------------------------------------------------------------------------------------------

    @property
    def peer(self) -> str:
        """The address of the other end."""
        name = None if self._transport is None else self._transport.get_extra_info("peername")
        return str(name[0]) if name else ""

    def take(self, deliver: Callable[[Message], bool]) -> None:
        """Hand over all bytes from here on, those that wait already first."""
        self._deliver = deliver
        early, self._early = self._early, []
        for data in early:
            deliver(data)

    def resume(self) -> None:
        """Read on."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def has_room(self) -> bool:
        """Whether bytes would go to the kernel at once."""
        return self._room.is_set()

    async def room(self) -> None:
        """Wait for `has_room`."""
        await self._room.wait()

    def send(self, *messages: Message) -> None:
        """Write at once."""
        if messages and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(part if isinstance(part, bytes) else part.encode() for part in messages))

    def unsent(self) -> int:
        """Bytes that the kernel has not taken."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    async def ended(self) -> str:
        """Wait until the connection is over; why."""
        return await asyncio.shield(self._over)

    async def close(self, code: int, reason: str) -> None:
        """Close once what was written is out."""
        if self._transport is not None:
            self._transport.close()

    def fail(self, code: int, reason: str) -> None:
        """The same: there is no message to say why."""
        if self._transport is not None:
            self._transport.close()


class AudioSocketServer:
    """Takes AudioSocket's connections; each is carried by `serve` in a task of its own."""

    def __init__(self, serve: Callable[[Line], Awaitable[None]]) -> None:
        self._serve = serve
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        """Where it listens, once it does."""

    async def open(self, host: str, port: int) -> None:
        """Listen. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: TcpLine(self._connected), host, port)
        self.port = int(self._server.sockets[0].getsockname()[1])

    def _connected(self, line: TcpLine) -> None:
        if len(self._tasks) >= LINES_MOST:
            line.fail(1013, "too many connections")
            return
        task = asyncio.get_running_loop().create_task(self._carry(line), name="audiosocket")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, line: TcpLine) -> None:
        try:
            await self._serve(line)
        except Exception:
            log.exception("a call by AudioSocket failed")
        finally:
            line.fail(1000, "over")

    async def close(self) -> None:
        """Listen no more, and wait for the calls that are there."""
        if self._server is not None:
            self._server.close()
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
