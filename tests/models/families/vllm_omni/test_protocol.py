"""`models.families.vllm_omni.protocol`: what the server says, believed only where it is as published."""

from __future__ import annotations

import base64
import contextlib
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.families.vllm_omni import protocol
from models.families.vllm_omni.protocol import (
    Audio,
    Began,
    Ended,
    EpochMoved,
    Fault,
    Garbage,
    Json,
    Listens,
    Opened,
    Other,
    Over,
    RemoteCapabilities,
    Text,
    ToolCall,
)
from models.remote.errors import RemoteError
from sessions.core.context import ContextEntry


def read(**event: object) -> protocol.ServerEvent:
    return protocol.read(json.dumps(event)).event


def delta(pcm: bytes, **changes: object) -> protocol.ServerEvent:
    fields: dict[str, object] = {
        "type": "response.output_audio.delta",
        "response_id": "r",
        "delta": base64.b64encode(pcm).decode(),
        "format": "pcm16",
        "sample_rate_hz": 24_000,
    }
    return read(**(fields | changes))


def test_a_session_with_its_capabilities_and_its_token() -> None:
    session = {
        "id": "s1",
        "input_audio_format": "pcm_f32le",
        "sample_rate_hz": 24_000,
        "capabilities": {
            "supports_model_native_turn_policy": True,
            "supports_client_commit": False,
            "supports_barge_in": False,
            "supports_playback_ack": True,
            "supports_session_resume": True,
            "chunk_period_ms": 80,
        },
    }
    assert read(type="session.created", session=session, resume_token="t") == Opened(
        "s1",
        RemoteCapabilities(
            turns_of_its_own=True,
            client_commit=False,
            barge_in=False,
            playback_ack=True,
            resume=True,
            chunk_ms=80,
            input_format="pcm_f32le",
            input_rate=24_000,
        ),
        "t",
        resumed=False,
    )


def test_capabilities_that_are_not_stated_are_not_relied_on() -> None:
    opened = read(type="session.created", session={"id": "s1"})
    assert isinstance(opened, Opened)
    can = opened.capabilities
    assert (can.turns_of_its_own, can.barge_in, can.playback_ack, can.resume, can.continuous) == (False,) * 5


def test_the_epoch_of_a_response_is_found_where_the_server_puts_it() -> None:
    metadata = {"duplex_event": {"epoch": 4}}
    assert read(type="response.created", response={"id": "r", "metadata": metadata}) == Began("r", 4)
    assert read(type="response.created", response_id="r") == Began("r", None)
    done = {"id": "r", "status": "cancelled", "metadata": {"epoch": 5}}
    assert read(type="response.done", response=done) == Ended("r", 5, "cancelled")
    assert read(type="response.listen", response_id="r", epoch=6) == Listens("r", 6)
    assert read(type="overlap.decision", epoch=7, action="listen") == EpochMoved(7)


@pytest.mark.parametrize(
    ("form", "raw", "samples"),
    [
        ("pcm16", np.array([1, -2], "<i2").tobytes(), [1, -2]),
        ("pcm_f32le", np.array([0.5, -2.0], "<f4").tobytes(), [16384, -32767]),
        ("g711_ulaw", b"\xff\x80", [0, 32124]),
    ],
)
def test_audio_is_read_in_every_format_that_the_server_may_choose(form: str, raw: bytes, samples: list[int]) -> None:
    event = delta(raw, format=form, metadata={"epoch": 2})
    assert isinstance(event, Audio)
    assert (event.epoch, list(np.frombuffer(event.pcm, "<i2"))) == (2, samples)


def test_text_says_whether_it_is_spoken() -> None:
    spoken = read(type="response.output_audio_transcript.delta", response_id="r", delta=" a")
    assert spoken == Text("r", " a", spoken=True)
    assert read(type="response.output_text.delta", response_id="r", delta="b") == Text("r", "b", spoken=False)


def test_a_tools_call_is_read_from_its_item_and_other_items_are_let_pass() -> None:
    item = {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"}
    given = {"type": "response.output_item.done", "response_id": "r"}
    assert read(**given, item=item) == ToolCall("r", "c", "weather", "{}")
    assert read(**given, item={"type": "message"}) == Other("response.output_item.done")
    for field, wrong in (("call_id", ""), ("name", "n" * 300), ("arguments", None)):
        with pytest.raises(protocol.Garbage, match=field):
            read(**given, item={**item, field: wrong})


@pytest.mark.parametrize(
    ("entry", "anew", "item"),
    [
        (
            ContextEntry("user", "message", "hi"),
            False,
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        ),
        (
            ContextEntry("assistant", "message", "hello"),
            True,
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hello"}]},
        ),
        (
            ContextEntry("user", "function_call_output", "rain", "c"),
            False,
            {"type": "function_call_output", "call_id": "c", "output": "rain"},
        ),
        (
            ContextEntry("user", "function_call_output", "rain", "c"),
            True,
            {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "rain"}]},
        ),
    ],
)
def test_what_the_model_did_not_hear_is_an_item(entry: ContextEntry, anew: bool, item: dict[str, Json]) -> None:
    assert json.loads(protocol.item(entry, anew=anew)) == {"type": "conversation.item.create", "item": item}


