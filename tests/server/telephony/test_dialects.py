"""Every vendor's dialect: what it takes, what it says, and what it refuses without ever raising."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.dialects.telephony.asterisk import AsteriskDialect
from server.dialects.telephony.audiosocket import AudioSocketDialect, packet
from server.dialects.telephony.base import Answer, Counted, Digit, Flow, HungUp, Message, PhoneDialect, Started
from server.dialects.telephony.marks import AFTER_CLEAR, UNKNOWN, Marks
from server.dialects.telephony.media import Heard
from server.dialects.telephony.vendors import VENDORS
from server.phone_peers import PEERS, AsteriskPeer, GenesysPeer, TelnyxPeer, VendorPeer
from sessions.core.events import CommandRejected, PlaybackReported
from sessions.core.fence import Fence
from sessions.core.notices import ItemView, OutputClosed
from sessions.ports import OutputFrame

FENCE = Fence("s", 1, 0)


def begun(vendor: str) -> tuple[PhoneDialect, VendorPeer]:
    """A call of a vendor that has started."""
    peer, dialect = PEERS[vendor]("0" * 32, {"voice": "v"}), VENDORS[vendor]()
    if "?" in peer.path:
        dialect.addressed(dict(pair.split("=") for pair in peer.path.partition("?")[2].split("&")))
    received = [one for message in peer.begin() for one in dialect.receive(message)]
    if vendor == "audiosocket":
        received += dialect.receive(peer.speak(np.zeros(160, np.int16)))
    if vendor == "freeswitch":
        assert dialect.call is not None
    assert [type(one) for one in received if isinstance(one, Started | CommandRejected)] == [Started], received
    return dialect, peer


def frame(number: int, fence: Fence = FENCE, response: str = "r") -> OutputFrame:
    start = number * 960
    return OutputFrame(fence, number, response, "i", start, start + 960, start, b"\x10\x20" * 480, 24_000)


def closed(response: str = "r") -> OutputClosed:
    return OutputClosed(response, 0, ItemView("i", "assistant", "message", "completed"), None)


def codes(received: list[Any]) -> list[str]:
    return [one.code for one in received if isinstance(one, CommandRejected)]


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_call_starts_is_heard_pressed_and_ends(vendor: str) -> None:
    dialect, peer = begun(vendor)
    assert dialect.call is not None
    assert dialect.call.vendor == vendor
    if vendor not in ("audiosocket", "freeswitch"):
        assert (dialect.call.parameters["voice"], dialect.call.caller or dialect.call.parameters["from"]) == (
            "v",
            "+15550100123",
        )
    pcm = np.arange(peer.rate // 50).astype(np.int16)
    [heard] = dialect.receive(peer.speak(pcm))
    assert isinstance(heard, Heard)
    assert (len(heard.pcm), heard.rate, heard.concealed) == (2 * len(pcm), peer.rate, False)
    assert dialect.receive(peer.press("#")) == [Digit("#")]
    ends = [one for message in peer.end() for one in dialect.receive(message)]
    assert all(isinstance(one, HungUp | Answer) for one in ends)
    if ends:
        assert codes(dialect.receive(peer.speak(pcm))) == ["already_stopped"]


@pytest.mark.parametrize("vendor", VENDORS)
def test_media_before_the_start_is_refused_or_counted_and_a_second_start_refused(vendor: str) -> None:
    peer, dialect = PEERS[vendor]("0" * 32, {}), VENDORS[vendor]()
    first = dialect.receive(peer.speak(np.zeros(160, np.int16)))
    if vendor != "freeswitch":  # which has no start of its own
        assert codes(first) == ["not_started"] or all(isinstance(one, Counted) for one in first)
    dialect, peer = begun(vendor)
    again = [one for message in peer.begin() for one in dialect.receive(message)]
    assert len(codes(again)) == 1


@pytest.mark.parametrize("vendor", VENDORS)
def test_nothing_of_before_a_flush_comes_after_it_and_the_vendor_is_told(vendor: str) -> None:
    dialect, _ = begun(vendor)
    for number in range(7):
        dialect.send_frame(frame(number))
    told = dialect.flush(Fence("s", 1, 1))
    assert bool(told) is (vendor != "audiosocket")
    fresh, _ = begun(vendor)
    fresh.flush(Fence("s", 1, 1))
    later = [frame(number, Fence("s", 1, 1), "new") for number in range(9)]
    media = [[type(m) for m in dialect.send_frame(one)] for one in later]
    assert media == [[type(m) for m in fresh.send_frame(one)] for one in later]
    assert dialect.send(closed("r")) == []
    # Names of marks go on counting; all else is as if nothing had been before.
    ends = [
        [message for message in one.send(closed("new")) if "mark" not in str(message).lower()]
        for one in (dialect, fresh)
    ]
    assert ends[0] == ends[1] or vendor == "plivo"


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_no_message_raises_whatever_it_is(data: st.DataObject) -> None:
    vendor = data.draw(st.sampled_from(sorted(VENDORS)))
    dialect, peer = (VENDORS[vendor](), PEERS[vendor]("0" * 32, {})) if data.draw(st.booleans()) else begun(vendor)
    json_values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
        max_leaves=8,
    )
    known: Message = data.draw(st.sampled_from([*peer.begin(), peer.press("1"), peer.speak(np.zeros(160, np.int16))]))
    messages: list[Message] = [data.draw(st.binary(max_size=40)), data.draw(st.text(max_size=40))]
    if isinstance(known, str) and known.startswith("{"):
        event = json.loads(known)
        holder = event
        key = data.draw(st.sampled_from(sorted(event)))
        if isinstance(event[key], dict) and event[key] and data.draw(st.booleans()):
            holder, key = event[key], data.draw(st.sampled_from(sorted(event[key])))
        holder[key] = data.draw(json_values)
        messages.append(json.dumps(event))
    for message in messages:
        for one in dialect.receive(message):
            assert not isinstance(one, CommandRejected) or one.message.startswith(f"{vendor}: ")


def test_marks_are_believed_once_in_their_epoch_and_stand_for_all_before_them() -> None:
    marks = Marks()
    names = [name for end in range(0, 96_000, 960) if (name := marks.sent("r", end + 960, 3)) is not None]
    assert len(names) == 10
    assert all(name.startswith("3.") for name in names)
    assert marks.returned(names[4]) == PlaybackReported("r", 960 + 4 * 9600)
    assert marks.returned(names[4]) == marks.returned(names[2]) == UNKNOWN
    last = marks.last()
    assert last is not None
    assert marks.last() is None
    marks.clear(4)
    assert [marks.returned(name) for name in (names[9], last, "4.1", "x", "", "99999999999.1")] == [
        AFTER_CLEAR,
        AFTER_CLEAR,
        *[UNKNOWN] * 4,
    ]


def test_a_vendor_that_returns_no_marks_is_not_remembered_for_ever() -> None:
    marks = Marks()
    for end in range(0, 9600 * 3000, 9600):
        marks.sent("r", end, 0)
    assert len(marks._pending) == 1024


def test_asterisks_plain_text_control_is_read_and_spoken() -> None:
    dialect, peer = AsteriskDialect(), AsteriskPeer("1.2", plain=True)
    started, answer = dialect.receive(peer.begin()[0])
    assert isinstance(started, Started)
    assert (started.call.id, answer) == ("1.2", Answer(("ANSWER",)))
    for number in range(3):
        assert all(isinstance(message, bytes) for message in dialect.send_frame(frame(number)))
    assert dialect.send(closed())[-1] == "REPORT_QUEUE_DRAINED"
    [report] = dialect.receive("QUEUE_DRAINED")
    assert report == PlaybackReported("r", 3 * 960)
    assert dialect.receive("QUEUE_DRAINED") == []
    assert dialect.receive("MEDIA_XOFF") == [Flow(False)]
    assert dialect.receive("STATUS queue_length:43 xon_level:800") == []
    assert (dialect.hold(), dialect.resume(), dialect.flush(Fence("s", 1, 1))) == (
        ["PAUSE_MEDIA"],
        ["CONTINUE_MEDIA"],
        ["FLUSH_MEDIA"],
    )
    assert codes(dialect.receive("")) == codes(dialect.receive("DANCE now:yes")) == ["invalid_value"]


@pytest.mark.parametrize("media", ["opus", "slin192", "g729"])
def test_a_format_that_asterisk_does_not_time_is_refused(media: str) -> None:
    start = {"event": "MEDIA_START", "format": media, "channel_id": "1", "optimal_frame_size": 0}
    assert codes(AsteriskDialect().receive(json.dumps(start))) == ["unsupported"]


@pytest.mark.parametrize("rate", [8000, 12_000, 16_000, 24_000, 32_000, 44_100, 48_000])
def test_audiosocket_is_read_however_its_bytes_are_cut_at_every_rate(rate: int) -> None:
    kind = {8000: 0x10, 12_000: 0x11, 16_000: 0x12, 24_000: 0x13, 32_000: 0x14, 44_100: 0x15, 48_000: 0x16}[rate]
    stream = packet(0x01, bytes(range(16))) + packet(kind, bytes(rate // 25)) + packet(0x03, b"5") + packet(0x42, b"?")
    whole = AudioSocketDialect().receive(stream)
    assert [type(one) for one in whole] == [Started, Heard, Digit, Counted]
    dialect = AudioSocketDialect()
    assert [one for at in range(len(stream)) for one in dialect.receive(stream[at : at + 1])] == whole
    lengths = {len(message) for number in range(20) for message in dialect.send_frame(frame(number))}
    assert lengths == {3 + rate // 25}
    assert codes(dialect.receive(packet(kind ^ 1 or 0x10, b"ab"))) in (["unsupported"], [])


def test_telnyx_speaks_the_codec_of_its_address() -> None:
    dialect = VENDORS["telnyx"]()
    peer = TelnyxPeer("c", {}, "l16", 16_000)
    dialect.addressed({"codec": "L16", "rate": "16000"})
    for message in TelnyxPeer("c", {}).begin():
        dialect.receive(message)
    sounds = [one for number in range(4) for message in dialect.send_frame(frame(number)) for one in peer.take(message)]
    assert {len(one.pcm) for one in sounds if hasattr(one, "pcm")} == {320}
    wrong = VENDORS["telnyx"]()
    wrong.addressed({"codec": "AMR-WB", "rate": "16000"})
    assert codes(wrong.receive(TelnyxPeer("c", {}).begin()[1])) == ["unsupported"]


def test_genesys_gets_its_answers_and_the_caller_alone_is_chosen() -> None:
    dialect, peer = VENDORS["genesys"](), GenesysPeer()
    _, answer = dialect.receive(peer.begin()[0])
    assert isinstance(answer, Answer)
    opened = json.loads(answer.messages[0])
    assert (opened["type"], opened["seq"], opened["clientseq"]) == ("opened", 1, 1)
    assert opened["parameters"]["media"][0]["channels"] == ["external"]
    [pong] = dialect.receive(peer.ping())
    assert isinstance(pong, Answer)
    assert json.loads(pong.messages[0])["type"] == "pong"
    assert codes(dialect.receive(json.dumps({**opened, "type": "ping", "seq": 1}))) == ["duplicate_message"]
    dialect.transfer_to = "queue"
    [message] = dialect.hang_up("transfer")
    assert json.loads(message)["parameters"]["outputVariables"] == {"action": "transfer", "transfer_to": "queue"}
    answered, over = dialect.receive(peer.end()[0])
    assert isinstance(answered, Answer)
    assert over == HungUp("stopped")
    assert dialect.hang_up("stopped") == []


def test_both_channels_of_genesys_are_taken_apart() -> None:
    dialect, peer = VENDORS["genesys"](), GenesysPeer()
    both = json.loads(str(peer.begin()[0]))
    both["parameters"]["media"] = both["parameters"]["media"][:1]
    dialect.receive(json.dumps(both))
    [heard] = dialect.receive(bytes([0xFF, 0x00] * 160))
    assert isinstance(heard, Heard)
    assert heard.pcm == bytes(320)
