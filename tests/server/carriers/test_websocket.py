"""The carrier alone: socket, wire and session are played by the test, and time does not pass."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from starlette.websockets import WebSocketDisconnect

from server.carriers import websocket as module
from server.carriers.uvicorn_websocket import EXTENSION
from server.carriers.websocket import SLOW_CONSUMER, STALE_AT_GATE, WebSocketCarrier
from server.dialects.base import InputAudio, ItemAudio, Received
from sessions.core.config import SessionConfig
from sessions.core.events import (
    CarrierBlocked,
    CarrierLost,
    CarrierReady,
    CommandRejected,
    Event,
    InputCommit,
    ItemCreate,
)
from sessions.core.fence import OUT_OF_BAND, Fence
from sessions.core.notices import (
    CommandFailed,
    Held,
    ItemView,
    Notice,
    OutputClosed,
    OutputText,
    ResponseClosed,
    ResponseOpened,
    ResponseView,
    SpeechStarted,
)
from sessions.ports import OutputFrame

OLD, NEW = Fence("s", 1, 0), Fence("s", 1, 1)
BESIDE = Fence("s", 1, OUT_OF_BAND)
VIEW = ResponseView("r", "completed", "audio")
SPEECH = SpeechStarted("u", 0)


def frame(number: int, fence: Fence = OLD) -> OutputFrame:
    return OutputFrame(fence, number, "r", "i", number * 960, (number + 1) * 960, number * 960, bytes(960), 24000)


class PlainDialect:
    """Says what it was given, so that a test reads the order off the wire."""

    config = SessionConfig()

    def __init__(self) -> None:
        self.flushed: list[Fence] = []
        self.broken = False

    def open(self, session: str) -> list[str]:
        return [f"hello {session}"]

    def receive(self, message: str | bytes) -> list[Received]:
        if message == "audio":
            return [InputAudio(b"ab", 24000)]
        if message == "item":
            return [ItemAudio(ItemCreate("user"), b"cd", 8000)]
        return [InputCommit(str(message))]

    def send(self, notice: Notice) -> list[str]:
        if self.broken:
            raise KeyError("a fault of ours")
        name = type(notice).__name__
        return [f"{name} a", f"{name} b"] if isinstance(notice, OutputClosed) else [name]

    def send_frame(self, frame: OutputFrame) -> list[str]:
        return [f"audio {frame.sequence}"]

    def flush(self, fence: Fence) -> None:
        self.flushed.append(fence)


class Wire:
    """Room as the test gives it."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self.failed: list[tuple[int, str]] = []
        self.failing = asyncio.Event()
        self.left: int | None = None
        self.writes: list[tuple[str, ...]] = []
        self.put: Callable[[str], None] = lambda text: None

    def write(self, *messages: str) -> None:
        self.writes.append(messages)
        for text in messages:
            self.put(text)

    def has_room(self) -> bool:
        return self._open.is_set()

    async def room(self) -> None:
        await self._open.wait()

    def unsent(self) -> int:
        return 0 if self.has_room() else 100

    def fail(self, code: int, reason: str) -> None:
        self.failed.append((code, reason))
        self.failing.set()
        self.open()

    def take(self, deliver: Callable[[str | bytes], bool]) -> None:
        """A wire that hands nothing over: everything comes by ASGI. The real one is tested beside it."""

    def resume(self) -> None: ...

    def shut(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()


class Socket:
    """An accepted WebSocket. `shut_after` messages the wire has no more room."""

    def __init__(self, wire: Wire | None) -> None:
        self.scope: dict[str, Any] = {"extensions": {} if wire is None else {EXTENSION: {"wire": wire}}}
        self._wire = wire
        self.incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.sent: list[str] = []
        self.closed: tuple[int, str] | None = None
        self.shut_after: int | None = None
        self.lost = False
        if wire is not None:
            wire.put = self.write

    async def receive(self) -> dict[str, Any]:
        return await self.incoming.get()

    async def send_text(self, text: str) -> None:
        if self.lost:
            raise WebSocketDisconnect(1006)
        self.write(text)

    def write(self, text: str) -> None:
        if self.lost:
            return  # a wire tells nobody: the reader learns it
        assert self._wire is None or self._wire.has_room(), "written without room"
        self.sent.append(text)
        if self._wire is not None and self.shut_after is not None and len(self.sent) >= self.shut_after:
            self._wire.shut()

    async def close(self, code: int, reason: str) -> None:
        self.closed = (code, reason)
        self.incoming.put_nowait({"type": "websocket.disconnect", "code": code})


class Handle:
    session = "sess_1"

    def __init__(self) -> None:
        self.posted: list[Event] = []
        self.heard: list[tuple[bytes, int]] = []
        self.items: list[tuple[ItemCreate, bytes, int]] = []
        self.free = asyncio.Event()
        self.free.set()

    def post(self, event: Event) -> None:
        self.posted.append(event)

    def audio(self, pcm: bytes, rate: int) -> None:
        self.heard.append((pcm, rate))

    def item(self, create: ItemCreate, pcm: bytes, rate: int) -> None:
        self.items.append((create, pcm, rate))

    @property
    def has_room(self) -> bool:
        return self.free.is_set()

    async def room(self) -> None:
        await self.free.wait()

    async def parted(self) -> None:
        return


class Scene:
    def __init__(self, wire: bool = True, **limits: int) -> None:
        self.wire = Wire()
        self.socket = Socket(self.wire if wire else None)
        self.handle = Handle()
        self.dialect = PlainDialect()
        self.counts: Counter[str] = Counter()
        self.carrier = WebSocketCarrier(self.socket, self.dialect, self, **limits)  # type: ignore[arg-type]
        self.running: asyncio.Task[str] | None = None

    def add(self, name: str, by: int = 1) -> None:
        self.counts[name] += by

    async def start(self) -> None:
        self.running = asyncio.create_task(self.carrier.run(self.handle))
        await self.settle()
        assert self.socket.sent[:1] == ["hello sess_1"]
        self.socket.sent.clear()

    async def settle(self) -> None:
        """Let everything that can run, run; nothing here waits for time."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def sent(self) -> list[str]:
        await self.settle()
        texts, self.socket.sent = self.socket.sent, []
        return texts

    def receive(self, **message: Any) -> None:
        self.socket.incoming.put_nowait({"type": "websocket.receive", **message})

    async def disconnect(self, code: int = 1006) -> str:
        self.socket.incoming.put_nowait({"type": "websocket.disconnect", "code": code})
        return await self.finish()

    async def finish(self) -> str:
        assert self.running is not None
        async with asyncio.timeout(5):
            return await self.running


S = TypeVar("S", bound=Scene)


@asynccontextmanager
async def building(kind: Callable[..., S]) -> AsyncIterator[Callable[..., S]]:
    """Builds scenes; whatever of them still runs at the end is ended."""
    scenes: list[S] = []

    def build(**options: Any) -> S:
        scenes.append(kind(**options))
        return scenes[-1]

    yield build
    for scene in scenes:
        if scene.running is not None and not scene.running.done():
            scene.running.cancel()
            await asyncio.gather(scene.running, return_exceptions=True)


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Scene]]:
    async with building(Scene) as build:
        yield build


@pytest.fixture
async def scene(make: Callable[..., Scene]) -> Scene:
    made = make()
    await made.start()
    return made


# --- out -----------------------------------------------------------------------------------------------------------


async def test_the_greeting_goes_before_what_was_queued_earlier(make: Callable[..., Scene]) -> None:
    scene = make()
    scene.carrier.notify(SPEECH)
    scene.running = asyncio.create_task(scene.carrier.run(scene.handle))
    assert await scene.sent() == ["hello sess_1", "SpeechStarted"]


async def test_audio_and_notices_keep_their_order(scene: Scene) -> None:
    scene.carrier.notify(ResponseOpened(VIEW))
    scene.carrier.admit(frame(0))
    scene.carrier.notify(SPEECH)
    scene.carrier.admit(frame(1))
    scene.carrier.notify(ResponseClosed(VIEW))
    assert await scene.sent() == ["ResponseOpened", "audio 0", "SpeechStarted", "audio 1", "ResponseClosed"]


async def test_a_hold_stops_audio_at_once_and_resume_goes_on_at_the_next_unsent_frame(scene: Scene) -> None:
    scene.carrier.admit(frame(0))
    assert await scene.sent() == ["audio 0"]
    scene.carrier.hold()
    scene.carrier.admit(frame(1))
    scene.carrier.admit(frame(2))
    assert await scene.sent() == []
    scene.carrier.resume()
    assert await scene.sent() == ["audio 1", "audio 2"]


async def test_a_frame_with_nothing_ahead_of_it_is_written_in_the_step_that_admits_it(scene: Scene) -> None:
    await scene.settle()
    scene.carrier.admit(frame(0))
    assert scene.socket.sent == ["audio 0"]
    scene.carrier.notify(SPEECH)
    scene.carrier.admit(frame(1))
    assert scene.socket.sent == ["audio 0"]
    assert await scene.sent() == ["audio 0", "SpeechStarted", "audio 1"]


async def test_a_frame_that_finds_no_room_or_an_old_gate_is_not_written_in_passing(scene: Scene) -> None:
    await scene.settle()
    scene.wire.shut()
    scene.carrier.admit(frame(0))
    assert await scene.sent() == []
    scene.wire.open()
    assert await scene.sent() == ["audio 0"]
    scene.carrier.flush(Fence("sess_1", 1, 1))
    scene.carrier.admit(frame(1))
    assert await scene.sent() == []
    assert scene.counts[STALE_AT_GATE] == 1


async def test_held_audio_is_overtaken_by_everything_but_its_own_response(scene: Scene) -> None:
    scene.carrier.hold()
    scene.carrier.admit(frame(0))
    scene.carrier.notify(OutputText("r", 0, "i", " word", True))
    scene.carrier.notify(Held(5))
    scene.carrier.notify(ResponseClosed(VIEW))
    scene.carrier.notify(SPEECH)
    assert await scene.sent() == ["Held", "SpeechStarted"]
    scene.carrier.resume()
    assert await scene.sent() == ["audio 0", "OutputText", "ResponseClosed"]


async def test_a_responses_notices_go_on_in_a_hold_when_no_audio_is_ahead_of_them(scene: Scene) -> None:
    scene.carrier.hold()
    scene.carrier.notify(OutputText("r", 0, "i", "text", False))
    scene.carrier.admit(frame(0))
    scene.carrier.notify(ResponseClosed(VIEW))
    assert await scene.sent() == ["OutputText"]


# --- the gate ------------------------------------------------------------------------------------------------------


async def test_a_flush_throws_queued_audio_away_in_the_same_step(scene: Scene) -> None:
    scene.carrier.hold()
    for number in range(3):
        scene.carrier.admit(frame(number))
    scene.carrier.flush(NEW)
    scene.carrier.notify(SPEECH)
    scene.carrier.admit(frame(3, NEW))
    assert await scene.sent() == ["SpeechStarted", "audio 3"]
    assert scene.dialect.flushed == [NEW]
    assert scene.counts == {"cleared_frames": 3}
    assert scene.carrier.waiting == 0


async def test_a_flush_keeps_the_end_of_the_response_but_not_captions_of_words_that_were_never_sent(
    scene: Scene,
) -> None:
    item = ItemView("i", "assistant", "message", "incomplete", "one", True)
    scene.carrier.hold()
    scene.carrier.admit(frame(0))
    scene.carrier.notify(OutputText("r", 0, "i", " unheard", True))
    scene.carrier.notify(OutputClosed("r", 0, item, None))
    scene.carrier.notify(ResponseClosed(VIEW))
    scene.carrier.flush(NEW)
    assert await scene.sent() == ["OutputClosed a", "OutputClosed b", "ResponseClosed"]


async def test_a_frame_of_a_dead_epoch_stops_at_the_gate_and_is_counted(scene: Scene) -> None:
    scene.carrier.flush(NEW)
    scene.carrier.admit(frame(0, OLD))
    scene.carrier.admit(frame(1, replace(NEW, epoch=2)))
    scene.carrier.admit(frame(2, replace(NEW, incarnation=2)))
    scene.carrier.admit(frame(3, NEW))
    assert await scene.sent() == ["audio 3"]
    assert scene.counts[STALE_AT_GATE] == 3


async def test_each_frame_of_those_that_leave_together_passes_the_gate_by_itself(scene: Scene) -> None:
    await scene.settle()
    scene.carrier.flush(NEW)
    await scene.settle()
    scene.wire.writes.clear()
    scene.carrier.admit(frame(0, NEW), frame(1, OLD), frame(2, NEW))
    assert scene.wire.writes == [("audio 0", "audio 2")]
    assert scene.counts[STALE_AT_GATE] == 1


async def test_frames_that_leave_together_wait_together_where_there_is_no_room(scene: Scene) -> None:
    await scene.settle()
    scene.wire.shut()
    scene.carrier.admit(frame(0), frame(1))
    scene.carrier.admit(frame(2))
    assert scene.carrier.waiting > 0
    assert scene.socket.sent == []
    scene.carrier.flush(NEW)
    scene.wire.open()
    assert await scene.sent() == []
    assert scene.counts["cleared_frames"] == 3


async def test_audio_out_of_band_that_comes_first_does_not_shut_out_the_conversation(scene: Scene) -> None:
    scene.carrier.admit(frame(0, BESIDE))
    scene.carrier.admit(frame(1, OLD))
    assert await scene.sent() == ["audio 0", "audio 1"]
    assert scene.counts[STALE_AT_GATE] == 0


async def test_a_flush_leaves_audio_out_of_band_and_its_captions(scene: Scene) -> None:
    scene.carrier.hold()
    scene.carrier.admit(frame(0))
    scene.carrier.admit(replace(frame(1, BESIDE), response="aside"))
    scene.carrier.notify(OutputText("r", 0, "i", " unheard", True))
    scene.carrier.notify(OutputText("aside", 0, "j", " kept", True))
    scene.carrier.flush(NEW)
    assert await scene.sent() == ["audio 1", "OutputText"]
    assert scene.carrier.waiting == 0


async def test_nothing_old_passes_when_the_flush_comes_while_the_writer_waits_for_room(scene: Scene) -> None:
    scene.wire.shut()
    scene.carrier.admit(frame(0))
    await scene.settle()
    scene.carrier.admit(frame(1))
    await scene.settle()
    scene.carrier.flush(NEW)
    scene.carrier.admit(frame(2, NEW))
    scene.wire.open()
    assert await scene.sent() == ["audio 2"]


async def test_room_that_is_gone_again_before_the_writer_runs_decides_nothing(scene: Scene) -> None:
    scene.wire.shut()
    scene.carrier.admit(frame(0))
    await scene.settle()
    scene.wire.open()
    scene.wire.shut()
    await scene.settle()
    scene.carrier.flush(NEW)
    scene.carrier.admit(frame(1, NEW))
    scene.wire.open()
    assert await scene.sent() == ["audio 1"]


async def test_a_notice_of_several_messages_waits_for_room_between_them(scene: Scene) -> None:
    item = ItemView("i", "assistant", "message", "completed")
    scene.socket.shut_after = 1
    scene.carrier.notify(OutputClosed("r", 0, item, None))
    assert await scene.sent() == ["OutputClosed a"]
    scene.socket.shut_after = None
    scene.wire.open()
    assert await scene.sent() == ["OutputClosed b"]


# --- peers that do not read ----------------------------------------------------------------------------------------


async def test_a_peer_that_does_not_read_is_reported_once_and_again_when_it_reads(make: Callable[..., Scene]) -> None:
    scene = make(blocked_after=2000)
    await scene.start()
    scene.wire.shut()
    for number in range(5):
        scene.carrier.admit(frame(number))
    await scene.settle()
    assert scene.handle.posted == [CarrierBlocked(3 * 960 + 100)]
    scene.wire.open()
    assert await scene.sent() == [f"audio {n}" for n in range(5)]
    assert scene.handle.posted[1:] == [CarrierReady()]


async def test_audio_that_waits_because_of_a_hold_is_not_a_blocked_peer(make: Callable[..., Scene]) -> None:
    scene = make(blocked_after=2000)
    await scene.start()
    scene.carrier.hold()
    for number in range(5):
        scene.carrier.admit(frame(number))
    await scene.settle()
    assert scene.handle.posted == []


async def test_a_flush_lets_a_blocked_peer_be_ready_as_soon_as_there_is_room(make: Callable[..., Scene]) -> None:
    scene = make(blocked_after=900)
    await scene.start()
    scene.wire.shut()
    scene.carrier.admit(frame(0))
    scene.carrier.flush(NEW)
    await scene.settle()
    assert [type(event) for event in scene.handle.posted] == [CarrierBlocked]
    scene.wire.open()
    await scene.settle()
    assert [type(event) for event in scene.handle.posted] == [CarrierBlocked, CarrierReady]


async def test_a_peer_that_lets_notices_pile_up_is_given_up_with_a_reason(make: Callable[..., Scene]) -> None:
    scene = make(control_max=10_000)
    await scene.start()
    scene.wire.shut()
    for _ in range(30):
        scene.carrier.notify(CommandFailed("x", "y" * 200))
    assert [code for code, _ in scene.wire.failed] == [1013]
    assert scene.handle.posted == [CarrierLost(SLOW_CONSUMER)]
    assert scene.counts[SLOW_CONSUMER] == 1
    assert await scene.sent() == []
    await scene.disconnect()
    assert len(scene.handle.posted) == 1


async def test_many_notices_to_a_peer_that_reads_are_no_reason_to_part(make: Callable[..., Scene]) -> None:
    scene = make(control_max=10_000)
    await scene.start()
    for _ in range(100):
        scene.carrier.notify(CommandFailed("x", "y" * 200))
    assert len(await scene.sent()) == 100
    assert scene.wire.failed == []


# --- in ------------------------------------------------------------------------------------------------------------


async def test_audio_items_and_commands_reach_the_session(scene: Scene) -> None:
    for text in ("audio", "item", "commit"):
        scene.receive(text=text)
    scene.receive(bytes=b"\0", text=None)
    await scene.settle()
    assert scene.handle.heard == [(b"ab", 24000)]
    assert scene.handle.items == [(ItemCreate("user"), b"cd", 8000)]
    assert scene.handle.posted == [InputCommit("commit"), InputCommit("b'\\x00'")]


async def test_a_message_that_is_too_large_is_refused_and_the_session_goes_on(make: Callable[..., Scene]) -> None:
    scene = make(max_message=10)
    await scene.start()
    scene.receive(text="x" * 11)
    scene.receive(text="x" * 10)
    await scene.settle()
    refused, taken = scene.handle.posted
    assert isinstance(refused, CommandRejected)
    assert refused.code == "message_too_large"
    assert taken == InputCommit("x" * 10)


async def test_a_peer_that_sends_faster_than_the_session_works_is_not_read(scene: Scene) -> None:
    scene.handle.free.clear()
    scene.receive(text="one")
    scene.receive(text="two")
    await scene.settle()
    assert scene.handle.posted == [InputCommit("one")]
    scene.handle.free.set()
    await scene.settle()
    assert scene.handle.posted == [InputCommit("one"), InputCommit("two")]


# --- the end -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "reason"), [(1000, "client_closed"), (1006, "connection_lost"), (1005, "connection_lost")]
)
async def test_a_peer_that_goes_is_told_to_the_session_once(scene: Scene, code: int, reason: str) -> None:
    scene.carrier.admit(frame(0))
    assert await scene.disconnect(code) == reason
    assert scene.handle.posted == [CarrierLost(reason)]
    scene.carrier.admit(frame(1))
    scene.carrier.notify(SPEECH)
    scene.carrier.end("late")
    assert scene.carrier.waiting == 0


async def test_a_write_that_fails_ends_the_writer_and_the_reader_tells(scene: Scene) -> None:
    scene.socket.lost = True
    scene.carrier.notify(SPEECH)
    await scene.settle()
    assert scene.handle.posted == []
    assert await scene.disconnect() == "connection_lost"
    assert [type(event) for event in scene.handle.posted] == [CarrierLost]


@pytest.mark.parametrize(("reason", "code"), [("closed", 1000), ("server_shutdown", 1001), ("internal_error", 1011)])
async def test_the_end_of_the_session_closes_after_what_was_queued(scene: Scene, reason: str, code: int) -> None:
    scene.carrier.admit(frame(0))
    scene.carrier.notify(SPEECH)
    scene.carrier.end(reason)
    scene.carrier.end("twice")
    scene.carrier.notify(SPEECH)
    assert await scene.sent() == ["audio 0", "SpeechStarted"]
    assert scene.socket.closed == (code, reason)
    assert await scene.finish() == reason
    assert scene.handle.posted == []


async def test_held_audio_does_not_keep_a_finished_session_open(scene: Scene) -> None:
    scene.carrier.hold()
    scene.carrier.admit(frame(0))
    scene.carrier.notify(ResponseClosed(VIEW))
    scene.carrier.end("closed")
    assert await scene.sent() == ["ResponseClosed"]
    assert await scene.finish() == "closed"


async def test_a_peer_that_does_not_read_the_end_is_cut_off(
    make: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DRAIN_TIMEOUT", 0.0)
    scene = make()
    await scene.start()
    scene.wire.shut()
    scene.carrier.notify(SPEECH)
    scene.carrier.end("closed")
    async with asyncio.timeout(5):
        await scene.wire.failing.wait()
    assert scene.wire.failed[0][0] == 1013
    assert await scene.disconnect() == "closed"


async def test_a_fault_of_ours_in_the_writer_ends_the_session_and_is_logged(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.dialect.broken = True
    scene.carrier.notify(SPEECH)
    await scene.settle()
    assert scene.wire.failed == [(1011, "internal_error")]
    assert scene.handle.posted == [CarrierLost("internal_error")]
    assert "a fault of ours" in caplog.text


async def test_a_cancelled_run_leaves_nothing_behind(scene: Scene) -> None:
    assert scene.running is not None
    scene.running.cancel()
    await asyncio.gather(scene.running, return_exceptions=True)
    assert scene.handle.posted == [CarrierLost("cancelled")]
    assert not [task for task in asyncio.all_tasks() if task.get_name().endswith("-writer")]


async def test_behind_an_unknown_server_the_carrier_works_without_seeing_the_wire(make: Callable[..., Scene]) -> None:
    scene = make(wire=False)
    await scene.start()
    scene.carrier.admit(frame(0))
    assert await scene.sent() == ["audio 0"]
    assert scene.carrier.waiting == 0
    scene.carrier.end("closed")
    assert await scene.finish() == "closed"
