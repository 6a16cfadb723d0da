"""The carrier alone: connection, clock and session are played by the test; encoder and dialect are the real ones."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import pytest

from codec.opus import OpusDecoder
from server.carriers.webrtc import carrier as module
from server.carriers.webrtc import events as events_module
from server.carriers.webrtc.carrier import WebRtcCarrier
from server.carriers.webrtc.downlink import PACKET, SILENCE
from server.carriers.webrtc.events import EVENTS
from server.carriers.webrtc.life import GONE_AFTER, Life
from server.carriers.webrtc.pacer import Pacer
from server.carriers.webrtc.peer import PeerSettings
from server.carriers.webrtc.reports import PLAYBACK
from server.dialects.checks import Object
from server.dialects.realtime_track import TrackDialect
from sessions.core.config import SessionConfig
from sessions.core.events import CarrierLost, CommandRejected, Event, ItemCreate, PlaybackReported, ResponseCreate
from sessions.core.fence import Fence
from sessions.core.notices import (
    CommandFailed,
    ItemView,
    OutputOpened,
    OutputText,
    PlaybackStarted,
    ResponseClosed,
    ResponseOpened,
    ResponseView,
    SpeechStarted,
)
from sessions.ports import OutputFrame

OLD, NEW = Fence("s", 1, 0), Fence("s", 1, 1)
VIEW = ResponseView("r", "in_progress", "audio")
SPEECH = SpeechStarted("u", 0)


class Media:
    """Keeps what was sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, int, bytes]] = []
        self.reports: list[int] = []

    def send(self, sequence: int, timestamp: int, payload: bytes) -> bool:
        self.sent.append((sequence, timestamp, payload))
        return True

    def report(self, timestamp: int) -> None:
        self.reports.append(timestamp)


class Peer:
    def __init__(self, settings: PeerSettings, events: Any) -> None:
        self.media = Media()
        self.longest_message = 262_144
        self.closed = 0

    async def close(self) -> None:
        self.closed += 1


