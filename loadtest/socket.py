"""A WebSocket client whose messages are sent without waiting, so that one timer can speak for many callers.

The protocol is that of the library `websockets`, without its asyncio connection: no task and no queue per session.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from urllib.parse import urlsplit

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.uri import parse_uri

CONNECT_WITHIN = 60.0
GOODBYE_WITHIN = 5.0


class Refused(ConnectionError):
    """The server did not take the connection."""


class Socket(asyncio.Protocol):
    """One connection. `take` gets each text message, `lost` is called once when it is over."""

    def __init__(self, url: str, take: Callable[[str], None], lost: Callable[[], None] = lambda: None) -> None:
        self._url = url
        self._take = take
        self._lost = lost
        self._protocol = ClientProtocol(parse_uri(url), max_size=None)
        self._transport: asyncio.Transport | None = None
        self._open: asyncio.Future[None] | None = None
        self._fragments = b""
        self._gone = asyncio.Event()

    async def connect(self) -> None:
        """Raises `Refused` where the server says no, OSError where none answers."""
        loop = asyncio.get_running_loop()
        self._open = loop.create_future()
        parts = urlsplit(self._url)
        await loop.create_connection(lambda: self, parts.hostname or "127.0.0.1", parts.port or 80)
        async with asyncio.timeout(CONNECT_WITHIN):
            await self._open

    def send(self, text: str | bytes) -> None:
        """Send a text message; nothing happens where the connection is over."""
        if self._transport is None or self._transport.is_closing() or self._protocol.state is not State.OPEN:
            return
        self._protocol.send_text(text.encode() if isinstance(text, str) else text)
        self._transport.writelines(self._protocol.data_to_send())

    def pause(self) -> None:
        """Read nothing until `resume`, as a client that hangs."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    async def close(self) -> None:
        """Say goodbye and read on until the server has gone: who hangs up with something unread resets the connection,
        and what was sent last may never arrive."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._open is not None and self._open.done():
            transport.resume_reading()
            self._protocol.send_close(1000)
            transport.writelines(self._protocol.data_to_send())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GOODBYE_WITHIN):
                    await self._gone.wait()
        transport.abort()

    # --- asyncio's side ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._protocol.send_request(self._protocol.connect())
        transport.writelines(self._protocol.data_to_send())

    def data_received(self, data: bytes) -> None:
        self._protocol.receive_data(data)
        for event in self._protocol.events_received():
            if isinstance(event, Frame):
                self._framed(event)
            elif isinstance(event, Response):
                self._answered(event)
        transport = self._transport
        waiting = [part for part in self._protocol.data_to_send() if part]
        if transport is not None and waiting and not transport.is_closing():
            transport.writelines(waiting)

    def _answered(self, response: Response) -> None:
        if self._open is None or self._open.done():
            return
        if self._protocol.handshake_exc is None:
            self._open.set_result(None)
        else:
            body = (response.body or b"")[:200].decode(errors="replace")
            self._open.set_exception(Refused(f"{response.status_code} {body}"))

    def _framed(self, frame: Frame) -> None:
        if frame.opcode is Opcode.CLOSE:
            self._gone.set()
        elif frame.opcode is Opcode.TEXT and frame.fin:
            self._take(bytes(frame.data).decode())
        elif frame.opcode in (Opcode.TEXT, Opcode.CONT):
            self._fragments += bytes(frame.data)
            if frame.fin:
                whole, self._fragments = self._fragments, b""
                self._take(whole.decode())

    def connection_lost(self, error: Exception | None) -> None:
        if self._open is not None and not self._open.done():
            self._open.set_exception(error or Refused("the connection ended before it was open"))
        self._gone.set()
        self._lost()
