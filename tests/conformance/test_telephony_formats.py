"""Independent readings of the telephone formats: pipecat's serializers, galcymedia, asterisk_ai_voice_agent."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest

from server.dialects.telephony.asterisk import AsteriskDialect
from server.dialects.telephony.audiosocket import AudioSocketDialect, packet
from server.dialects.telephony.base import HungUp, Message, PhoneDialect, Started
from server.dialects.telephony.media import Heard
from server.dialects.telephony.vendors import VENDORS
from server.phone_peers import PEERS
from sessions.core.fence import Fence
from sessions.core.notices import ItemView, OutputClosed
from sessions.ports import OutputFrame
from tests.conformance.venvs import run_client

pytestmark = [pytest.mark.conformance, pytest.mark.wide]

VENDOR_NAMES = ("twilio", "telnyx", "plivo", "vonage", "genesys")


def packed(message: Message) -> list[str]:
    if isinstance(message, bytes):
        return ["bytes", base64.b64encode(message).decode()]
    return ["text", message]


def tone(seconds: float, rate: int) -> bytes:
    t = np.arange(round(seconds * rate)) / rate
    return np.round(9000 * np.sin(2 * np.pi * 440 * t)).astype("<i2").tobytes()


def started(dialect: PhoneDialect, *messages: Message) -> None:
    received = [one for message in messages for one in dialect.receive(message)]
    assert any(isinstance(one, Started) for one in received), received


def spoken(dialect: PhoneDialect, seconds: float) -> list[Message]:
    """What the dialect sends for an output of so long, and for its interruption."""
    fence, pcm = Fence("s", 1, 0), tone(seconds, 24_000)
    messages: list[Message] = []
    for number, at in enumerate(range(0, len(pcm), 960)):
        start = number * 960
        messages += dialect.send_frame(
            OutputFrame(fence, number, "r", "i", start, start + 960, start, pcm[at : at + 960], 24_000)
        )
    messages += dialect.send(OutputClosed("r", 0, ItemView("i", "assistant", "message", "completed"), None))
    return messages + dialect.flush(Fence("s", 1, 1))


def test_pipecat_and_the_dialects_read_each_others_messages() -> None:
    calls = {name: PEERS[name](f"call-{name}", {}) for name in VENDOR_NAMES}
    opening = {name: [message for message in peer.begin() if isinstance(message, str)] for name, peer in calls.items()}
    # pipecat takes the first medium that is offered, we the one with the caller alone.
    offer = json.loads(opening["genesys"][0])
    offer["parameters"]["media"] = offer["parameters"]["media"][1:]
    opening["genesys"] = [json.dumps(offer)]
    caller = {}
    for name, peer in calls.items():
        pcm = np.frombuffer(tone(1.0, peer.rate), "<i2")
        size = peer.rate // 50
        said = [peer.speak(pcm[at : at + size]) for at in range(0, len(pcm), size)]
        caller[name] = [packed(message) for message in (*said, peer.press("7"))]
    result = run_client("pipecat", "telephony", {"opening": opening, "caller": caller})
    for name in VENDOR_NAMES:
        found = result[name]
        assert isinstance(found, dict)
        # What we play as the vendor is what it takes the vendor to say.
        assert found["kinds"][-1] == "InputDTMFFrame 7", name
        assert 0.8 <= found["audio_s"] <= 1.01, name
        # What it would send is what we send: the same kinds of messages with the same fields.
        theirs = [base64.b64decode(body) if kind == "bytes" else body for kind, body in found["bot"]]
        dialect = VENDORS[name]()
        started(dialect, *opening[name])
        ours = spoken(dialect, 0.4)
        assert shapes(theirs) <= shapes(ours), name
        heard = [one for message in theirs for one in calls[name].take(message)]
        assert {type(one).__name__ for one in heard} == {"Sound", "Clear"}, name


def shapes(messages: list[Message]) -> set[str]:
    """The fields of messages, without what differs from one to the next."""
    found: set[str] = set()
    for message in messages:
        if isinstance(message, bytes):
            found.add("bytes")
            continue
        event = json.loads(message)
        kind = event.get("event") or event.get("action") or event.get("type")
        entities = json.dumps(event.get("parameters")) if kind == "event" else ""
        media = sorted(event["media"]) if "media" in event and isinstance(event["media"], dict) else []
        found.add(f"{kind} {sorted(event)} {media} {entities}")
    return found


def test_asterisks_formats_are_what_others_read_and_write() -> None:
    asterisk, stream = AsteriskDialect(), AudioSocketDialect()
    start = PEERS["asterisk"]("1.2", {}).begin()
    answers = [message for one in asterisk.receive(start[0]) for message in getattr(one, "messages", ())]
    said = spoken(asterisk, 0.5) + asterisk.hold() + asterisk.resume() + asterisk.hang_up("hangup")
    commands = [message for message in (*answers, *said) if isinstance(message, str)]
    started(stream, packet(0x01, bytes(16)), packet(0x10, bytes(320)))
    sent = b"".join(
        message for message in (*spoken(stream, 0.5), *stream.hang_up("over")) if isinstance(message, bytes)
    )
    result = run_client(
        "telephony_codecs", "read", {"commands": commands, "audiosocket": base64.b64encode(sent).decode()}
    )
    assert result["rate"] == 16_000
    named, known, longest = result["commands"], result["known_commands"], result["longest"]
    assert isinstance(named, dict)
    assert isinstance(known, list)
    assert isinstance(longest, int)
    assert set(named) == {"ANSWER", "MARK_MEDIA", "FLUSH_MEDIA", "PAUSE_MEDIA", "CONTINUE_MEDIA", "HANGUP"}
    assert set(named) <= set(known)
    assert max(named.values()) <= longest
    assert result["same"] == [True] * len(commands)
    assert result["frames"] == [["AUDIO", 320]] * 25 + [["HANGUP", 0]]
    # And theirs by us.
    [began, *_] = AsteriskDialect().receive(str(result["start"]))
    assert isinstance(began, Started)
    assert began.call.parameters == {"instructions": "be brief"}
    received = AudioSocketDialect().receive(base64.b64decode(str(result["audiosocket"])))
    assert [type(one) for one in received] == [Started, Heard, HungUp]
