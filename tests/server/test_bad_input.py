"""Bad input against the running server: a typed error for each, and the same session answers a turn afterwards.

The server is a process of its own with the real ear and a scripted voice: a short tone, a long one, a short one, over
and over. The client is a bare WebSocket, because an SDK would not send most of this.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from server.client import RATE, Pcm, to_wire_rate
from sessions.replay.rerun import rerun
from tests.bench.tones import tones_in
from tests.bench.words import word_error_rate
from tests.servers import ServerProcess
from tests.speech import RATE as CLIP_RATE
from tests.speech import load

pytestmark = pytest.mark.models

PATIENCE = 30.0
"""Seconds after which an event that does not come has not come."""

SHORT, LONG, NEXT = 400, 500, 600
"""Hz of the replies of a session, in the order in which it gives them."""

SCRIPT = f"""
[[reply]]
tone_hz = {SHORT}
seconds = 0.3
[[reply]]
tone_hz = {LONG}
seconds = 7
[[reply]]
tone_hz = {NEXT}
seconds = 0.3
"""

DELTA = "response.output_audio.delta"
HEARD = "conversation.item.input_audio_transcription.completed"

QUESTION = load("questions", "test")[0]

FLOOD_MAX = 60e6
"""Bytes by which the process may grow under a flood."""

NO_TURNS = {"type": "realtime", "audio": {"input": {"turn_detection": None}}}
LISTENING = {
    "type": "realtime",
    "audio": {"input": {"transcription": {"model": "default"}, "turn_detection": {"type": "server_vad"}}},
    "x_talkover": {"notices": True},
}


class Failed(Exception):
    """The server did not do what was waited for."""


class Peer:
    """One session, read only as far as a test asks."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.events: list[dict[str, Any]] = []
        self.began: dict[str, float] = {}
        """When the first audio of a response came."""

    async def send(self, message: Mapping[str, object] | str | bytes) -> None:
        await self.socket.send(json.dumps(message) if isinstance(message, Mapping) else message)

    async def append(self, pcm: Pcm) -> None:
        await self.send({"type": "input_audio_buffer.append", "audio": base64.b64encode(pcm.tobytes()).decode()})

    async def read(self) -> dict[str, Any]:
        event = json.loads(await self.socket.recv())
        assert isinstance(event, dict)
        self.events.append(event)
        if event["type"] == DELTA:
            self.began.setdefault(event["response_id"], asyncio.get_running_loop().time())
        return event

    async def until(self, kind: str) -> dict[str, Any]:
        """Read on to the next event of `kind`; an error that was not waited for is a failure."""
        async with asyncio.timeout(PATIENCE):
            while (event := await self.read())["type"] != kind:
                if event["type"] == "error":
                    raise Failed(f"waited for {kind}, came {event['error']}")
        return event

    async def refused(self) -> dict[str, Any]:
        """The error that comes next, whatever else goes on."""
        error = (await self.until("error"))["error"]
        assert isinstance(error, dict)
        return error

    async def ask(self, text: str = "Hello?") -> None:
        content = [{"type": "input_text", "text": text}]
        await self.send(
            {"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": content}}
        )
        await self.send({"type": "response.create"})

    async def reply(self) -> tuple[dict[str, Any], Pcm]:
        """Read a whole response; its `response.done` and all its audio."""
        begun = await self.until("response.created")
        done = await self.until("response.done")
        assert done["response"]["id"] == begun["response"]["id"]
        return done["response"], self.audio_of(done["response"]["id"])

    async def listen(self) -> None:
        """Play the newest response to its end, as a loudspeaker does."""
        response = list(self.began)[-1]
        ends = self.began[response] + len(self.audio_of(response)) / RATE
        await asyncio.sleep(ends - asyncio.get_running_loop().time())

    def audio_of(self, response: str) -> Pcm:
        parts = [event["delta"] for event in self.events if event["type"] == DELTA and event["response_id"] == response]
        return np.frombuffer(b"".join(map(base64.b64decode, parts)), "<i2")


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recordings")