class Channel:
    """A data channel that is open."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.readyState = "open"
        self.bufferedAmount = 0
        self.sent: list[dict[str, Any]] = []
        self.deliver: Callable[[str | bytes], None] = lambda message: None
        self.drained: Callable[[], None] = lambda: None

    def on(self, name: str, handler: Callable[[str | bytes], None]) -> None:
        self.deliver = handler

    def once(self, name: str, handler: Callable[[], None]) -> None:
        self.drained = handler

    def send(self, message: str) -> None:
        self.sent.append(json.loads(message))

    def close(self) -> None:
        self.readyState = "closed"

    @property
    def kinds(self) -> list[str]:
        return [message["type"] for message in self.sent]


class Handle:
    """The session's side."""

    session = "sess_1"
    resume_token = "token"

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.heard: list[tuple[bytes, int, bool]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.over = asyncio.Event()
        self.posted = asyncio.Event()

    def post(self, event: Event) -> None:
        self.events.append(event)
        self.posted.set()

    def audio(self, pcm: bytes, rate: int, concealed: bool = False) -> None:
        self.heard.append((pcm, rate, concealed))

    def item(self, create: ItemCreate, pcm: bytes, rate: int) -> None: ...

    async def room(self) -> None:
        await self.gate.wait()

    async def parted(self) -> None:
        await self.over.wait()


class Counts(Counter[str]):
    def add(self, name: str, by: int = 1) -> None:
        self[name] += by


class Stage:
    """A carrier with everything around it, on a clock that stands still unless it is moved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, notices: bool = False) -> None:
        monkeypatch.setattr(module, "Peer", Peer)
        self.now = 50.0
        patch: Object = {"type": "realtime", "x_talkover": {"notices": notices}}
        self.dialect = TrackDialect("m", SessionConfig(), patches=[patch])
        self.counts = Counts()
        self.carrier = WebRtcCarrier(
            PeerSettings(), self.dialect, self.counts, Pacer(), output_rate=24_000, input_rate=16_000
        )
        monkeypatch.setattr(self.carrier, "_loop", self)
        self.carrier._life = Life(self.now)
        self.handle = Handle()
        self.channel = Channel(EVENTS)
        self.playback = Channel(PLAYBACK)

    def time(self) -> float:
        return self.now

    def create_task(self, work: Any, name: str) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(work, name=name)

    @property
    def media(self) -> Media:
        return cast("Any", self.carrier)._peer.media  # type: ignore[no-any-return]

    def connect(self) -> None:
        """As it goes: the session begins, the path is there, the channels open."""
        self.carrier.begin(self.handle)
        self.carrier.started()
        self.carrier.channel(cast("Any", self.channel))
        self.carrier.channel(cast("Any", self.playback))

    def tick(self, count: int = 1) -> None:
        for _ in range(count):
            self.now += 0.02
            self.carrier.alive()
            self.carrier.tick(1, 0)


@pytest.fixture
async def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(monkeypatch)


def frame(number: int, fence: Fence = OLD) -> OutputFrame:
    pcm = (b"\x00\x20" * 24 + b"\x00\xe0" * 24) * 10
    return OutputFrame(fence, number, "r", "i", number * PACKET, (number + 1) * PACKET, 0, pcm, 24_000)


async def test_the_greeting_comes_first_and_what_was_said_before_it_follows(stage: Stage) -> None:
    stage.carrier.notify(SPEECH)
    stage.connect()
    assert stage.channel.kinds == ["session.created", "input_audio_buffer.speech_started"]


async def test_events_wait_for_their_channel(stage: Stage) -> None:
    stage.carrier.begin(stage.handle)
    stage.carrier.notify(SPEECH)
    assert stage.carrier.waiting > 0
    stage.carrier.channel(cast("Any", stage.channel))
    assert stage.channel.kinds == ["session.created", "input_audio_buffer.speech_started"]
    assert stage.carrier.waiting == 0


async def test_nothing_is_sent_before_its_time_and_then_at_once(stage: Stage) -> None:
    stage.connect()
    for number in range(3):
        stage.carrier.admit(frame(number))
    assert stage.media.sent == []
    stage.tick(5)
    sequence = [one[0] for one in stage.media.sent]
    timestamps = [one[1] for one in stage.media.sent]
    assert sequence == [sequence[0] + index for index in range(5)]
    assert timestamps == [(timestamps[0] + index * PACKET) % (1 << 32) for index in range(5)]
    assert [one[2] == SILENCE for one in stage.media.sent] == [True, False, False, False, False]


async def test_what_was_missed_passes_in_time_and_is_counted(stage: Stage) -> None:
    stage.connect()
    stage.tick()
    stage.carrier.tick(2, 7)
    timestamps = [one[1] for one in stage.media.sent]
    assert (timestamps[1] - timestamps[0]) % (1 << 32) == 8 * PACKET
    assert stage.media.sent[1][0] == stage.media.sent[0][0] + 1
    assert stage.counts[module.STALLED] == 7


async def test_captions_and_ends_go_out_behind_their_audio_and_the_rest_at_once(stage: Stage) -> None:
    stage.connect()
    stage.tick()
    item = ItemView("i", "assistant", "message", "in_progress", spoken=True)
    for notice in (ResponseOpened(VIEW), OutputOpened("r", 0, item, None), PlaybackStarted("r")):
        stage.carrier.notify(notice)
    stage.carrier.admit(frame(0))
    stage.carrier.notify(OutputText("r", 0, "i", "one", True))
    stage.carrier.admit(frame(1))
    stage.carrier.notify(ResponseClosed(ResponseView("r", "completed", "audio")))
    stage.carrier.notify(SPEECH)
    first = len(stage.channel.kinds)
    assert stage.channel.kinds[-1] == "input_audio_buffer.speech_started"
    assert "output_audio_buffer.started" in stage.channel.kinds
    stage.tick()
    assert stage.channel.kinds[first:] == ["response.output_audio_transcript.delta"]
    stage.tick()
    assert stage.channel.kinds[first + 1] == "response.done"


async def test_after_a_flush_only_silence_and_the_new_epoch_go_out(stage: Stage) -> None:
    stage.connect()
    for number in range(6):
        stage.carrier.admit(frame(number))
    stage.tick(3)
    stage.carrier.flush(NEW)
    stage.carrier.admit(frame(3, OLD))
    stage.tick(3)
    stage.carrier.admit(frame(0, NEW))
    stage.tick(3)
    payloads = [one[2] for one in stage.media.sent]
    assert payloads[3:6] == [SILENCE] * 3
    assert payloads[6] != SILENCE
    decoder = OpusDecoder(24_000)
    assert all(len(decoder.decode(payload)) == 960 for payload in payloads)
    assert stage.counts["cleared_frames"] == 4
    assert stage.counts["stale_at_gate"] == 1


async def test_a_flush_says_from_which_timestamp_on_the_new_epoch_is(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, notices=True)
    stage.connect()
    stage.tick(4)
    stage.carrier.flush(NEW)
    stage.tick()
    edge = stage.media.sent[4][1]
    assert stage.playback.sent == [{"epoch": 1, "mute_until_rtp": edge}]
    mute = stage.channel.sent[-1]
    assert (mute["type"], mute["epoch"], mute["mute_until_rtp"]) == ("x_talkover.mute", 1, edge)


async def test_a_client_that_did_not_ask_gets_no_event_of_ours(stage: Stage) -> None:
    stage.connect()
    stage.carrier.flush(NEW)
    assert stage.channel.kinds == ["session.created"]


async def test_reports_become_positions_and_half_the_round_trip_is_added(stage: Stage) -> None:
    stage.connect()
    for number in range(10):
        stage.carrier.admit(frame(number))
    stage.tick(11)
    stage.carrier.loss(0.0, 0.040)
    stage.playback.deliver(json.dumps({"rtp": stage.media.sent[6][1], "at_ms": 1.0}))
    assert stage.handle.events == [PlaybackReported("r", 5 * PACKET - 480 + 960)]
    assert stage.playback.sent[-1]["at_ms"] == 1.0


async def test_a_response_that_another_one_followed_is_reported_to_its_end(stage: Stage) -> None:
    stage.connect()
    stage.carrier.admit(frame(0))
    stage.carrier.admit(frame(1))
    second = frame(0)
    stage.carrier.admit(
        OutputFrame(second.fence, 2, "next", "j", 0, PACKET, 0, second.pcm, second.rate),
    )
    stage.tick(6)
    stamps = [one[1] for one in stage.media.sent]
    stage.playback.deliver(json.dumps({"rtp": stamps[2], "at_ms": 1.0}))
    stage.playback.deliver(json.dumps({"rtp": stamps[5], "at_ms": 2.0}))
    assert stage.handle.events == [
        PlaybackReported("r", PACKET - 480),
        PlaybackReported("r", 2 * PACKET),
        PlaybackReported("next", PACKET),
    ]


async def test_loss_that_is_reported_makes_the_packets_carry_each_other(stage: Stage) -> None:
    stage.connect()
    told: list[int] = []
    stage.carrier._encoder.expect_loss = told.append  # type: ignore[method-assign, assignment]
    for fraction in (0.0, 0.10, 0.0, 0.9):
        stage.carrier.loss(fraction, None)
    assert told == [10, 8, module.LOSS_MOST]


async def test_sound_from_the_peer_reaches_the_session_and_so_does_its_absence(stage: Stage) -> None:
    stage.connect()
    stage.carrier.packet(7, 0, SILENCE)
    stage.carrier.packet(8, PACKET, SILENCE)
    assert stage.handle.heard == [(bytes(640), 16_000, False)] * 2
    stage.tick(20)
    assert {concealed for _, _, concealed in stage.handle.heard[2:]} == {True}


async def test_a_client_whose_steady_stream_ends_with_everything_else_is_lost_after_a_few_seconds(stage: Stage) -> None:
    stage.connect()
    stage.carrier.packet(7, 0, SILENCE)
    stage.now += GONE_AFTER - 0.1
    stage.carrier.tick(1, 0)
    assert stage.handle.events == []
    stage.now += 0.2
    stage.carrier.tick(1, 0)
    assert stage.handle.events == [CarrierLost("connection_lost")]


async def test_a_client_that_floods_the_channel_is_given_up(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, "INBOX_EVENTS_MOST", 20)
    stage.connect()
    running = asyncio.create_task(stage.carrier.run())
    stage.handle.gate.clear()
    for _ in range(22):
        stage.channel.deliver('{"type":"response.create"}')
    stage.handle.over.set()
    assert await running == "flooded"
    assert stage.handle.events[-1] == CarrierLost("flooded")
    assert stage.counts["flooded"] == 1


async def test_events_are_handled_in_order_and_no_faster_than_the_session_takes_them(stage: Stage) -> None:
    stage.connect()
    running = asyncio.create_task(stage.carrier.run())
    stage.handle.gate.clear()
    stage.channel.deliver('{"type":"response.create","event_id":"a"}')
    stage.channel.deliver('{"type":"nonsense","event_id":"b"}')
    await stage.handle.posted.wait()
    await asyncio.sleep(0)
    assert [type(event) for event in stage.handle.events] == [ResponseCreate]
    stage.handle.posted.clear()
    stage.handle.gate.set()
    stage.handle.over.set()
    await stage.handle.posted.wait()
    rejected = stage.handle.events[1]
    assert isinstance(rejected, CommandRejected)
    assert rejected.command == "b"
    stage.carrier.ended("client_closed")
    assert await running == "client_closed"


async def test_a_client_that_does_not_read_is_given_up(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, "CONTROL_MAX", 1000)
    stage.connect()
    stage.channel.bufferedAmount = 2000
    stage.carrier.notify(SPEECH)
    assert stage.handle.events == [CarrierLost("slow_consumer")]
    assert stage.counts["slow_consumer"] == 1


async def test_at_the_end_what_was_queued_still_sounds_and_then_the_connection_is_closed(stage: Stage) -> None:
    stage.connect()
    running = asyncio.create_task(stage.carrier.run())
    stage.tick()
    stage.carrier.admit(frame(0))
    stage.carrier.notify(CommandFailed("x", "y"))
    stage.carrier.end("session_over")
    stage.carrier.admit(frame(1))
    stage.handle.over.set()
    while not running.done():
        stage.tick()
        await asyncio.sleep(0)
    assert await running == "session_over"
    assert [payload == SILENCE for _, _, payload in stage.media.sent[:2]] == [True, False]
    assert stage.handle.events == []
    assert cast("Any", stage.carrier)._peer.closed == 1


async def test_a_carrier_that_was_replaced_closes_at_once_and_keeps_what_its_client_misses(stage: Stage) -> None:
    stage.connect()
    running = asyncio.create_task(stage.carrier.run())
    await asyncio.sleep(0)
    stage.carrier.admit(frame(0))
    stage.carrier.end("replaced")
    stage.handle.over.set()
    assert await running == "replaced"
    stage.dialect.resumable = True
    stage.carrier.notify(SPEECH)
    assert [json.loads(message)["type"] for message in stage.dialect.missed()] == ["input_audio_buffer.speech_started"]
    assert stage.dialect.missed() == []
    assert stage.handle.events == []


async def test_an_event_of_ours_that_fails_ends_the_call_and_says_so(stage: Stage) -> None:
    stage.connect()

    def broken(message: str | bytes) -> list[Any]:
        raise KeyError("a fault of ours")

    stage.dialect.receive = broken  # type: ignore[method-assign]
    stage.carrier.receive("{}")
    assert stage.handle.events == [CarrierLost("internal_error")]


async def test_a_packet_of_ours_that_fails_ends_this_call_and_no_other(stage: Stage) -> None:
    stage.connect()

    def broken(sequence: int, timestamp: int, payload: bytes) -> bool:
        raise KeyError("a fault of ours")

    stage.media.send = broken  # type: ignore[method-assign]
    stage.tick()
    assert stage.handle.events == [CarrierLost("internal_error")]


async def test_reports_to_the_peer_go_out_about_once_a_second(stage: Stage) -> None:
    stage.connect()
    stage.tick(50 * 20)
    assert 14 <= len(stage.media.reports) <= 40