def test_ends_and_errors_keep_their_reason_but_no_control_characters() -> None:
    assert read(type="session.expired", reason="idle\x1b[2J") == Over("expired: idle [2J")
    assert read(type="session.closed") == Over("closed")
    assert read(type="error", error={"code": "c", "message": "m"}) == Fault("c", "m")
    assert read(type="error", error="bare") == Fault("unknown", "bare")


def test_numbers_are_kept_and_unknown_events_let_pass() -> None:
    assert protocol.read('{"type":"haiku","server_event_seq":9}') == protocol.Incoming(9, Other("haiku"))


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (b"\x00", "message"),
        ("{", "message"),
        ("[" * 100_000, "message"),
        ("[]", "message"),
        ("{}", "type"),
        ('{"type":"response.done","server_event_seq":-1}', "server_event_seq"),
        ('{"type":"response.done","server_event_seq":true}', "server_event_seq"),
        ('{"type":"session.created"}', "session"),
        ('{"type":"session.created","session":{}}', "session.id"),
        ('{"type":"session.created","session":{"id":"s","input_audio_format":"mp3"}}', "session.input_audio_format"),
        ('{"type":"session.created","session":{"id":"s","sample_rate_hz":1e400}}', "session.sample_rate_hz"),
        ('{"type":"response.created"}', "response_id"),
        ('{"type":"response.created","response_id":"r","epoch":"new"}', "epoch"),
        ('{"type":"response.output_audio.delta","response_id":"r"}', "delta"),
        ('{"type":"response.output_audio.delta","response_id":"r","delta":"!"}', "delta"),
        ('{"type":"response.output_audio.delta","response_id":"r","delta":"AA=="}', "delta"),
        ('{"type":"response.output_audio.delta","response_id":"r","delta":"","format":"mp3"}', "format"),
        ('{"type":"response.output_audio.delta","response_id":"r","delta":"","sample_rate_hz":7}', "sample_rate_hz"),
        ('{"type":"response.output_audio_transcript.delta","response_id":"r"}', "delta"),
    ],
)
def test_what_is_not_the_protocol_is_refused_by_the_name_of_the_field(message: str | bytes, field: str) -> None:
    with pytest.raises(Garbage) as refused:
        protocol.read(message)
    assert refused.value.field == field


_ANY: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_FIELDS = ("response_id", "response", "delta", "session", "metadata", "epoch", "error", "reason", "server_event_seq")


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(protocol._READERS)), st.dictionaries(st.sampled_from(_FIELDS), _ANY))
def test_whatever_comes_is_an_event_or_garbage(kind: str, fields: dict[str, Json]) -> None:
    with contextlib.suppress(Garbage):
        assert protocol.read(json.dumps({"type": kind, **fields})).event is not None


def test_input_is_told_with_its_length_and_in_the_encoding_of_the_session() -> None:
    pcm = np.array([0, 16384, -32768], "<i2").tobytes()
    plain = json.loads(protocol.append(pcm, "pcm16", 16_000, 100))
    assert base64.b64decode(plain["audio"]) == pcm
    floats = json.loads(protocol.append(pcm, "pcm_f32le", 24_000, 100))
    assert list(np.frombuffer(base64.b64decode(floats["audio"]), "<f4")) == [0.0, 0.5, -1.0]
    assert (floats["format"], floats["sample_rate_hz"], floats["audio_end_ms"]) == ("pcm_f32le", 24_000, 100)


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("ws://h:1", "ws://h:1/v1/realtime?duplex=1&model=m&autostart=0"),
        ("https://h/x?a=b", "wss://h/x?a=b&duplex=1&model=m&autostart=0"),
    ],
)
def test_an_address_gets_the_path_and_the_query_of_the_endpoint(url: str, where: str) -> None:
    assert protocol.address(url, "m") == where


@pytest.mark.parametrize("url", ["h:1", "ftp://h", "ws://", "ws://h:99999", "ws://[::1"])
def test_an_address_that_cannot_be_is_refused(url: str) -> None:
    with pytest.raises(RemoteError, match="engine-url"):
        protocol.address(url, "m")