@pytest.fixture(scope="module")
def server(recordings: Path) -> Iterator[ServerProcess]:
    with ServerProcess("scripted", SCRIPT, arguments=["--record", str(recordings)]) as running:
        yield running


@contextlib.asynccontextmanager
async def connected(
    server: ServerProcess, session: Mapping[str, object] | None = NO_TURNS, raw: socket.socket | None = None
) -> AsyncIterator[Peer]:
    async with connect(server.realtime_url, compression=None, proxy=None, max_size=None, sock=raw) as connection:
        peer = Peer(connection)
        await peer.until("session.created")
        if session is not None:
            await peer.send({"type": "session.update", "session": session})
            await peer.until("session.updated")
        yield peer


Seen = Mapping[str, float]


async def metrics(server: ServerProcess, wanted: Callable[[Seen], bool] = lambda _: True) -> Seen:
    """Gauges and counts by name, as soon as they are as `wanted`; what is not told has not happened."""
    async with asyncio.timeout(PATIENCE), httpx.AsyncClient(trust_env=False, verify=False) as http:
        while True:
            text = (await http.get(f"http://127.0.0.1:{server.port}/metrics")).text
            lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
            seen = {_name(line): float(value) for line, value in lines}
            if wanted(seen):
                return seen


def _name(metric: str) -> str:
    return metric.removeprefix('talkover_events_total{event="').removesuffix('"}')


async def unharmed(server: ServerProcess) -> None:
    """Every session is gone, and no invariant was hurt."""
    seen = await metrics(server, lambda seen: seen["talkover_sessions"] == 0)
    assert seen["talkover_unsent_bytes"] == seen["talkover_mail_waiting"] == 0
    faults = {name: seen.get(name, 0) for name in ("ledger_fault", "engine_fault", "session_fault", "stale_at_gate")}
    assert not any(faults.values()), faults
    assert seen["sessions_opened"] == seen["sessions_closed"]


async def answers(peer: Peer, tone: int = SHORT) -> None:
    """The session answers a turn in text, with the reply that is next in its script and nothing else."""
    await peer.ask()
    response, pcm = await peer.reply()
    assert response["status"] == "completed"
    assert [heard for heard, _ in tones_in(pcm)] == [tone]


def chunks(pcm: Pcm, ms: float) -> Iterator[Pcm]:
    size = round(RATE * ms / 1000)
    for start in range(0, len(pcm), size):
        yield pcm[start : start + size]


def quiet(seconds: float) -> Pcm:
    """A quiet room."""
    noise = np.random.default_rng(7).normal(0.0, 4.0, round(seconds * RATE))
    return np.round(noise).astype("<i2")


def question(silence: float = 1.0) -> Pcm:
    """A spoken question at the wire's rate with a moment before and `silence` seconds after it."""
    spoken = to_wire_rate(QUESTION.pcm, CLIP_RATE).astype("<i2")
    return np.concatenate([quiet(0.3), spoken, quiet(silence)])


async def microphone(peer: Peer, pcm: Pcm, ms: float = 20, between: Mapping[str, object] | None = None) -> None:
    """Send `pcm` in pieces of `ms` as they are captured, then a quiet room for as long as the test listens."""
    loop = asyncio.get_running_loop()
    due = loop.time()
    room = quiet(10)
    for piece in (*chunks(pcm, ms), *chunks(room, ms)):
        due += len(piece) / RATE
        await asyncio.sleep(due - loop.time())
        await peer.append(piece)
        if between is not None:
            await peer.send(between)


async def answers_speech(
    peer: Peer, tone: int = SHORT, ms: float = 20, between: Mapping[str, object] | None = None
) -> list[dict[str, Any]]:
    """The session hears a spoken question right and answers it; returns the errors that came meanwhile."""
    begun = len(peer.events)
    speaking = asyncio.create_task(microphone(peer, question(), ms, between))
    try:
        async with asyncio.timeout(PATIENCE):
            while (await peer.read())["type"] != "response.done":
                assert not speaking.done(), "nothing was answered"
    finally:
        speaking.cancel()
        await asyncio.gather(speaking, return_exceptions=True)
    events = peer.events[begun:]
    (heard,) = [event["transcript"] for event in events if event["type"] == HEARD]
    assert word_error_rate([QUESTION.text], [heard]) == 0, heard
    response = peer.events[-1]["response"]
    assert response["status"] == "completed"
    assert [hz for hz, _ in tones_in(peer.audio_of(response["id"]))] == [tone]
    return [event["error"] for event in events if event["type"] == "error"]


