"""TLS under a real uvicorn: the bounds that hold without it hold with it, and what is not TLS is told so."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.uri import parse_uri

from server.carriers import tls as tls_module
from server.carriers import uvicorn_websocket as wire_module
from server.carriers.tls import TlsTransport, http_over_tls
from server.carriers.uvicorn_http import bounded_http
from server.carriers.uvicorn_websocket import EXTENSION, NOT_SENT_MAX, BoundedWebSocketProtocol
from server.tls import self_signed

pytest.importorskip("cryptography")

LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
RECEIVE_BUFFER = 16 * 1024


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return self_signed(tmp_path_factory.mktemp("tls"))


class Peer:
    """A WebSocket client over TLS whose reading is under control: bytes stay in the kernel until `read` is called."""

    def __init__(self, port: int, authority: Path) -> None:
        self._port = port
        self._protocol = ClientProtocol(parse_uri(f"wss://localhost:{port}/"))
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        self._socket.setblocking(False)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.create_default_context(cafile=str(authority))
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self._events: list[object] = []
        self.said_goodbye = False

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_connect(self._socket, ("127.0.0.1", self._port))
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await self.flush()
                assert await self._receive(), "the server left in the handshake"
        self._protocol.send_request(self._protocol.connect())
        for data in self._protocol.data_to_send():
            self.tls.write(data)
        await self.flush()
        while not self._events:
            assert await self._take()
            self._events = list(self._protocol.events_received())

    async def say(self, text: str) -> None:
        self._protocol.send_text(text.encode())
        for data in self._protocol.data_to_send():
            self.tls.write(data)
        await self.flush()

    async def flush(self) -> None:
        await asyncio.get_running_loop().sock_sendall(self._socket, self._outgoing.read())

    async def _receive(self) -> bool:
        data = await asyncio.get_running_loop().sock_recv(self._socket, 65536)
        self._incoming.write(data) if data else self._incoming.write_eof()
        return bool(data)

    async def _take(self) -> bool:
        """Decrypt one piece, receiving more where there is none; False at the end of the connection."""
        while True:
            try:
                data = self.tls.read(65536)
            except ssl.SSLWantReadError:
                await self._receive()
                continue
            except ssl.SSLEOFError:
                data = b""
            except ssl.SSLZeroReturnError:
                data = b""
                self.said_goodbye = True
            else:
                self.said_goodbye |= not data
            if data:
                self._protocol.receive_data(data)
            else:
                self._protocol.receive_eof()
            return bool(data)

    async def read(self, last: Callable[[str], bool]) -> list[str]:
        """Texts up to the first for which `last` holds, or the end of the connection."""
        texts: list[str] = []
        while True:
            self._events += self._protocol.events_received()
            while self._events:
                event = self._events.pop(0)
                if isinstance(event, Frame) and event.opcode is Opcode.TEXT:
                    texts.append(bytes(event.data).decode())
                    if last(texts[-1]):
                        return texts
            if not await self._take():
                return texts

    @property
    def close_code(self) -> int | None:
        return self._protocol.close_code

    def drop(self) -> None:
        self._socket.close()


class ReadyServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self.ready.set()


Handler = Callable[[WebSocket, Any], Awaitable[None]]


async def echo(websocket: WebSocket, wire: Any) -> None:
    try:
        while True:
            await websocket.send_text(await websocket.receive_text())
    except WebSocketDisconnect:
        return


def serve(
    new_loop: Callable[[], Any],
    certificate: tuple[Path, Path],
    client: Callable[[int], Awaitable[None]],
    handler: Handler = echo,
) -> uvicorn.Server:
    """Run `client` against a server on a port, in one loop, to the end of both."""

    async def scene() -> uvicorn.Server:
        async def endpoint(websocket: WebSocket) -> None:
            await websocket.accept()
            await handler(websocket, websocket.scope["extensions"][EXTENSION]["wire"])

        async def page(request: Request) -> PlainTextResponse:
            return PlainTextResponse(f"{request.url.scheme} {len(await request.body())}")

        async def large(request: Request) -> StreamingResponse:
            return StreamingResponse(iter([b"x" * 100_000] * 20))

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        listener = socket.create_server(("127.0.0.1", 0))
        routes = [Route("/page", page, methods=["GET", "POST"]), Route("/large", large), WebSocketRoute("/", endpoint)]
        config = uvicorn.Config(
            Starlette(routes=routes),
            http=http_over_tls(context, bounded_http(lambda name: None)),
            ws=BoundedWebSocketProtocol,
            lifespan="off",
            log_level="critical",
            loop="none",
            timeout_graceful_shutdown=10,
        )
        server = ReadyServer(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        await server.ready.wait()
        try:
            async with asyncio.timeout(20):
                await client(listener.getsockname()[1])
        finally:
            server.should_exit = True
            await serving
        return server

    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(scene())


@LOOPS
def test_what_a_peer_does_not_read_is_bounded_and_counted(new_loop: Any, certificate: tuple[Path, Path]) -> None:
    message = "x" * 1800
    sent = 0
    full = asyncio.Event()

    async def handler(websocket: WebSocket, wire: Any) -> None:
        nonlocal sent
        assert isinstance(wire.transport, TlsTransport)
        while wire.has_room():
            await websocket.send_text(message)
            sent += 1
        assert wire.unsent() > 0
        # Beyond what the kernel holds there is at most the one message that found the room.
        assert wire.transport.get_write_buffer_size() < 2 * len(message)
        full.set()
        await wire.room()
        await websocket.send_text("end")

    async def client(port: int) -> None:
        peer = Peer(port, certificate[0])
        await peer.connect()
        await full.wait()
        texts = await peer.read(lambda text: text == "end")
        assert texts == [message] * sent + ["end"]
        peer.drop()

    serve(new_loop, certificate, client, handler)
    assert 0 < sent * len(message) < 2 * (NOT_SENT_MAX + RECEIVE_BUFFER)


@LOOPS
def test_nothing_is_written_after_the_moment_that_found_no_room(new_loop: Any, certificate: tuple[Path, Path]) -> None:
    full = asyncio.Event()
    epoch = 0

    async def handler(websocket: WebSocket, wire: Any) -> None:
        while wire.has_room():
            await websocket.send_text(f"{epoch}" * 1000)
        full.set()
        while not wire.has_room():
            await wire.room()
        assert epoch == 1
        await websocket.send_text("1")

    async def client(port: int) -> None:
        nonlocal epoch
        peer = Peer(port, certificate[0])
        await peer.connect()
        await full.wait()
        epoch = 1
        texts = await peer.read(lambda text: text == "1")
        assert set(texts[:-1]) == {"0" * 1000}
        peer.drop()

    serve(new_loop, certificate, client, handler)


@LOOPS
def test_a_failed_connection_ends_although_its_peer_never_reads(
    new_loop: Any, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire_module, "FAIL_LINGER", 0.01)
    ended = asyncio.Event()

    async def handler(websocket: WebSocket, wire: Any) -> None:
        while wire.has_room():
            await websocket.send_text("x" * 1800)
        wire.fail(1013, "slow")
        assert (await websocket.receive())["type"] == "websocket.disconnect"
        ended.set()

    async def client(port: int) -> None:
        peer = Peer(port, certificate[0])
        await peer.connect()
        await ended.wait()
        peer.drop()

    serve(new_loop, certificate, client, handler)


@LOOPS
def test_a_failed_connection_tells_a_peer_that_reads_again_why(new_loop: Any, certificate: tuple[Path, Path]) -> None:
    async def handler(websocket: WebSocket, wire: Any) -> None:
        while wire.has_room():
            await websocket.send_text("x" * 1800)
        wire.fail(1013, "slow")
        await websocket.receive()

    async def client(port: int) -> None:
        peer = Peer(port, certificate[0])
        await peer.connect()
        await peer.read(lambda text: False)
        assert peer.close_code == 1013
        assert peer.said_goodbye
        peer.drop()

    serve(new_loop, certificate, client, handler)


@LOOPS
def test_who_waits_for_room_is_woken_when_the_peer_is_gone(new_loop: Any, certificate: tuple[Path, Path]) -> None:
    full, woken = asyncio.Event(), asyncio.Event()

    async def handler(websocket: WebSocket, wire: Any) -> None:
        while wire.has_room():
            await websocket.send_text("x" * 1800)
        full.set()
        await wire.room()
        woken.set()

    async def client(port: int) -> None:
        peer = Peer(port, certificate[0])
        await peer.connect()
        await full.wait()
        peer.drop()
        await woken.wait()

    serve(new_loop, certificate, client, handler)


@LOOPS
def test_long_messages_go_both_ways_whole(new_loop: Any, certificate: tuple[Path, Path]) -> None:
    async def client(port: int) -> None:
        peer = Peer(port, certificate[0])
        await peer.connect()
        for length in (1, 16_383, 16_384, 16_385, 1_000_000):
            text = str(length % 10) * length
            saying = asyncio.create_task(peer.say(text))
            assert await peer.read(lambda _: True) == [text]
            await saying
        peer.drop()

    serve(new_loop, certificate, client)


@LOOPS
def test_many_messages_at_once_are_read_no_faster_than_they_are_taken(
    new_loop: Any, certificate: tuple[Path, Path]
) -> None:
    """uvicorn pauses reading at each message; what was decrypted already must wait and must not be lost."""
    most = 0

    async def handler(websocket: WebSocket, wire: Any) -> None:
        nonlocal most
        for _ in range(2000):
            await websocket.receive_text()
            most = max(most, wire.queue.qsize())
        await websocket.send_text("all")
        await websocket.receive()

    async def client(port: int) -> None:
        peer = Peer(port, certificate[0])
        await peer.connect()
        for number in range(2000):
            await peer.say(f"{number:04}" * 8)
        assert await peer.read(lambda _: True) == ["all"]
        peer.drop()

    serve(new_loop, certificate, client, handler)
    assert most < 2000


@LOOPS
def test_http_works_over_it_and_the_application_knows(new_loop: Any, certificate: tuple[Path, Path]) -> None:
    import httpx

    async def client(port: int) -> None:
        trust = ssl.create_default_context(cafile=str(certificate[0]))
        async with httpx.AsyncClient(verify=trust, trust_env=False, base_url=f"https://localhost:{port}") as http:
            assert (await http.get("/page")).text == "https 0"
            assert (await http.post("/page", content=b"y" * 300_000)).text == "https 300000"
            assert len((await http.get("/large")).content) == 2_000_000

    serve(new_loop, certificate, client)


@LOOPS
def test_plain_http_is_told_to_use_https(new_loop: Any, certificate: tuple[Path, Path]) -> None:
    import httpx

    async def client(port: int) -> None:
        async with httpx.AsyncClient(trust_env=False) as http:
            answer = await http.get(f"http://127.0.0.1:{port}/page")
        assert answer.status_code == 400
        assert "https://" in answer.text

    serve(new_loop, certificate, client)


@LOOPS
@pytest.mark.parametrize("sent", [b"\x16\x03\x01\xff\xff" + b"\x00" * 64, b"nonsense\r\n\r\n", b"\x00" * 1000, b""])
def test_what_is_no_handshake_is_dropped_without_a_trace(
    new_loop: Any, certificate: tuple[Path, Path], sent: bytes, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr(tls_module, "HANDSHAKE_TIMEOUT", 0.05)

    async def client(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        try:
            await reader.read()
        except ConnectionResetError:
            pass
        writer.close()
        peer = Peer(port, certificate[0])
        monkeypatch.setattr(tls_module, "HANDSHAKE_TIMEOUT", 10.0)
        await peer.connect()
        peer.drop()

    with caplog.at_level(logging.WARNING):
        server = serve(new_loop, certificate, client)
    assert not server.server_state.connections
    assert not caplog.records


@LOOPS
def test_a_server_that_ends_does_not_wait_for_a_handshake(new_loop: Any, certificate: tuple[Path, Path]) -> None:
    sockets: list[socket.socket] = []

    async def client(port: int) -> None:
        idle = socket.create_connection(("127.0.0.1", port))
        sockets.append(idle)
        # A whole connection after it, so that the server has accepted the idle one too.
        peer = Peer(port, certificate[0])
        await peer.connect()
        peer.drop()

    server = serve(new_loop, certificate, client)
    assert not server.server_state.connections
    with sockets[0] as idle:
        idle.settimeout(5)
        try:
            assert idle.recv(1) == b""
        except ConnectionResetError:
            pass


@LOOPS
def test_a_peer_that_says_goodbye_is_answered_with_one(new_loop: Any, certificate: tuple[Path, Path]) -> None:
    async def client(port: int) -> None:
        peer = Peer(port, certificate[0])
        await peer.connect()
        with pytest.raises(ssl.SSLWantReadError):
            peer.tls.unwrap()
        await peer.flush()
        await peer.read(lambda _: False)
        assert peer.said_goodbye
        peer.drop()

    serve(new_loop, certificate, client)


@LOOPS
def test_bytes_changed_on_the_way_end_the_connection(new_loop: Any, certificate: tuple[Path, Path]) -> None:
    ended = asyncio.Event()

    async def handler(websocket: WebSocket, wire: Any) -> None:
        assert (await websocket.receive())["type"] == "websocket.disconnect"
        ended.set()

    async def client(port: int) -> None:
        peer = Peer(port, certificate[0])
        await peer.connect()
        peer._protocol.send_text(b"hello")
        for data in peer._protocol.data_to_send():
            peer.tls.write(data)
        record = bytearray(peer._outgoing.read())
        record[-1] ^= 1
        await asyncio.get_running_loop().sock_sendall(peer._socket, record)
        await ended.wait()
        peer.drop()

    serve(new_loop, certificate, client, handler)
