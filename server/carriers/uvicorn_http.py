"""uvicorn's HTTP/1.1 protocol with deadlines: whoever sends a head or a body byte by byte does not keep a connection.

uvicorn closes connections that were served and say nothing more; it waits without end for one that has begun to speak.
A handshake of a WebSocket is a head like any other.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_WITHIN: Final = 10.0
"""Seconds from the connection, or from the first byte of a later request, to the end of the head."""
BODY_WITHIN: Final = 30.0
"""Seconds from the end of the head to that of the body. Endpoints that read it are less patient."""
HEAD_MOST: Final = 16 * 1024
"""Bytes of request line and headers."""

LINES_MOST: Final = 100
LINE_MOST: Final = 8000
"""Headers of a handshake, and bytes of one: a little less than `websockets` takes."""

TOO_SLOW: Final = "requests_too_slow"
UNREADABLE: Final = "requests_unreadable"
"""Counters."""


class BoundedHttpProtocol(H11Protocol):
    """The `http=` class for uvicorn."""

    _deadline: asyncio.TimerHandle | None = None
    _phase = ""

    def count(self, name: str) -> None:
        """Counts a refusal."""

    # --- from the transport ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._enter("head")

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        self._enter("")
        super().connection_lost(exc)

    # --- from uvicorn ------------------------------------------------------------------------------------------------

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._enter("")
        lengths = [len(event.target), *(len(name) + len(value) + 4 for name, value in event.headers)]
        if len(lengths) > LINES_MOST or max(lengths) > LINE_MOST or sum(lengths) > HEAD_MOST:
            # What parses the handshake next has limits of its own, and would not say which.
            self.count(UNREADABLE)
            self._refuse(431, "headers_too_large", f"a handshake has at most {LINE_MOST} bytes a header; send less")
            return
        super().handle_websocket_upgrade(event)
        self._phase = "upgraded"

    def send_400_response(self, msg: str) -> None:
        self.count(UNREADABLE)
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()
            return
        if len(self.conn.trailing_data[0]) > HEAD_MOST:
            self._refuse(
                431, "headers_too_large", f"the head of the request has more than {HEAD_MOST} bytes; send less"
            )
        else:
            self._refuse(400, "invalid_request", "this is not HTTP/1.1 as RFC 9112 has it")

    # --- deadlines ---------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """What is waited for now."""
        if self._phase == "upgraded":
            return
        state = self.conn.their_state
        if state is h11.SEND_BODY:
            self._enter("body")
        elif state is h11.IDLE and (self.cycle is None or self.conn.trailing_data[0]):
            self._enter("head")
        else:
            self._enter("")

    def _enter(self, phase: str) -> None:
        if phase == self._phase:
            return
        self._phase = phase
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if phase:
            within = HEAD_WITHIN if phase == "head" else BODY_WITHIN
            self._deadline = self.loop.call_later(within, self._too_slow, phase)

    def _too_slow(self, phase: str) -> None:
        if self.transport.is_closing():
            return
        self.count(TOO_SLOW)
        if phase == "head" and self.conn.our_state is h11.IDLE and self.conn.trailing_data[0]:
            self._refuse(408, "request_timeout", f"the head of the request took longer than {HEAD_WITHIN:.0f} s")
        else:
            self.transport.close()

    def _refuse(self, status: int, code: str, message: str) -> None:
        body = {"error": {"type": "invalid_request_error", "code": code, "message": message, "param": None}}
        data = json.dumps(body).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(data)).encode()),
            (b"connection", b"close"),
        ]
        for event in (h11.Response(status_code=status, headers=headers), h11.Data(data=data), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def bounded_http(count: Callable[[str], None]) -> type[BoundedHttpProtocol]:
    """The class with `count` told of what it refuses."""

    class Counting(BoundedHttpProtocol):
        def count(self, name: str) -> None:
            count(name)

    return Counting