# --- messages that are wrong ---------------------------------------------------------------------------------------

APPEND = "input_audio_buffer.append"

WRONG: dict[str, tuple[Mapping[str, object] | str | bytes, str, str | None]] = {
    "no text at all": ("", "invalid_json", None),
    "json that breaks off": ('{"type":"response.create"', "invalid_json", None),
    "words": ("hello there", "invalid_json", None),
    "a list": ('[{"type":"response.create"}]', "invalid_json", None),
    "null": ("null", "invalid_json", None),
    "not a number": ('{"type":"conversation.item.truncate","audio_end_ms":NaN}', "invalid_json", None),
    "nested without end": ("[" * 200_000, "invalid_json", None),
    "a number of ten thousand digits": ('{"type":' + "9" * 10_000 + "}", "invalid_json", None),
    "a binary frame": (b"\x00\xff\x80\x7f" * 240, "invalid_message", None),
    "json in a binary frame": (b'{"type":"response.create"}', "invalid_message", None),
    "an empty binary frame": (b"", "invalid_message", None),
    "junk for audio": ({"type": APPEND, "audio": "%%% not base64 %%%"}, "invalid_audio", "audio"),
    "base64 with a letter missing": ({"type": APPEND, "audio": "AAAAA"}, "invalid_audio", "audio"),
    "base64 of another alphabet": ({"type": APPEND, "audio": "-_-_"}, "invalid_audio", "audio"),
    "base64 with something behind it": ({"type": APPEND, "audio": "AAAA====AAAA"}, "invalid_audio", "audio"),
    "half a sample": ({"type": APPEND, "audio": base64.b64encode(b"abc").decode()}, "invalid_audio", "audio"),
    "audio that is no text": ({"type": APPEND, "audio": [0, 0]}, "invalid_type", "audio"),
    "no audio": ({"type": APPEND}, "missing_required_parameter", "audio"),
    "an unknown event": ({"type": "input_audio_buffer.rewind"}, "invalid_value", "type"),
    "an event without a type": ({"audio": "AAAA"}, "missing_required_parameter", "type"),
    "a type that is no text": ({"type": 7}, "invalid_type", "type"),
    "an unknown item": (
        {"type": "conversation.item.retrieve", "item_id": "item_x"},
        "item_retrieve_invalid_item_id",
        "item_id",
    ),
    "half a character": (r'{"type":"conversation.item.retrieve","item_id":"\ud83d"}', "invalid_value", "item_id"),
    "an unknown item to delete": (
        {"type": "conversation.item.delete", "item_id": "item_x"},
        "item_not_found",
        "item_id",
    ),
    "an unknown item to truncate": (
        {"type": "conversation.item.truncate", "item_id": "item_x", "content_index": 0, "audio_end_ms": 10},
        "item_not_found",
        "item_id",
    ),
    "a negative place to truncate": (
        {"type": "conversation.item.truncate", "item_id": "item_x", "content_index": 0, "audio_end_ms": -1},
        "invalid_value",
        "audio_end_ms",
    ),
    "a place behind an unknown item": (
        {
            "type": "conversation.item.create",
            "previous_item_id": "item_x",
            "item": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
        },
        "item_not_found",
        "previous_item_id",
    ),
    "a result that no tool was asked for": (
        {"type": "conversation.item.create", "item": {"type": "function_call_output", "call_id": "c", "output": "1"}},
        "call_not_found",
        "item.call_id",
    ),
    "a cancel with nothing active": ({"type": "response.cancel"}, "response_cancel_not_active", None),
    "a commit of nothing": ({"type": "input_audio_buffer.commit"}, "input_audio_buffer_commit_empty", None),
    "a wrong setting": (
        {"type": "session.update", "session": {"type": "realtime", "output_modalities": ["smell"]}},
        "invalid_value",
        "session.output_modalities",
    ),
}


