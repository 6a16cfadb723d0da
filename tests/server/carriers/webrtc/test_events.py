"""The channel of events alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, cast

import pytest

from server.carriers.webrtc import events as module
from server.carriers.webrtc.events import EventChannel
from server.carriers.websocket import CONTROL_MAX


class Channel:
    def __init__(self) -> None:
        self.readyState = "open"
        self.bufferedAmount = 0
        self.sent: list[str] = []
        self.handlers: dict[str, Callable[[], None]] = {}

    def send(self, message: str) -> None:
        self.sent.append(message)

    def once(self, name: str, handler: Callable[[], None]) -> None:
        self.handlers[name] = handler


def made(longest: int = 0) -> tuple[EventChannel, Channel]:
    channel = EventChannel(lambda kind, most: json.dumps({"instead of": kind, "most": most}), lambda: longest)
    return channel, Channel()


def opened(events: EventChannel, channel: Channel) -> bool:
    return events.open(cast("Any", channel))


async def test_what_is_said_before_it_is_open_waits_in_order_behind_the_greeting() -> None:
    events, channel = made()
    events.say("early")
    events.greet(["hello", "missed"])
    events.say("late")
    assert events.waiting == len("hellomissedearlylate")
    assert opened(events, channel)
    assert channel.sent == ["hello", "missed", "early", "late"]
    assert events.waiting == 0
    events.say("now")
    assert channel.sent[-1] == "now"


async def test_there_is_one_channel() -> None:
    events, channel = made()
    assert opened(events, channel)
    assert not opened(events, Channel())


async def test_for_a_client_that_never_opens_it_the_greeting_and_the_newest_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "CONTROL_MAX", 100)
    events, channel = made()
    events.greet(["hello"])
    for number in range(50):
        events.say(f"event {number:04}")
    assert events.waiting <= 100
    assert not events.stuck
    opened(events, channel)
    assert channel.sent == ["hello", *(f"event {number:04}" for number in range(41, 50))]


async def test_a_channel_that_was_closed_takes_nothing_and_harms_nobody() -> None:
    events, channel = made()
    opened(events, channel)
    channel.readyState = "closed"
    events.say("x")
    assert channel.sent == []


async def test_listeners_get_everything_that_goes_out() -> None:
    events, channel = made()
    heard: list[str] = []
    events.listeners.append(heard.append)
    events.say("early")
    opened(events, channel)
    events.say("late")
    assert heard == channel.sent == ["early", "late"]


async def test_an_event_longer_than_the_peer_takes_is_replaced_by_its_bytes_not_its_characters() -> None:
    events, channel = made(longest=100)
    opened(events, channel)
    fits = json.dumps({"type": "a", "text": "x" * 60})
    events.say(fits)
    events.say(json.dumps({"type": "b", "text": "ü" * 60}, ensure_ascii=False))
    assert channel.sent == [fits, json.dumps({"instead of": "b", "most": 100})]


async def test_a_peer_that_does_not_read_is_seen() -> None:
    events, channel = made()
    opened(events, channel)
    channel.bufferedAmount = CONTROL_MAX
    assert not events.stuck
    channel.bufferedAmount += 1
    assert events.stuck


@pytest.mark.parametrize("what", ["bufferedamountlow", "close"])
async def test_draining_ends_when_the_transport_took_everything_or_is_gone_or_time_is_up(what: str) -> None:
    events, channel = made()
    await events.drain(10.0)
    opened(events, channel)
    await events.drain(10.0)
    channel.bufferedAmount = 5
    draining = asyncio.create_task(events.drain(60.0))
    await asyncio.sleep(0)
    assert not draining.done()
    channel.handlers[what]()
    await draining
    await events.drain(0.01)
    channel.readyState = "closed"
    await events.drain(60.0)


async def test_events_of_the_client_are_taken_in_order_and_waited_for() -> None:
    events, _ = made()
    taking = asyncio.create_task(events.take())
    await asyncio.sleep(0)
    assert events.put("a")
    assert events.put(b"b")
    assert await taking == "a"
    assert await events.take() == b"b"


async def test_too_many_or_too_long_events_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INBOX_EVENTS_MOST", 2)
    events, _ = made()
    assert events.put("a")
    assert events.put("b")
    assert not events.put("c")
    monkeypatch.setattr(module, "INBOX_MOST", 10)
    events, _ = made()
    assert events.put("x" * 10)
    assert not events.put("y")
    await events.take()
    assert events.put("z")
