"""uvicorn's sans-I/O WebSocket protocol, with little room for unsent bytes and a way to see them.

Stock uvicorn waits for a drained transport before a send, not after, and lets 64 KiB gather in user space and the
kernel as much as it likes. An interruption cannot take those bytes back. Here nothing gathers in user space beyond one
write, the kernel takes new bytes only while few are unsent (`TCP_NOTSENT_LOWAT`), and the protocol object itself is
put into the ASGI scope, so that a carrier can wait for room first and decide afterwards what to send.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from asyncio.transports import BaseTransport
from collections.abc import Callable
from typing import Final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode
from websockets.protocol import State

from .websocket_frames import FrameEdges, plain_text

if sys.platform != "win32":
    import fcntl
    import termios

EXTENSION: Final = "talkover.wire"
"""Name under which the protocol stands in the extensions of the ASGI scope."""

SEND_BUFFER: Final = 64 * 1024
"""SO_SNDBUF in bytes; Linux books twice that for its own overhead."""
NOT_SENT_MAX: Final = 16 * 1024
"""Bytes that the kernel may hold without having sent them: about 250 ms of base64 audio at 24 kHz."""
FAIL_LINGER: Final = 2.0
"""Seconds that a peer has to take the closing frame of a failed connection."""


_TEXT: Final = 0x81
_BINARY: Final = 0x82


def _header(first: int, length: int) -> bytes:
    """Header of an unmasked, unfragmented frame (RFC 6455 section 5.2). `first`: its first byte."""
    if length < 126:
        return bytes((first, length))
    if length < 1 << 16:
        return bytes((first, 126)) + length.to_bytes(2, "big")
    return bytes((first, 127)) + length.to_bytes(8, "big")


class BoundedWebSocketProtocol(WebSocketsSansIOProtocol):
    """The `ws=` class for uvicorn; a `Wire` for the carrier."""

    _deliver: Callable[[str | bytes], bool] | None = None
    _edges: FrameEdges | None = None
    """Where frames are in what the parser was given; None: it was given something else besides."""

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.set_write_buffer_limits(high=0)
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
            if hasattr(socket, "TCP_NOTSENT_LOWAT"):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, NOT_SENT_MAX)

    async def run_asgi(self) -> None:
        extensions = self.scope["extensions"] = {**(self.scope["extensions"] or {}), EXTENSION: {"wire": self}}
        try:
            await super().run_asgi()
        finally:
            # We are held by our scope, and by the carrier that we hold: such rings stay until the garbage collector
            # comes by.
            self._deliver = None
            del extensions[EXTENSION]

    def data_received(self, data: bytes) -> None:
        if self._edges is None:
            # uvicorn hands over the request that asked for a WebSocket as one piece, rebuilt from its headers.
            alone = not self.handshake_initiated and data.find(b"\r\n\r\n") == len(data) - 4
            super().data_received(data)
            if alone and self.handshake_initiated:
                self._edges = FrameEdges()
            return
        if self._deliver is not None and self._edges.between and not self.conn.extensions:
            at = self._take_plain(data)
            if at == len(data):
                return
            data = data[at:]
        self._edges.feed(data)
        super().data_received(data)

    def _take_plain(self, data: bytes) -> int:
        """Deliver the plain messages that `data` begins with, past the parser; returns where the rest begins."""
        at, size = 0, len(data)
        while (
            at < size
            and self.conn.state is State.OPEN
            and not self.close_sent
            and (found := plain_text(data, at)) is not None
        ):
            payload, end = found
            if self.config.ws_max_size < len(payload):
                break
            at = end
            self._deliver_text(payload)
        return at

    def _deliver_text(self, payload: bytes | bytearray | memoryview) -> None:
        try:
            text = str(payload, "utf-8")
        except UnicodeDecodeError:
            self.conn.fail(CloseCode.INVALID_DATA, "a text message must be UTF-8")
            self.handle_parser_exception()
            return
        self._deliver_message(text)

    def _deliver_message(self, message: str | bytes) -> None:
        if self._deliver is not None and not self._deliver(message) and not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    def has_room(self) -> bool:
        """Whether a message would go to the kernel at once, as far as it takes it."""
        return self.writable.is_set()

    async def room(self) -> None:
        """Wait for `has_room`. Returns without suspending where there is room, and when the connection is lost."""
        await self.writable.wait()

    def write(self, *messages: str | bytes) -> None:
        """Write messages (text or binary) at once, as one, where `has_room`; nothing where the connection is closing.

        The same as to send each through ASGI, less the five calls in between and all writes but one: 50 times a second
        and session they count.
        """
        if self.close_sent or self.disconnected or self.transport.is_closing():
            return
        parts: list[bytes] = []
        for message in messages:
            text = isinstance(message, str)
            payload = message.encode() if isinstance(message, str) else message
            if self.conn.extensions:
                (self.conn.send_text if text else self.conn.send_binary)(payload)
                parts += self.conn.data_to_send()
            elif self.conn.state is State.OPEN:
                parts += (_header(_TEXT if text else _BINARY, len(payload)), payload)
        if parts:
            self.transport.write(b"".join(parts))

    def take(self, deliver: Callable[[str | bytes], bool]) -> None:
        """From here on every message goes to `deliver` as it is read, those that wait already first.

        `deliver` returns False where no more should be read until `resume`; what was read already still comes. The end
        of the connection goes the way of ASGI as before.
        """
        rest = []
        while not self.queue.empty():
            message = self.queue.get_nowait()
            if message["type"] == "websocket.receive":
                text = message.get("text")
                deliver((message.get("bytes") or b"") if text is None else text)
            else:
                rest.append(message)
        for message in rest:
            self.queue.put_nowait(message)
        self._deliver = deliver
        self.resume()

    def resume(self) -> None:
        """Read on."""
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()

    def send_receive_event_to_app(self) -> None:
        if self._deliver is None or self.close_sent:
            super().send_receive_event_to_app()
            return
        data = self.frames[0] if len(self.frames) == 1 else b"".join(self.frames)
        self.frames = []
        if self.curr_msg_data_type == "text":
            self._deliver_text(data)
        else:
            self._deliver_message(bytes(data))

    def narrow(self, most: int) -> None:
        """From here on a message may have `most` bytes; a longer one closes the connection (1009)."""
        self.conn.max_message_size = most

    def unsent(self) -> int:
        """Bytes that were handed over and have not left this machine, or were not acknowledged yet."""
        sock = self.transport.get_extra_info("socket")
        waiting = self.transport.get_write_buffer_size()
        if sock is None or self.transport.is_closing() or sys.platform == "win32":
            return waiting
        try:
            kernel = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4))
        except OSError:
            return waiting
        return waiting + int.from_bytes(kernel, "little")

    def fail(self, code: int, reason: str) -> None:
        """Close a connection whose peer does not read: the closing frame waits behind what is unsent, but not long."""
        if self.transport.is_closing():
            return
        self.conn.fail(code, reason)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        # Whoever waits for room would wait for ever: a closing transport never asks for more.
        self.writable.set()
        self.transport.close()
        asyncio.get_running_loop().call_later(FAIL_LINGER, self.transport.abort)