@pytest.mark.parametrize("name", WRONG)
async def test_a_wrong_message_is_answered_with_its_typed_error_and_a_turn_after_it(
    server: ServerProcess, name: str
) -> None:
    message, code, param = WRONG[name]
    async with connected(server) as peer:
        await peer.send({**message, "event_id": "mine"} if isinstance(message, Mapping) else message)
        error = await peer.refused()
        assert (error["type"], error["code"]) == ("invalid_request_error", code)
        assert error["param"] is None if param is None else error["param"].startswith(param)
        assert error["event_id"] == ("mine" if isinstance(message, Mapping) else None)
        assert error["message"]
        await answers(peer)


async def test_wrong_messages_in_the_middle_of_speech_are_not_heard(server: ServerProcess) -> None:
    """Junk between the pieces of a sentence is neither noise in it nor a hole."""
    async with connected(server, LISTENING) as peer:
        errors = await answers_speech(peer, between={"type": APPEND, "audio": "!" * 400})
        assert len(errors) > 50
        assert {error["code"] for error in errors} == {"invalid_audio"}


async def test_text_that_is_not_utf_8_ends_the_connection_and_nothing_else(server: ServerProcess) -> None:
    """RFC 6455 section 8.1 leaves no other choice."""
    async with connected(server) as peer:
        await peer.socket.send(b"\xff\xfe", text=True)
        with pytest.raises(ConnectionClosed) as closed:
            await peer.until("error")
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1007
    async with connected(server) as peer:
        await answers(peer)


# --- commands out of turn ------------------------------------------------------------------------------------------


async def long_reply(peer: Peer) -> dict[str, Any]:
    """Have the short reply, then begin the long one; returns its first delta."""
    await answers(peer, SHORT)
    await peer.ask()
    return await peer.until(DELTA)


def epoch_is_clean(events: list[dict[str, Any]]) -> bool:
    """Whether no delta of an older epoch follows one of a newer."""
    epochs = [event["x_epoch"] for event in events if event["type"] == DELTA]
    return epochs == sorted(epochs)


async def test_a_second_response_is_refused_and_the_first_goes_on_unbroken(server: ServerProcess) -> None:
    async with connected(server) as peer:
        first = await long_reply(peer)
        await peer.send({"type": "response.create", "event_id": "mine"})
        error = await peer.refused()
        assert (error["code"], error["event_id"]) == ("conversation_already_has_active_response", "mine")
        assert first["response_id"] in error["message"]
        mark = len(peer.events)
        for _ in range(20):
            await peer.until(DELTA)
        assert {event["type"] for event in peer.events[mark:]} == {DELTA}
        await peer.send({"type": "response.cancel"})
        done = await peer.until("response.done")
        assert (done["response"]["id"], done["response"]["status"]) == (first["response_id"], "cancelled")
        numbers = [event["x_seq"] for event in peer.events if event["type"] == DELTA]
        assert numbers == list(range(len(numbers)))
        await answers(peer, NEXT)
        assert epoch_is_clean(peer.events)


async def test_a_second_cancel_and_one_of_a_finished_response_are_refused(server: ServerProcess) -> None:
    async with connected(server) as peer:
        first = await long_reply(peer)
        await peer.send({"type": "response.cancel", "response_id": "resp_x"})
        error = await peer.refused()
        assert (error["code"], error["param"]) == ("response_cancel_not_active", "response_id")
        await peer.send({"type": "response.cancel"})
        await peer.send({"type": "response.cancel"})
        assert (await peer.refused())["code"] == "response_cancel_not_active"
        await peer.send({"type": "response.cancel", "response_id": first["response_id"]})
        assert (await peer.refused())["code"] == "response_cancel_not_active"
        await answers(peer, NEXT)


def spoken_item(peer: Peer) -> str:
    """The id of the newest item that the agent spoke."""
    return str([event["item_id"] for event in peer.events if event["type"] == DELTA][-1])


def truncate(item: str, ms: int) -> dict[str, object]:
    return {"type": "conversation.item.truncate", "item_id": item, "content_index": 0, "audio_end_ms": ms}


