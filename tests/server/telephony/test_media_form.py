"""A media event that is written like the one before is read without a parser, and anything else is not."""

from __future__ import annotations

import json

import numpy as np
import pytest

from server.dialects.telephony.base import base64_text
from server.dialects.telephony.media import Heard
from server.dialects.telephony.media_form import MediaForm
from server.dialects.telephony.vendors import VENDORS
from server.phone_peers import PEERS
from sessions.core.events import CommandRejected

AUDIO = base64_text(bytes(range(160)))


def event(chunk: object = "2", payload: str = AUDIO, **more: object) -> str:
    media = {"track": "inbound", "chunk": chunk, "timestamp": "20", "payload": payload}
    return json.dumps({"event": "media", "sequenceNumber": "3", "media": media, "streamSid": "MZ1", **more})


def learned(message: str) -> MediaForm:
    form = MediaForm(("chunk", "timestamp"), ("sequenceNumber",))
    assert form.read(message) is None
    form.learn(message, AUDIO)
    return form


@pytest.mark.parametrize("chunk", ["2", 2])
def test_audio_and_numbers_are_found_where_they_were(chunk: object) -> None:
    form = learned(event(chunk))
    assert form.read(event(chunk)) == (AUDIO, [2, 20])
    other = event(chunk, "AAAA").replace('"20"', '"1040"').replace('"3"', '"77"')
    assert form.read(other) == ("AAAA", [2, 1040])


def test_a_number_that_is_not_there_is_none() -> None:
    message = '{"event":"media","media":{"payload":"' + AUDIO + '","chunk":7}}'
    assert learned(message).read(message.replace(":7}", ":8}")) == (AUDIO, [8, None])


@pytest.mark.parametrize(
    "message",
    [
        event("-1"),
        event("02"),
        event("2x"),
        event(2),
        event("9" * 16),
        event(payload="AA\\nA"),
        event(payload='","x":"'),
        event(payload="AA\u00e9A"),
        event(track="outbound"),
        event().replace("inbound", "outbound"),
        event().replace("MZ1", "MZ2"),
        event() + " ",
        event() + "\n",
        event()[:-1],
        "",
    ],
)
def test_what_is_written_otherwise_is_left_to_the_parser(message: str) -> None:
    assert learned(event()).read(message) is None


@pytest.mark.parametrize(
    ("message", "payload"),
    [
        (event(chunk=3, again={"chunk": 4}), AUDIO),  # which of the two is meant?
        (event(payload="AAAA"), "AAAA"),  # too short to be sure of its place
        (event(copy=AUDIO), AUDIO),
        (event(name="\u00e9"), AUDIO),  # escapes: nothing in it is sure to stand as it was read
    ],
)
def test_nothing_is_learned_from_what_has_two_readings(message: str, payload: str) -> None:
    form = MediaForm(("chunk", "timestamp"), ("sequenceNumber",))
    form.learn(message, payload)
    assert form.read(message) is None


@pytest.mark.parametrize("vendor", ["twilio", "signalwire", "telnyx", "exotel", "plivo"])
def test_a_call_hears_the_same_with_the_form_and_without(vendor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def heard(learns: bool) -> tuple[list[object], int]:
        read: list[object] = []
        peer, dialect = PEERS[vendor]("c1", {}), VENDORS[vendor]()
        for message in peer.begin():
            dialect.receive(message)
        found: list[object] = []
        with monkeypatch.context() as patched:
            original = MediaForm.read
            patched.setattr(
                MediaForm,
                "read",
                lambda form, text: read.append(original(form, text)) or (read[-1] if learns else None),
            )
            for number in range(12):
                pcm = np.random.default_rng(number).integers(-9000, 9000, 160).astype(np.int16)
                found += dialect.receive(peer.speak(pcm))
            late = peer.speak(np.zeros(160, np.int16))
            found += dialect.receive(late) + dialect.receive(late)
        return found, sum(one is not None for one in read)

    fast, hits = heard(True)
    slow, _ = heard(False)
    assert hits >= 11
    assert fast == slow
    assert sum(isinstance(one, Heard) for one in fast) >= 12
    if vendor in ("twilio", "telnyx"):
        assert isinstance(fast[-1], CommandRejected)
