"""`models.remote.websocket`: what fails of a connection, as a typed error that says whether to try again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from models.remote.errors import RemoteError
from models.remote.websocket import connected
from tests.servers import free_port


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[str]:
    """The address of something that reads a request, says `answer` and hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(
    ("answer", "code", "told"),
    [
        # As a server does that dies while it is asked.
        (b"", "remote_lost", "before it answered"),
        (b"SSH-2.0-server\r\n\r\n", "remote_bad_response", "does not speak WebSocket"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "remote_http_status", "200"),
        (b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", "remote_http_status", "busy or starting"),
    ],
)
async def test_an_answer_that_is_no_handshake_is_told_by_what_it_is(answer: bytes, code: str, told: str) -> None:
    async with answering(answer) as url:
        with pytest.raises(RemoteError, match=told) as refused:
            async with connected("engine-url", url):
                pass
    assert refused.value.code == code
    assert str(refused.value).startswith("engine-url: ")


async def test_where_nobody_listens_nothing_can_be_reached() -> None:
    with pytest.raises(RemoteError) as refused:
        async with connected("engine-url", f"ws://127.0.0.1:{free_port()}"):
            pass
    assert refused.value.code == "remote_unreachable"


async def test_what_is_no_address_is_said_to_be_none() -> None:
    with pytest.raises(RemoteError) as refused:
        async with connected("engine-url", "gopher://h"):
            pass
    assert refused.value.code == "remote_unreachable"