async def test_a_truncate_beyond_the_end_is_refused_with_the_true_length(server: ServerProcess) -> None:
    async with connected(server) as peer:
        await answers(peer)
        item = spoken_item(peer)
        await peer.send({**truncate(item, 301), "event_id": "mine"})
        error = await peer.refused()
        assert (error["code"], error["param"], error["event_id"]) == ("audio_shorter", "audio_end_ms", "mine")
        assert "300 ms" in error["message"]
        await peer.send({"type": "conversation.item.retrieve", "item_id": item})
        assert (await peer.until("conversation.item.retrieved"))["item"]["status"] == "completed"
        await peer.send({"type": "response.create"})
        await peer.until(DELTA)


async def test_a_truncate_counts_from_the_beginning_of_its_own_item(server: ServerProcess) -> None:
    """Not from the beginning of the session, nor of the item before."""
    async with connected(server) as peer:
        items = []
        for tone in (SHORT, LONG, NEXT):
            if tone == LONG:
                await peer.ask()
                await peer.until(DELTA)
                await peer.send({"type": "response.cancel"})
                await peer.until("response.done")
                continue
            await answers(peer, tone)
            await peer.listen()
            items.append(spoken_item(peer))
        for item in items:
            await peer.send(truncate(item, 301))
            assert (await peer.refused())["code"] == "audio_shorter"
            await peer.send(truncate(item, 299))
            assert (await peer.until("conversation.item.truncated"))["audio_end_ms"] == 299
        await answers(peer)


@pytest.mark.parametrize("places", [(0, 0), (0, 200), (200, 0), (200, 250), (250, 200)])
async def test_a_truncate_at_any_place_and_a_second_one_only_shorten(
    server: ServerProcess, places: tuple[int, int]
) -> None:
    async with connected(server) as peer:
        await answers(peer)
        await peer.listen()
        item = spoken_item(peer)
        told = []
        for place in places:
            await peer.send(truncate(item, place))
            told.append((await peer.until("conversation.item.truncated"))["audio_end_ms"])
        assert told == [places[0], min(places)]
        await peer.send({"type": "conversation.item.retrieve", "item_id": item})
        assert (await peer.until("conversation.item.retrieved"))["item"]["status"] == "incomplete"
        await peer.ask()
        await peer.until(DELTA)


@pytest.mark.parametrize("place", [0, 60_000])
async def test_a_truncate_of_what_is_playing_cuts_it_where_it_was_heard_at_most(
    server: ServerProcess, place: int
) -> None:
    async with connected(server) as peer:
        await long_reply(peer)
        for _ in range(15):
            await peer.until(DELTA)
        item = spoken_item(peer)
        await peer.send(truncate(item, place))
        done = await peer.until("response.done")
        assert done["response"]["status"] == "cancelled"
        cut = await peer.until("conversation.item.truncated")
        sent = len(peer.audio_of(done["response"]["id"])) * 1000 // RATE
        assert cut["audio_end_ms"] == 0 if place == 0 else 0 < cut["audio_end_ms"] <= sent
        await answers(peer, NEXT)
        assert epoch_is_clean(peer.events)


# --- audio in pieces of any size -----------------------------------------------------------------------------------


@pytest.mark.parametrize("ms", [10, 37, 5000])
async def test_speech_in_appends_of_any_length_is_heard_and_answered(server: ServerProcess, ms: int) -> None:
    async with connected(server, LISTENING) as peer:
        assert await answers_speech(peer, ms=ms) == []


# --- peers that do not read, and peers that vanish -----------------------------------------------------------------

UNREAD_MAX = 200_000
"""Bytes that may wait for a peer that does not read, below and above the socket: see `server.carriers`."""


def fixed_buffer(server: ServerProcess) -> socket.socket:
    """A connection whose kernel takes a fixed amount for a reader that does not come, instead of ever more."""
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    raw.connect(("127.0.0.1", server.port))
    raw.setblocking(False)
    return raw


