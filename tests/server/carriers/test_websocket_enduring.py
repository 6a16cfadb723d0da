"""The carrier with a dialect that endures: what is kept, what a carrier that joins waits for, the last words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from server.carriers.websocket import WebSocketCarrier
from server.dialects.base import Received, Reply
from sessions.core.events import CarrierLost, InputCommit
from sessions.core.notices import Notice, OutputText

from .test_websocket import NEW, SPEECH, PlainDialect, Scene, building, frame

CAPTION = OutputText("r", 0, "i", "so", True)
WORDS = OutputText("other", 0, "j", "so", False)


class PatientDialect(PlainDialect):
    """Says what it was given, and keeps it; answers "ping" by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[str] = []
        self.received: list[str | bytes] = []
        self._replies: list[Reply] = []

    def receive(self, message: str | bytes) -> list[Received]:
        self.received.append(message)
        if message == "ping":
            self._replies.append(Reply({"type": "pong"}))
            return []
        return super().receive(message)

    def replies(self) -> list[Reply]:
        replies, self._replies = self._replies, []
        return replies

    def reply(self, reply: Reply) -> list[str]:
        return [str(reply.message["type"])]

    def keep(self, entry: Notice | Reply) -> None:
        self.kept += self.reply(entry) if isinstance(entry, Reply) else self.send(entry)

    def farewell(self, reason: str) -> list[str]:
        return [f"farewell {reason}"]


class PatientScene(Scene):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.patient = PatientDialect()
        self.carrier = WebSocketCarrier(self.socket, self.patient, self, **options)  # type: ignore[arg-type]


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., PatientScene]]:
    async with building(PatientScene) as build:
        yield build


@pytest.fixture
async def scene(make: Callable[..., PatientScene]) -> PatientScene:
    made = make()
    await made.start()
    return made


def queue_everything(scene: PatientScene) -> None:
    """With no room on the wire: a notice, audio with its caption, words of another response, a notice."""
    scene.wire.shut()
    scene.carrier.notify(SPEECH)
    scene.carrier.admit(frame(0))
    scene.carrier.notify(CAPTION)
    scene.carrier.notify(WORDS)
    scene.carrier.notify(SPEECH)


async def test_a_reply_goes_out_in_its_turn(scene: PatientScene) -> None:
    scene.carrier.hold()
    scene.carrier.notify(SPEECH)
    scene.receive(text="ping")
    assert await scene.sent() == ["SpeechStarted", "pong"]
    assert scene.handle.posted == []


async def test_what_could_not_be_sent_is_kept_in_order_and_sound_is_not(scene: PatientScene) -> None:
    queue_everything(scene)
    await scene.disconnect()
    assert scene.patient.kept == ["SpeechStarted", "OutputText", "SpeechStarted"]
    assert scene.handle.posted == [CarrierLost("connection_lost")]
    scene.carrier.admit(frame(1))
    scene.carrier.notify(SPEECH)
    assert scene.patient.kept[3:] == ["SpeechStarted"]


async def test_nothing_is_kept_after_the_session_ended(scene: PatientScene) -> None:
    scene.carrier.end("client_close")
    scene.carrier.notify(SPEECH)
    assert await scene.sent() == ["farewell client_close"]
    await scene.finish()
    assert scene.patient.kept == []


async def test_a_carrier_that_joins_waits_until_it_is_attached(make: Callable[..., PatientScene]) -> None:
    scene = make(joins=True)
    scene.receive(text="early")
    scene.running = asyncio.create_task(scene.carrier.run(scene.handle))
    assert await scene.sent() == []
    assert scene.patient.received == []
    scene.carrier.flush(NEW)
    scene.carrier.notify(SPEECH)
    assert await scene.sent() == ["hello sess_1", "SpeechStarted"]
    assert scene.handle.posted == [InputCommit("early")]


async def test_a_carrier_whose_session_ended_before_it_could_join_says_only_that(
    make: Callable[..., PatientScene],
) -> None:
    scene = make(joins=True)
    scene.running = asyncio.create_task(scene.carrier.run(scene.handle))
    await scene.settle()
    scene.carrier.end("session_over")
    assert await scene.sent() == ["farewell session_over"]
    await scene.finish()
    assert scene.handle.posted == []


async def test_a_carrier_that_is_replaced_leaves_the_rest_to_the_next_one(scene: PatientScene) -> None:
    queue_everything(scene)
    scene.carrier.flush(NEW)
    scene.carrier.end("replaced")
    assert scene.patient.kept == ["SpeechStarted", "OutputText", "SpeechStarted"]
    scene.carrier.notify(SPEECH)
    scene.receive(text="late")
    scene.wire.open()
    assert await scene.sent() == ["farewell replaced"]
    await scene.finish()
    assert scene.socket.closed == (1000, "replaced")
    assert scene.patient.received == []
    assert len(scene.patient.kept) == 3
    assert scene.handle.posted == []


async def test_a_message_that_was_read_before_is_taken_first(make: Callable[..., PatientScene]) -> None:
    scene = make()
    scene.receive(text="second")
    scene.running = asyncio.create_task(scene.carrier.run(scene.handle, "first"))
    await scene.settle()
    assert scene.patient.received == ["first", "second"]
