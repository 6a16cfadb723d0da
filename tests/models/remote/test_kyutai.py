"""`models.remote.kyutai`: MessagePack maps, read with suspicion."""

from __future__ import annotations

import math

import msgpack  # type: ignore[import-untyped]
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.remote import kyutai
from models.remote.errors import RemoteError


def read(**message: object) -> kyutai.Message:
    return kyutai.read("asr-url", msgpack.packb(message))


def test_audio_goes_out_in_single_precision() -> None:
    packed = kyutai.audio(np.array([0.5, -1.0], np.float32))
    assert msgpack.unpackb(packed) == {"type": "Audio", "pcm": [0.5, -1.0]}
    assert b"\xca\x3f\x00\x00\x00" in packed


def test_every_published_message_is_read() -> None:
    assert read(type="Ready") == kyutai.Ready()
    assert read(type="Marker", id=3) == kyutai.Marker(3)
    assert read(type="EndWord", stop_time=1.5) == kyutai.EndWord(1.5)
    assert read(type="Text", text="a", start_s=0.1, stop_s=0.2) == kyutai.Word("a", 0.1, 0.2)
    word = read(type="Word", text="a", start_time=0.1)
    assert isinstance(word, kyutai.Word)
    assert math.isnan(word.end)
    assert read(type="Step", step_idx=1, prs=[0.0], buffered_pcm=0) == kyutai.Other("Step")
    assert read(type="Error", message="no\x07") == kyutai.Failed("no")
    audio = read(type="Audio", pcm=[0.0, 1, -0.5])
    assert isinstance(audio, kyutai.Audio)
    assert list(audio.pcm) == [0.0, 1.0, -0.5]


@pytest.mark.parametrize(
    "message",
    [
        "text",
        b"",
        b"\xc1",
        msgpack.packb([1]),
        msgpack.packb({"type": 1}),
        msgpack.packb({}),
        msgpack.packb({"type": "Audio"}),
        msgpack.packb({"type": "Audio", "pcm": ["a"]}),
        msgpack.packb({"type": "Audio", "pcm": [math.nan]}),
        msgpack.packb({"type": "Word", "text": "a", "start_time": math.inf}),
        msgpack.packb({"type": "Word", "start_time": 1.0}),
        msgpack.packb({"type": "Marker"}),
    ],
)
def test_what_is_not_the_protocol_is_refused(message: str | bytes) -> None:
    with pytest.raises(RemoteError, match="asr-url") as refused:
        kyutai.read("asr-url", message)
    assert refused.value.code == "remote_bad_response"


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=64))
def test_whatever_bytes_come_are_a_message_or_refused(raw: bytes) -> None:
    try:
        assert kyutai.read("asr-url", raw) is not None
    except RemoteError as refused:
        assert refused.code == "remote_bad_response"  # noqa: PT017


@pytest.mark.parametrize(
    ("url", "stt", "tts"),
    [
        ("ws://h", "ws://h/api/asr-streaming", "ws://h/api/tts_streaming?format=PcmMessagePack&voice=a%20b"),
        ("ws://h/", "ws://h/api/asr-streaming", "ws://h/api/tts_streaming?format=PcmMessagePack&voice=a%20b"),
    ],
)
def test_an_address_gets_the_servers_paths(url: str, stt: str, tts: str) -> None:
    assert (kyutai.stt_address(url), kyutai.tts_address(url, "a b")) == (stt, tts)
    assert kyutai.stt_address("ws://h/x/asr-streaming") == "ws://h/x/asr-streaming"


def test_a_server_without_a_key_of_its_own_takes_the_public_one() -> None:
    assert kyutai.headers("") == {"kyutai-api-key": "public_token"}
    assert kyutai.headers("mine") == {"kyutai-api-key": "mine"}
