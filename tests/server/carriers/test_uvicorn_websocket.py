"""The protocol class under a real uvicorn on loopback, with a peer that reads only when the test says so."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.uri import parse_uri

from server.carriers import uvicorn_websocket as module
from server.carriers.uvicorn_websocket import EXTENSION, NOT_SENT_MAX, BoundedWebSocketProtocol
from server.carriers.websocket import WebSocketCarrier
from server.dialects.realtime import RealtimeDialect
from sessions.core.events import CarrierLost, InputClear
from sessions.counters import Counters

LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
RECEIVE_BUFFER = 16 * 1024


class Session:
    """What a carrier needs of a session: it keeps what is said to it and has room only when the test says so."""

    session = "sess_1"

    def __init__(self, room: int) -> None:
        self.posted: list[Any] = []
        self.most = room
        self.free = asyncio.Event()
        self.free.set()
        self.full = asyncio.Event()

    def post(self, event: Any) -> None:
        self.posted.append(event)
        if len(self.posted) >= self.most:
            self.free.clear()
            self.full.set()

    @property
    def has_room(self) -> bool:
        return self.free.is_set()

    async def room(self) -> None:
        await self.free.wait()

    async def parted(self) -> None: ...


class ReadyServer(uvicorn.Server):
    """Says when it listens, and leaves the signal handlers of the test run alone."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self.ready.set()


class Peer:
    """A WebSocket client whose reading is under control: bytes stay in the kernel until `read` is called."""

    def __init__(self, port: int) -> None:
        self._protocol = ClientProtocol(parse_uri(f"ws://127.0.0.1:{port}/"))
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        self._socket.setblocking(False)
        self._port = port
        self._events: list[object] = []

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_connect(self._socket, ("127.0.0.1", self._port))
        self._protocol.send_request(self._protocol.connect())
        await self._flush()
        while not self._events:
            self._protocol.receive_data(await loop.sock_recv(self._socket, 4096))
            self._events = list(self._protocol.events_received())

    async def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                await asyncio.get_running_loop().sock_sendall(self._socket, data)

    async def send(self, *messages: str | bytes) -> None:
        """Text messages, all in one write; bytes are sent as a text frame too, whatever they hold."""
        for message in messages:
            self._protocol.send_text(message.encode() if isinstance(message, str) else message)
        await self._flush()

    async def close(self) -> None:
        self._protocol.send_close(1000)
        await self._flush()

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
            data = await asyncio.get_running_loop().sock_recv(self._socket, 65536)
            if not data:
                self._protocol.receive_eof()
                return texts
            self._protocol.receive_data(data)

    @property
    def close_code(self) -> int | None:
        return self._protocol.close_code

    def drop(self) -> None:
        self._socket.close()


def serve(
    new_loop: Callable[[], Any],
    handler: Callable[[WebSocket, Any], Awaitable[None]],
    client: Callable[[Peer], Awaitable[None]],
) -> None:
    """Run `handler` behind uvicorn and `client` against it, in one loop, to the end of both."""

    async def scene() -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def endpoint(websocket: WebSocket) -> None:
            await websocket.accept()
            try:
                await handler(websocket, websocket.scope["extensions"][EXTENSION]["wire"])
            except BaseException as error:
                done.set_exception(error)
                raise
            done.set_result(None)

        listener = socket.create_server(("127.0.0.1", 0))
        app = Starlette(routes=[WebSocketRoute("/", endpoint)])
        server = ReadyServer(
            uvicorn.Config(app, ws=BoundedWebSocketProtocol, lifespan="off", log_level="critical", loop="none")
        )
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        await server.ready.wait()
        peer = Peer(listener.getsockname()[1])
        try:
            async with asyncio.timeout(20):
                await peer.connect()
                await client(peer)
                await done
        finally:
            peer.drop()
            server.should_exit = True
            await serving

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(scene())


@LOOPS
def test_what_a_peer_does_not_read_is_bounded_and_counted(new_loop: Callable[[], Any]) -> None:
    message = "x" * 1800
    sent = 0
    full = asyncio.Event()

    async def handler(websocket: WebSocket, wire: Any) -> None:
        nonlocal sent
        while wire.has_room():
            await websocket.send_text(message)
            sent += 1
        assert wire.unsent() > 0
        full.set()
        # The peer reads now: the room comes back by itself, and in the end nothing is left over.
        await wire.room()
        await websocket.send_text("end")

    async def client(peer: Peer) -> None:
        await full.wait()
        texts = await peer.read(lambda text: text == "end")
        assert texts == [message] * sent + ["end"]

    serve(new_loop, handler, client)
    # The peer's kernel takes twice what it was asked to, ours little more than what may be unsent; stock limits of the
    # transport alone would let another 64 KiB gather.
    assert sent * len(message) < 2 * (NOT_SENT_MAX + RECEIVE_BUFFER)


