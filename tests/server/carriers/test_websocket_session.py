"""Whole sessions in one process: the vendor's client, a real uvicorn, the real core; engine and perception are played.

Nothing waits for time: every step waits for the event that it needs.
"""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from openai import AsyncOpenAI
from openai.resources.realtime.realtime import AsyncRealtimeConnection
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket
from websockets.asyncio.client import connect

from server.carriers.uvicorn_websocket import BoundedWebSocketProtocol
from server.carriers.websocket import STALE_AT_GATE, WIRE_MAX_MESSAGE, WebSocketCarrier
from server.dialects.realtime import RealtimeDialect
from sessions.core.config import SessionConfig
from sessions.counters import Counters
from sessions.manager import SessionManager
from tests.server.dialects.conftest import check
from tests.sessions.fakes import CountingEngine, LoudnessPerception

LOUD = base64.b64encode(b"\x00\x20" * 12_000).decode()
"""500 ms of what the played perception takes for speech."""


class Place:
    """A served manager, and what it counted."""

    def __init__(self, port: int, manager: SessionManager, engine: CountingEngine) -> None:
        self.port = port
        self.manager = manager
        self.engine = engine
        self.counters = manager.counters

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/realtime?model=m"

    @asynccontextmanager
    async def client(self, **query: str) -> AsyncIterator[AsyncRealtimeConnection]:
        sdk = AsyncOpenAI(api_key="none", base_url=f"http://127.0.0.1:{self.port}/v1")
        async with asyncio.timeout(20), sdk.realtime.connect(model="m", extra_query=query) as connection:
            assert (await connection.recv()).type == "session.created"
            yield connection


class ReadyServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self.ready.set()


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    engine = CountingEngine(seconds=1.0, delay=0.0)
    manager = SessionManager(engine, LoudnessPerception(), counters=Counters())

    async def endpoint(websocket: WebSocket) -> None:
        dialect = RealtimeDialect("m", SessionConfig(), intent=websocket.query_params.get("intent"))
        carrier = WebSocketCarrier(websocket, dialect, manager.counters)
        handle = manager.open(carrier, dialect.config)
        await websocket.accept()
        await carrier.run(handle)

    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        Starlette(routes=[WebSocketRoute("/v1/realtime", endpoint)]),
        ws=BoundedWebSocketProtocol,
        ws_max_size=WIRE_MAX_MESSAGE,
        ws_per_message_deflate=False,
        lifespan="off",
        log_level="critical",
        loop="none",
    )
    server = ReadyServer(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    await server.ready.wait()
    yield Place(listener.getsockname()[1], manager, engine)
    await manager.close()
    server.should_exit = True
    await serving


async def until(connection: AsyncRealtimeConnection, kind: str) -> list[dict[str, Any]]:
    """Events up to the first of `kind`, each checked against the vendor's models as it was sent."""
    events: list[dict[str, Any]] = []
    while not events or events[-1]["type"] != kind:
        events.append(check((await connection.recv_bytes()).decode()))
    return events


async def ask(connection: AsyncRealtimeConnection) -> None:
    await connection.conversation.item.create(
        item={"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}
    )
    await connection.response.create(response={"metadata": {"turn": "1"}})


async def test_a_question_in_text_is_answered_in_audio(place: Place) -> None:
    async with place.client() as connection:
        await ask(connection)
        events = await until(connection, "rate_limits.updated")
    kinds = [event["type"] for event in events]
    assert kinds[:6] == [
        "conversation.item.added",
        "conversation.item.done",
        "response.created",
        "response.output_item.added",
        "conversation.item.added",
        "response.content_part.added",
    ]
    assert kinds[-7:] == [
        "response.output_audio.done",
        "response.output_audio_transcript.done",
        "response.content_part.done",
        "conversation.item.done",
        "response.output_item.done",
        "response.done",
        "rate_limits.updated",
    ]
    deltas = [event for event in events if event["type"] == "response.output_audio.delta"]
    heard = b"".join(base64.b64decode(event["delta"]) for event in deltas)
    assert heard == b"".join((n % 32768).to_bytes(2, "little") for n in range(24_000))
    assert [event["x_seq"] for event in deltas] == list(range(len(deltas)))
    assert [event["x_ticks"] - deltas[0]["x_ticks"] for event in deltas] == [n * 960 for n in range(len(deltas))]
    said = "".join(event["delta"] for event in events if event["type"] == "response.output_audio_transcript.delta")
    assert said == events[-6]["transcript"] == " w0 w1 w2 w3 w4"
    assert events[-2]["response"]["metadata"] == {"turn": "1"}


async def test_no_sample_of_the_interrupted_reply_follows_the_interruption(place: Place) -> None:
    place.engine.seconds = 5.0
    async with place.client() as connection:
        await ask(connection)
        await until(connection, "response.output_audio.delta")
        await connection.input_audio_buffer.append(audio=LOUD)
        before = await until(connection, "input_audio_buffer.speech_started")
        cut = await until(connection, "response.done")
        await connection.conversation.item.retrieve(item_id=cut[-1]["response"]["output"][0]["id"])
        after = await until(connection, "conversation.item.retrieved")
    assert {event["x_epoch"] for event in before if "x_epoch" in event} <= {0}
    assert not [event for event in cut + after if event["type"] == "response.output_audio.delta"]
    assert cut[-1]["response"]["status_details"] == {"type": "cancelled", "reason": "turn_detected"}
    assert after[-1]["item"]["status"] == "incomplete"
    assert place.counters[STALE_AT_GATE] == 0


async def test_a_session_update_is_answered_and_g711_goes_both_ways(place: Place) -> None:
    mulaw = {"format": {"type": "audio/pcmu"}}
    wanted: Any = {"type": "realtime", "audio": {"input": {**mulaw, "turn_detection": None}, "output": mulaw}}
    async with place.client() as connection:
        await connection.session.update(session=wanted)
        (updated,) = await until(connection, "session.updated")
        assert updated["session"]["audio"]["output"]["format"] == {"type": "audio/pcmu"}
        await connection.input_audio_buffer.append(audio=base64.b64encode(b"\x80" * 1600).decode())
        await connection.input_audio_buffer.commit()
        await until(connection, "conversation.item.done")
        await connection.response.create()
        events = await until(connection, "response.done")
    sent = [base64.b64decode(event["delta"]) for event in events if event["type"] == "response.output_audio.delta"]
    assert len(b"".join(sent)) == 8000


QUIET = base64.b64encode(bytes(60_000)).decode()
TRANSCRIBED = "conversation.item.input_audio_transcription.completed"


async def test_a_transcription_session_tells_what_was_said_and_answers_nothing(place: Place) -> None:
    async with place.client(intent="transcription") as connection:
        await connection.input_audio_buffer.append(audio=LOUD)
        await connection.input_audio_buffer.append(audio=QUIET)
        spoken = await until(connection, TRANSCRIBED)
        await connection.session.update(session={"type": "transcription", "audio": {"input": {"turn_detection": None}}})
        await until(connection, "session.updated")
        await connection.input_audio_buffer.append(audio=LOUD)
        await connection.input_audio_buffer.commit()
        pushed = await until(connection, TRANSCRIBED)
        await connection.response.create()
        (refused,) = await until(connection, "error")
    assert [event["type"] for event in spoken] == [
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
        "conversation.item.input_audio_transcription.delta",
        TRANSCRIBED,
    ]
    assert [event["type"] for event in pushed] == [event["type"] for event in spoken[2:]]
    assert spoken[-1]["transcript"] == pushed[-1]["transcript"] == "what is the time"
    assert pushed[-1]["usage"] == {"type": "duration", "seconds": 0.5}
    assert refused["error"]["code"] == "responses_not_available"
    assert "only transcribes" in refused["error"]["message"]
    assert place.engine.opened == []


BAD_MESSAGES: list[str | bytes] = ["{", "[]", b"\x00\x01", '{"type":"input_audio_buffer.append","audio":"%%%"}',
                '{"type":"input_audio_buffer.append","audio":"YWJj"}', '{"type":"no.such.event"}',
                '{"type":"response.cancel"}', '{"type":"conversation.item.retrieve","item_id":"nope"}',
                '{"type":"session.update","session":{"type":"realtime","output_modalities":["smell"]}}',
                '{"type":"input_audio_buffer.append","audio":"' + "A" * (17 << 20) + '"}']  # fmt: skip


async def test_after_every_bad_message_the_session_still_answers(place: Place) -> None:
    async with asyncio.timeout(30), connect(place.url, max_size=None, compression=None) as peer:
        await peer.recv()
        for message in BAD_MESSAGES:
            await peer.send(message)
            event = check(str(await peer.recv()))
            assert event["type"] == "error"
            assert event["error"]["code"]
        await peer.send(json.dumps({"type": "response.create", "response": {"output_modalities": ["audio"]}}))
        while check(str(await peer.recv()))["type"] != "response.done":
            pass
    assert place.counters["command_rejected"] == len(BAD_MESSAGES)


async def test_a_socket_that_drops_in_mid_reply_leaves_nothing_behind(place: Place) -> None:
    async with asyncio.timeout(20):
        peer = await connect(place.url, compression=None)
        await peer.recv()
        await peer.send('{"type":"response.create"}')
        while json.loads(await peer.recv())["type"] != "response.output_audio.delta":
            pass
        ended = [runner.done for runner in place.manager._runners.values()]
        peer.transport.abort()
        for done in ended:
            await done.wait()
    assert len(place.manager) == 0
    assert place.engine.closed == place.engine.opened


async def test_the_servers_shutdown_is_said_to_the_peer(place: Place) -> None:
    async with asyncio.timeout(20), connect(place.url, compression=None) as peer:
        await peer.recv()
        await place.manager.close()
        await peer.wait_closed()
    assert peer.close_code == 1001
