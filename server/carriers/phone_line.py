"""Lines of telephone calls: a WebSocket, and a byte stream (`server.carriers.tcp`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from starlette.websockets import WebSocket

from .uvicorn_websocket import EXTENSION

Message = str | bytes


class _Wire(Protocol):
    """What `BoundedWebSocketProtocol` shows of itself."""

    def has_room(self) -> bool: ...

    async def room(self) -> None: ...

    def write(self, *messages: str | bytes) -> None: ...

    def unsent(self) -> int: ...

    def take(self, deliver: Callable[[str | bytes], bool]) -> None: ...

    def resume(self) -> None: ...

    def fail(self, code: int, reason: str) -> None: ...

    def narrow(self, most: int) -> None: ...


MESSAGE_MOST: Final = 1 << 20
"""Bytes of a message: more than any vendor sends, and little enough to be held for a stranger, who need not show who he
is before his call starts."""


class NoWire(RuntimeError):
    """The ASGI server below shows nothing of its connections."""


GONE: Final = "connection_lost"


class WebSocketLine:
    """A line over one accepted WebSocket. Raises NoWire behind a server that is not Talkover's own."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket
        shown = (websocket.scope.get("extensions") or {}).get(EXTENSION)
        if shown is None:
            raise NoWire("telephone calls need Talkover's own server; start it with `talkover serve`")
        self._wire: _Wire = shown["wire"]
        self._wire.narrow(MESSAGE_MOST)
        self._why: str | None = None

    @property
    def peer(self) -> str:
        """The address of the other end."""
        return "" if self._websocket.client is None else self._websocket.client.host

    def take(self, deliver: Callable[[Message], bool]) -> None:
        """Hand over every message from here on."""
        self._wire.take(deliver)

    def resume(self) -> None:
        """Read on."""
        self._wire.resume()

    def has_room(self) -> bool:
        """Whether a message would go to the kernel at once."""
        return self._wire.has_room()

    async def room(self) -> None:
        """Wait for `has_room`."""
        await self._wire.room()

    def send(self, *messages: Message) -> None:
        """Write at once, room or not."""
        self._wire.write(*messages)

    def unsent(self) -> int:
        """Bytes that have not left this machine, or were not acknowledged yet."""
        return self._wire.unsent()

    async def ended(self) -> str:
        """Wait until the other end has closed; why. May be asked again."""
        while self._why is None:
            message = await self._websocket.receive()
            if message["type"] == "websocket.disconnect":
                self._why = "client_closed" if message.get("code") in (1000, 1001) else GONE
        return self._why

    async def close(self, code: int, reason: str) -> None:
        """Say goodbye. Nothing happens where the other end has gone."""
        if self._why is None:
            try:
                await self._websocket.close(code, reason)
            except RuntimeError:
                self._why = GONE

    def fail(self, code: int, reason: str) -> None:
        """Close without waiting for the other end."""
        self._wire.fail(code, reason)
