"""A WebSocket to a remote model. The only module of the models that knows the library for it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import TypeAlias

import websockets
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidMessage,
    InvalidStatus,
    InvalidURI,
    WebSocketException,
)

from .errors import RemoteError, shown, status_error, transport_error

Socket: TypeAlias = ClientConnection
"""An open connection: `await send(message)`, `async for message`."""


@contextlib.asynccontextmanager
async def connected(
    setting: str,
    url: str,
    *,
    key: str = "",
    headers: Mapping[str, str] | None = None,
    longest: int = 8 << 20,
    open_timeout: float = 10.0,
) -> AsyncIterator[Socket]:
    """A connection to `url`, which the option `setting` named; `key` is only taken out of messages.

    `longest`: bytes of one message. Nothing is compressed, since audio does not shrink, and no proxy of the environment
    is used. Pings are answered and not sent: a model that hangs answers them too, so whoever wants to know asks in the
    model's own words. What fails of the connection, also in the block, is raised as RemoteError.
    """
    try:
        async with websockets.connect(
            url,
            additional_headers=dict(headers or {}),
            max_size=longest,
            open_timeout=open_timeout,
            close_timeout=2.0,
            ping_interval=None,
            compression=None,
            proxy=None,
            max_queue=8,
        ) as socket:
            try:
                yield socket
            except BaseException:
                # A peer that failed is not waited for until it has said goodbye.
                socket.transport.abort()
                raise
    except Exception as error:
        typed = _typed(setting, url, error, key)
        if typed is error:
            raise
        raise typed from error


def _typed(setting: str, url: str, error: Exception, key: str) -> Exception:
    detail = shown(str(error), key) or type(error).__name__
    url = url.partition("?")[0]
    match error:
        case InvalidStatus():
            response = error.response
            return status_error(setting, url, response.status_code, bytes(response.body or b""), key)
        case InvalidURI():
            return RemoteError("remote_unreachable", f"{setting}: {shown(url)} is no address; {detail}")
        case InvalidMessage() if isinstance(error.__cause__, EOFError | ConnectionError):
            # One that dies has not let go of its port yet: it is tried again, as one that cannot be reached.
            return RemoteError(
                "remote_lost", f"{setting}: {url} ended the connection before it answered; see that server's log"
            )
        case InvalidHandshake():
            return RemoteError(
                "remote_bad_response", f"{setting}: {url} does not speak WebSocket there ({detail}); check the path"
            )
        case ConnectionClosed():
            return RemoteError(
                "remote_lost", f"{setting}: {url} ended the connection ({detail}); see that server's log"
            )
        case WebSocketException():
            return RemoteError("remote_bad_response", f"{setting}: {url} broke the WebSocket protocol ({detail})")
    return transport_error(setting, url, error, key)