@LOOPS
def test_nothing_is_written_after_the_moment_that_found_no_room(new_loop: Callable[[], Any]) -> None:
    """The gate's order: wait for room, then decide. What was decided against in the meantime never goes out."""
    full = asyncio.Event()
    epoch = 0

    async def handler(websocket: WebSocket, wire: Any) -> None:
        nonlocal epoch
        while wire.has_room():
            await websocket.send_text(f"{epoch}" * 1000)
        full.set()
        while not wire.has_room():
            await wire.room()
        assert epoch == 1
        await websocket.send_text("1")

    async def client(peer: Peer) -> None:
        nonlocal epoch
        await full.wait()
        epoch = 1
        texts = await peer.read(lambda text: text == "1")
        assert set(texts[:-1]) == {"0" * 1000}

    serve(new_loop, handler, client)


@LOOPS
def test_a_message_that_finds_room_is_on_its_way_before_anyone_else_runs(new_loop: Callable[[], Any]) -> None:
    async def handler(websocket: WebSocket, wire: Any) -> None:
        others_ran = False

        def other() -> None:
            nonlocal others_ran
            others_ran = True

        assert wire.has_room()
        asyncio.get_running_loop().call_soon(other)
        await websocket.send_text("now")
        assert not others_ran

    async def client(peer: Peer) -> None:
        assert await peer.read(lambda text: True) == ["now"]

    serve(new_loop, handler, client)