async def test_a_client_that_stops_reading_for_five_seconds_is_sent_no_more_than_a_bound_and_then_goes_on(
    server: ServerProcess,
) -> None:
    loop = asyncio.get_running_loop()
    async with connected(server, LISTENING, fixed_buffer(server)) as peer:
        await long_reply(peer)
        unsent = []
        stop = loop.time() + 5
        while loop.time() < stop:
            seen = await metrics(server)
            unsent.append(seen["talkover_unsent_bytes"])
            assert seen["talkover_mail_waiting"] < 100
            await asyncio.sleep(0.1)
        assert 20_000 < max(unsent) < UNREAD_MAX, unsent
        assert (await metrics(server))["talkover_sessions"] == 1
        done = await peer.until("response.done")
        assert done["response"]["status"] == "completed"
        pcm = peer.audio_of(done["response"]["id"])
        assert len(pcm) == 7 * RATE
        assert [hz for hz, _ in tones_in(pcm)] == [LONG]
        numbers = [event["x_seq"] for event in peer.events if event["type"] == DELTA]
        assert numbers == list(range(len(numbers)))
        await answers_speech(peer, NEXT)


async def test_after_a_cancel_a_client_that_did_not_read_gets_only_what_was_on_its_way(server: ServerProcess) -> None:
    async with connected(server, raw=fixed_buffer(server)) as peer:
        await long_reply(peer)
        await metrics(server, lambda seen: seen["talkover_unsent_bytes"] > 20_000)
        await peer.send({"type": "response.cancel"})
        done = await peer.until("response.done")
        assert done["response"]["status"] == "cancelled"
        await answers(peer, NEXT)
        assert epoch_is_clean(peer.events)


async def test_a_message_of_twenty_megabytes_is_refused_and_the_session_goes_on(server: ServerProcess) -> None:
    async with connected(server) as peer:
        await peer.send({"type": APPEND, "audio": "A" * 20_000_000})
        error = await peer.refused()
        assert error["code"] == "message_too_large"
        assert "20000" in error["message"]
        await answers(peer)


async def test_ten_thousand_messages_at_once_are_all_answered_in_their_order(server: ServerProcess) -> None:
    async with connected(server) as peer:
        before = server.rss
        asked = [f"evt_{n}" for n in range(10_000)]
        message = {"type": "conversation.item.retrieve", "item_id": "item_x"}
        raw = [json.dumps({**message, "event_id": name}) for name in asked]

        async def flood() -> None:
            for text in raw:
                await peer.send(text)
                await asyncio.sleep(0)  # whoever never reads is a slow consumer, and is told to go

        flooding = asyncio.create_task(flood())
        refused = [(await peer.refused())["event_id"] for _ in asked]
        await flooding
        assert refused == asked
        assert server.rss - before < FLOOD_MAX
        await answers(peer)


async def test_a_truncate_of_what_the_user_said_is_refused(server: ServerProcess) -> None:
    async with connected(server) as peer:
        await peer.ask()
        await peer.until("response.done")
        user = next(
            event["item"]["id"]
            for event in peer.events
            if event["type"] == "conversation.item.added" and event["item"]["role"] == "user"
        )
        await peer.send({"type": "conversation.item.truncate", "item_id": user, "content_index": 0, "audio_end_ms": 0})
        error = await peer.refused()
        assert error["param"] == "item_id"
        await peer.ask()
        await peer.until("response.created")


async def test_a_peer_that_does_not_read_costs_its_neighbour_nothing(server: ServerProcess) -> None:
    """Frame by frame, beside a peer that stopped reading in a long reply and floods the server all the while."""
    loop = asyncio.get_running_loop()
    async with connected(server, raw=fixed_buffer(server)) as stuck, connected(server) as healthy:
        await long_reply(stuck)
        before = server.rss

        async def flood() -> None:
            room = quiet(0.02)
            while True:
                await stuck.append(room)
                await stuck.send({"type": "conversation.item.retrieve", "item_id": "item_x"})

        flooding = asyncio.create_task(flood())
        try:
            await long_reply(healthy)
            late = []
            while len(late) < 150:
                event = await healthy.read()
                if event["type"] == DELTA:
                    began = healthy.began[event["response_id"]]
                    content = len(healthy.audio_of(event["response_id"])) / RATE
                    late.append(loop.time() - began - content)
        finally:
            flooding.cancel()
            await asyncio.gather(flooding, return_exceptions=True)
        # Only a stall of the whole server is told apart here; what a frame is late by is measured elsewhere.
        assert max(late) < 1.0, late
        assert server.rss - before < FLOOD_MAX


