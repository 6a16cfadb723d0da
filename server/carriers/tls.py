"""TLS under uvicorn that keeps no bytes of its own, so that the bounds on unsent bytes hold over it too.

The TLS of asyncio and of uvloop puts a buffer between the WebSocket and the TCP connection, with limits that are out
of reach and events that arrive late; behind it "there is room" would not mean what the gate needs. Here what is written
is encrypted and handed to the TCP transport at once, whose flow control goes straight through to the WebSocket.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from asyncio.transports import BaseTransport
from collections.abc import Iterable
from typing import Any, Final, cast

from uvicorn.config import Config
from uvicorn.server import ServerState

from .uvicorn_http import BoundedHttpProtocol

log = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT: Final = 10.0
"""Seconds that a peer has for the handshake."""
_PIECE: Final = 64 * 1024
_PLAIN_ANSWER: Final = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 49\r\nConnection: close\r\n\r\n"
    b"this port speaks TLS; use https:// or wss:// URLs\n"
)


class TlsTransport(asyncio.Transport):
    """What the inner protocol writes to: plain text in, TCP's own flow control out."""

    def __init__(self, protocol: TlsProtocol) -> None:
        super().__init__()
        self._protocol = protocol
        self._raw = protocol.raw

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._protocol.send(data)

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        """Send what was written, say goodbye, and close without waiting for the peer's (RFC 8446 section 6.1)."""
        self._protocol.close()

    def abort(self) -> None:
        self._raw.abort()

    def is_closing(self) -> bool:
        return self._raw.is_closing()

    def pause_reading(self) -> None:
        self._protocol.pause()

    def resume_reading(self) -> None:
        self._protocol.resume()

    def is_reading(self) -> bool:
        return not self._protocol.paused

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol.inner = cast(asyncio.Protocol, protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol.inner

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Encrypted bytes that the kernel has not taken."""
        return self._raw.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._raw.get_write_buffer_limits()

    def can_write_eof(self) -> bool:
        return False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return self._protocol.tls
        if name == "sslcontext":
            return self._protocol.tls.context
        return self._raw.get_extra_info(name, default)


class TlsProtocol(asyncio.Protocol):
    """The server's side of one TLS connection; `inner` is connected once the handshake is done."""

    raw: asyncio.Transport

    def __init__(self, inner: asyncio.Protocol, context: ssl.SSLContext) -> None:
        self.inner = inner
        self.paused = False
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._connected = False
        self._ended = False
        self._deadline: asyncio.TimerHandle | None = None

    # --- from TCP ----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: BaseTransport) -> None:
        self.raw = cast(asyncio.Transport, transport)
        self._deadline = asyncio.get_running_loop().call_later(HANDSHAKE_TIMEOUT, self.raw.abort)

    def data_received(self, data: bytes) -> None:
        self._incoming.write(data)
        if not self._connected and not self._shake_hands():
            return
        self._deliver()

    def eof_received(self) -> None:
        if self._connected and not self._ended:
            self._ended = True
            self.inner.eof_received()

    def pause_writing(self) -> None:
        if self._connected:
            self.inner.pause_writing()

    def resume_writing(self) -> None:
        if self._connected:
            self.inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        if self._connected:
            self.inner.connection_lost(exc)

    # --- from the inner protocol -------------------------------------------------------------------------------------

    def send(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and hand to TCP, all of it."""
        if self.raw.is_closing() or not data:
            return
        left = memoryview(data)
        while left:
            left = left[self.tls.write(left) :]  # a record at a time
        self._flush()

    def close(self) -> None:
        if self.raw.is_closing():
            return
        try:
            self.tls.unwrap()
        except ssl.SSLError:
            pass  # the peer's goodbye is not here yet, or never will be
        self._flush()
        self.raw.close()

    def pause(self) -> None:
        self.paused = True
        self.raw.pause_reading()

    def resume(self) -> None:
        if self.paused:
            self.paused = False
            self.raw.resume_reading()
            # What was decrypted, or could be, before the pause.
            asyncio.get_running_loop().call_soon(self._deliver)

    # ---------------------------------------------------------------------------------------------------------------

    def handshake_ended(self) -> None:
        """Called once, when the handshake is done or has failed."""

    def _shake_hands(self) -> bool:
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError as error:
            log.debug("TLS handshake failed: %s", error.reason)
            self._flush()
            if error.reason == "HTTP_REQUEST":
                self.raw.write(_PLAIN_ANSWER)
            self.raw.close()
            return False
        if self._deadline is not None:
            self._deadline.cancel()
        self._connected = True
        self.handshake_ended()
        self._flush()
        self.inner.connection_made(TlsTransport(self))
        return True

    def _deliver(self) -> None:
        while not self.paused and not self.raw.is_closing():
            try:
                data = self.tls.read(_PIECE)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                data = b""  # the peer's goodbye
            except ssl.SSLError as error:
                log.debug("TLS connection failed: %s", error.reason)
                self._flush()
                self.raw.abort()
                return
            if not data:
                self.eof_received()
                self.close()
                return
            self.inner.data_received(data)
        self._flush()

    def _flush(self) -> None:
        data = self._outgoing.read()
        if data and not self.raw.is_closing():
            self.raw.write(data)


def http_over_tls(context: ssl.SSLContext, http: type[BoundedHttpProtocol]) -> type[asyncio.Protocol]:
    """The `http=` class for uvicorn: `http` over TLS with `context`. uvicorn's `ssl_…` options stay unset."""

    class HttpOverTls(TlsProtocol):
        def __init__(
            self,
            config: Config,
            server_state: ServerState,
            app_state: dict[str, Any],
            _loop: asyncio.AbstractEventLoop | None = None,
        ) -> None:
            inner = http(config=config, server_state=server_state, app_state=app_state, _loop=_loop)
            super().__init__(inner, context)
            # Until the handshake is done uvicorn knows nothing of the connection and would wait for it to the end.
            self._connections = cast("set[object]", server_state.connections)

        def connection_made(self, transport: BaseTransport) -> None:
            super().connection_made(transport)
            self._connections.add(self)

        def connection_lost(self, exc: Exception | None) -> None:
            self._connections.discard(self)
            super().connection_lost(exc)

        def handshake_ended(self) -> None:
            self._connections.discard(self)

        def shutdown(self) -> None:
            """uvicorn ends; there is nobody to tell yet."""
            self.raw.abort()

    return HttpOverTls