@LOOPS
def test_a_failed_connection_ends_although_its_peer_never_reads(
    new_loop: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FAIL_LINGER", 0.01)

    async def handler(websocket: WebSocket, wire: Any) -> None:
        while wire.has_room():
            await websocket.send_text("x" * 1800)
        wire.fail(1013, "slow")
        wire.fail(1013, "twice does no harm")
        message = await websocket.receive()
        assert message["type"] == "websocket.disconnect"

    async def client(peer: Peer) -> None:
        return

    serve(new_loop, handler, client)


@LOOPS
def test_a_failed_connection_tells_a_peer_that_reads_again_why(new_loop: Callable[[], Any]) -> None:
    async def handler(websocket: WebSocket, wire: Any) -> None:
        while wire.has_room():
            await websocket.send_text("x" * 1800)
        wire.fail(1013, "slow")
        await websocket.receive()

    async def client(peer: Peer) -> None:
        await peer.read(lambda text: False)
        assert peer.close_code == 1013

    serve(new_loop, handler, client)


@LOOPS
def test_who_waits_for_room_is_woken_when_the_peer_is_gone(new_loop: Callable[[], Any]) -> None:
    full = asyncio.Event()

    async def handler(websocket: WebSocket, wire: Any) -> None:
        while wire.has_room():
            await websocket.send_text("x" * 1800)
        full.set()
        await wire.room()

    async def client(peer: Peer) -> None:
        await full.wait()
        peer.drop()

    serve(new_loop, handler, client)


@LOOPS
@pytest.mark.parametrize("length", [0, 125, 126, 65_535, 65_536])
def test_a_message_of_any_length_is_written_as_it_is(new_loop: Callable[[], Any], length: int) -> None:
    async def handler(websocket: WebSocket, wire: Any) -> None:
        wire.write("x" * length)
        await wire.room()
        wire.write("end")

    async def client(peer: Peer) -> None:
        assert await peer.read(lambda text: text == "end") == ["x" * length, "end"]

    serve(new_loop, handler, client)


@LOOPS
def test_messages_that_are_written_at_once_come_as_they_were(new_loop: Callable[[], Any]) -> None:
    async def handler(websocket: WebSocket, wire: Any) -> None:
        wire.write("one", b"\x00\xff", "", "x" * 200, "end")

    async def client(peer: Peer) -> None:
        assert await peer.read(lambda text: text == "end") == ["one", "", "x" * 200, "end"]

    serve(new_loop, handler, client)


@LOOPS
def test_messages_are_delivered_in_their_order_whether_they_came_before_or_after(new_loop: Callable[[], Any]) -> None:
    began, taken = asyncio.Event(), asyncio.Event()
    got: list[str | bytes] = []

    def deliver(message: str | bytes) -> bool:
        got.append(message)
        if message == "99":
            taken.set()
        return True

    async def handler(websocket: WebSocket, wire: Any) -> None:
        await began.wait()
        got.append((await websocket.receive())["text"])
        wire.take(deliver)
        await taken.wait()

    async def client(peer: Peer) -> None:
        await peer.send(*(str(n) for n in range(50)))
        began.set()
        await peer.send(*(str(n) for n in range(50, 100)))

    serve(new_loop, handler, client)
    assert got == [str(n) for n in range(100)]


@LOOPS
def test_a_flood_is_left_in_the_kernel_until_there_is_room_for_it(new_loop: Callable[[], Any]) -> None:
    full = asyncio.Event()
    got = 0

    def deliver(message: str | bytes) -> bool:
        nonlocal got
        got += 1
        full.set()
        return message == "last"

    async def handler(websocket: WebSocket, wire: Any) -> None:
        wire.take(deliver)
        await full.wait()
        assert wire.read_paused
        assert got < 200
        while got < 201:
            wire.resume()
            await asyncio.sleep(0)

    async def client(peer: Peer) -> None:
        for _ in range(200):
            await peer.send("x" * 20_000)
        await peer.send("last")

    serve(new_loop, handler, client)
    assert got == 201


@LOOPS
def test_text_that_is_not_utf8_closes_the_connection_and_says_so(new_loop: Callable[[], Any]) -> None:
    async def handler(websocket: WebSocket, wire: Any) -> None:
        wire.take(lambda message: True)
        message = await websocket.receive()
        assert (message["type"], message["code"]) == ("websocket.disconnect", 1007)

    async def client(peer: Peer) -> None:
        await peer.send(b"\xff\xfe")
        await peer.read(lambda text: False)
        assert peer.close_code == 1007

    serve(new_loop, handler, client)


@LOOPS
def test_a_session_without_room_stops_the_reading_and_gets_everything_in_the_end(new_loop: Callable[[], Any]) -> None:
    session = Session(100)

    async def handler(websocket: WebSocket, wire: Any) -> None:
        carrier = WebSocketCarrier(websocket, RealtimeDialect("m"), Counters())
        running = asyncio.create_task(carrier.run(session))  # type: ignore[arg-type]
        await session.full.wait()
        assert wire.read_paused
        assert len(session.posted) < 5000
        session.most = 1 << 30
        session.free.set()
        assert await running == "client_closed"

    async def client(peer: Peer) -> None:
        await peer.read(lambda text: "session.created" in text)
        sending = asyncio.create_task(peer.send(*['{"type":"input_audio_buffer.clear"}'] * 5000))
        await sending
        await peer.close()

    serve(new_loop, handler, client)
    assert sum(isinstance(event, InputClear) for event in session.posted) == 5000
    assert isinstance(session.posted[-1], CarrierLost)


class DeafTransport(asyncio.Transport):
    """Takes what is written and does nothing with it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


REQUEST = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


async def delivered(chunks: list[bytes], early: bytes = b"") -> tuple[list[str | bytes], bytes]:
    """What a taker is given of the bytes of a peer, and what the peer gets after the handshake."""
    taken = asyncio.Event()
    got: list[str | bytes] = []

    def take(message: str | bytes) -> bool:
        got.append(message)
        return True

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        scope["extensions"][EXTENSION]["wire"].take(take)
        taken.set()
        await receive()

    config = uvicorn.Config(app, ws_per_message_deflate=False, log_config=None)
    config.load()
    config.loaded_app = app
    protocol = BoundedWebSocketProtocol(config, uvicorn.server.ServerState(), {})
    transport = DeafTransport()
    protocol.connection_made(transport)
    protocol.data_received(REQUEST + early)
    await taken.wait()
    greeting = len(transport.written)
    for chunk in chunks:
        protocol.data_received(chunk)
    protocol.connection_lost(None)
    return got, transport.written[greeting:]


def sent(opcode: Opcode, payload: bytes, fin: bool = True) -> bytes:
    return Frame(opcode, payload, fin).serialize(mask=True)


async def test_plain_messages_among_all_others_come_once_and_in_order_however_the_bytes_are_cut() -> None:
    stream = (
        sent(Opcode.TEXT, b"one")
        + sent(Opcode.TEXT, "zwölf".encode())
        + sent(Opcode.TEXT, b"in ", fin=False)
        + sent(Opcode.PING, b"alive?")
        + sent(Opcode.CONT, b"parts")
        + sent(Opcode.TEXT, b"after" * 100)
        + sent(Opcode.BINARY, b"\x00\x01")
        + sent(Opcode.TEXT, b"")
        + sent(Opcode.TEXT, b"last")
    )
    expected = ["one", "zwölf", "in parts", "after" * 100, b"\x00\x01", "", "last"]
    pong = Frame(Opcode.PONG, b"alive?").serialize(mask=False)
    for size in (1, 3, 7, 50, 1000, len(stream)):
        chunks = [stream[start : start + size] for start in range(0, len(stream), size)]
        assert await delivered(chunks) == (expected, pong), size
        got, _ = await delivered(chunks[1:], early=chunks[0])
        assert got == expected, size


async def test_a_message_longer_than_a_short_header_can_say_goes_past_the_plain_way() -> None:
    stream = sent(Opcode.TEXT, b"long" * 20_000) + sent(Opcode.TEXT, b"last")
    for size in (5, 40_000, len(stream)):
        got, _ = await delivered([stream[:size], stream[size:]])
        assert got == ["long" * 20_000, "last"], size


async def test_a_message_in_the_middle_of_another_ends_the_connection_as_the_library_says() -> None:
    got, answer = await delivered(
        [sent(Opcode.TEXT, b"in ", fin=False), sent(Opcode.TEXT, b"another"), sent(Opcode.TEXT, b"late")]
    )
    assert got == []
    assert answer[2:4] == (1002).to_bytes(2, "big")


async def test_plain_text_that_is_not_utf_8_ends_the_connection() -> None:
    got, answer = await delivered(
        [sent(Opcode.TEXT, b"fine") + sent(Opcode.TEXT, b"\xff") + sent(Opcode.TEXT, b"late")]
    )
    assert got == ["fine"]
    assert answer[2:4] == (1007).to_bytes(2, "big")
