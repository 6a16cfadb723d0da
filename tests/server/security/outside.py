"""A stranger at the port: raw requests, written byte by byte where that is the point."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from websockets.asyncio.client import ClientConnection

from tests.server.serving import Served

WITHIN = 20.0
"""Seconds after which a test has failed."""


async def raw(place: Served, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send `request` as it is; status, headers (lower-case names) and body of the answer. Status 0: none came."""
    async with asyncio.timeout(WITHIN):
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
        try:
            writer.write(request)
            await writer.drain()
            return await answer(reader)
        finally:
            writer.close()


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except (asyncio.IncompleteReadError, ConnectionError):
        return 0, {}, b""
    status, *lines = head.split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    length = int(headers.get("content-length", "0"))
    return int(status.split()[1]), headers, await reader.readexactly(length) if length else b""


def head(path: str, *headers: tuple[str, str], method: str = "GET") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *(f"{name}: {value}" for name, value in headers)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


HANDSHAKE = (
    ("Upgrade", "websocket"),
    ("Connection", "Upgrade"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
)


async def dripped(place: Served, beginning: bytes, drops: Iterable[bytes]) -> tuple[int, dict[str, str], bytes]:
    """Send `beginning`, then `drops` one after the other for as long as the server listens; what it answered."""
    async with asyncio.timeout(WITHIN):
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
        try:
            writer.write(beginning)
            reading = asyncio.create_task(answer(reader))
            for drop in drops:
                await asyncio.wait([reading], timeout=0.01)
                if reading.done() or writer.is_closing():
                    break
                writer.write(drop)
            return await reading
        finally:
            writer.close()


async def to_the_end(connection: ClientConnection) -> tuple[list[dict[str, Any]], str]:
    """All that the server still says on a WebSocket, and why it closed it."""
    told: list[dict[str, Any]] = []
    async with asyncio.timeout(WITHIN):
        async for message in connection:
            told.append(json.loads(message))
    return told, connection.close_reason or ""


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Ask until `holds`: for what happens in batches, at another server or on a disk, and tells nobody."""
    async with asyncio.timeout(WITHIN):
        while not await holds():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def code(body: bytes) -> str:
    """Of an error in the API's shape."""
    told: dict[str, Any] = json.loads(body)["error"]
    return str(told["code"])