MOMENTS = (
    "session.created",
    "session.updated",
    "error",
    "input_audio_buffer.speech_started",
    "input_audio_buffer.speech_stopped",
    "input_audio_buffer.committed",
    HEARD,
    "response.created",
    "response.output_item.added",
    DELTA,
    "response.done",
    "conversation.item.added",
    "conversation.item.retrieved",
    "the middle of a long reply",
    "x_talkover.held",
    "x_talkover.epoch_began",
    "conversation.item.truncated",
)


async def story(peer: Peer, moment: str) -> None:
    """Walk through a conversation up to `moment`."""

    async def reached(kind: str) -> bool:
        while peer.events[-1]["type"] != kind:
            if peer.events[-1]["type"] == moment:
                return True
            await peer.read()
        return kind == moment

    async with asyncio.timeout(PATIENCE):
        if await reached("session.created"):
            return
        await peer.send({"type": "session.update", "session": LISTENING})
        if await reached("session.updated"):
            return
        await peer.send("{")
        if await reached("error"):
            return
        await peer.append(question(2.0))
        if await reached("response.done"):
            return
        await peer.ask()
        await peer.read()
        if await reached("conversation.item.added"):
            return
        await peer.send({"type": "conversation.item.retrieve", "item_id": peer.events[-1]["item"]["id"]})
        if await reached("conversation.item.retrieved"):
            return
        for _ in range(30):
            await peer.read()
            await reached(DELTA)
        if moment == "the middle of a long reply":
            return
        await peer.append(question(2.0))
        if await reached("x_talkover.epoch_began"):
            return
        await peer.send(truncate(spoken_item(peer), 0))
        await peer.read()
        if await reached("conversation.item.truncated"):
            return
    raise Failed(f"{moment} did not come")


def pulled(peer: Peer) -> None:
    """The cable is pulled: no goodbye, the kernel resets the connection."""
    raw = peer.socket.transport.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.socket.transport.abort()


def left(peer: Peer) -> None:
    """The process ended: the kernel says goodbye, WebSocket does not."""
    peer.socket.transport.close()


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_socket_that_drops_at_any_moment_leaves_nothing_behind(server: ServerProcess, moment: str) -> None:
    async def one(end: Any) -> None:
        socket = await connect(server.realtime_url, compression=None, proxy=None, max_size=None)
        peer = Peer(socket)
        await peer.read()
        await story(peer, moment)
        end(peer)

    await asyncio.gather(one(pulled), one(left))
    await unharmed(server)


@pytest.mark.parametrize("sent", [0, 1, 20, 150])
async def test_a_handshake_that_breaks_off_leaves_nothing_behind(server: ServerProcess, sent: int) -> None:
    request = (
        f"GET /v1/realtime?model=m HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ).encode()
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(request[:sent] if sent < 150 else request)
    await writer.drain()
    writer.transport.abort()
    await unharmed(server)


async def test_a_message_that_breaks_off_leaves_nothing_behind(server: ServerProcess) -> None:
    async with connected(server) as peer:
        # A masked text frame that announces 60,000 bytes, and a few of them.
        peer.socket.transport.write(b"\x81\xfe" + struct.pack("!H", 60_000) + b"\x00\x00\x00\x00" + b'{"type":"resp')
        pulled(peer)
    await unharmed(server)


async def test_after_all_this_the_server_answers_and_every_recording_of_it_re_runs_identically(
    server: ServerProcess, recordings: Path
) -> None:
    async with connected(server, LISTENING) as peer:
        await answers_speech(peer)
    await unharmed(server)
    for folder in recordings.iterdir():
        result = rerun(folder)
        assert result.identical, f"{folder.name}: {result.difference}"
    assert "sess_" not in server.log, server.log
