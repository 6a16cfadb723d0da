from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest

from server.dialects import realtime_duplex_in as duplex_in
from server.dialects import realtime_session as schema
from server.dialects.base import InputAudio
from server.dialects.checks import Object, Rejected
from sessions.core.config import SessionConfig

CLIENT = {
    "model": "m",
    "modalities": ["audio", "text"],
    "input_audio_format": "pcm16",
    "output_audio_format": "pcm16",
    "sample_rate_hz": 16000,
    "audio": {"input": {"sample_rate_hz": 16000}, "output": {"sample_rate_hz": 24000}},
    "turn_detection": None,
    "extra_body": {"auto_response": True},
}
"""What the client sends by itself (`SessionConfig().to_session_payload`)."""


def fresh() -> Object:
    return schema.initial("m", SessionConfig())


def merged(**fields: Any) -> Object:
    return duplex_in.merge(fresh(), fields)


def detection(session: Object) -> Any:
    return schema.input_of(session)["turn_detection"]


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def refused(call: Any, *arguments: Any) -> Rejected:
    with pytest.raises(Rejected) as info:
        call(*arguments)
    return info.value


# --- the session object ---------------------------------------------------------------------------------------------


def test_the_clients_own_session_is_taken_as_it_is() -> None:
    session = duplex_in.merge(fresh(), CLIENT)
    assert session["output_modalities"] == ["audio"]
    assert (session["input_audio_format"], session["sample_rate_hz"]) == ("pcm16", 16000)
    assert detection(session) is None
    assert schema.output_of(session)["format"] == {"type": "audio/pcm", "rate": 24000}
    assert schema.to_config(session, SessionConfig()).turns is None


def test_flat_fields_are_those_of_the_session_object() -> None:
    session = merged(
        voice="anna",
        instructions="sing",
        input_audio_transcription={"model": "w", "language": "de"},
        input_audio_noise_reduction={"type": "near_field"},
        max_response_output_tokens=20,
        temperature=0.3,
        turn_detection={"type": "semantic_vad"},
        output_audio_format="g711_ulaw",
        input_audio_format="g711_alaw",
    )
    config = schema.to_config(session, SessionConfig())
    assert (config.voice, config.instructions, config.language) == ("anna", "sing", "de")
    assert (config.denoise, config.max_output_tokens, config.temperature) == (True, 20, 0.3)
    assert config.turns is not None
    assert config.turns.kind == "semantic_vad"
    assert schema.format_of(schema.output_of(session)) == "audio/pcmu"
    assert schema.format_of(schema.input_of(session)) == "audio/pcma"
    assert (duplex_in.encoding_of(session), session["sample_rate_hz"]) == ("g711_alaw", 8000)


def test_text_alone_is_text() -> None:
    assert merged(modalities=["text"])["output_modalities"] == ["text"]


def test_what_is_not_said_stays_as_it_was() -> None:
    session = duplex_in.merge(duplex_in.merge(fresh(), CLIENT), {"instructions": "sing"})
    assert (session["instructions"], session["sample_rate_hz"], detection(session)) == ("sing", 16000, None)


def test_the_new_spelling_is_taken_too_and_sets_the_rate() -> None:
    session = duplex_in.merge(fresh(), CLIENT)
    wanted = {"type": "realtime", "audio": {"input": {"format": {"type": "audio/pcmu"}}}}
    session = duplex_in.merge(session, wanted)
    assert (duplex_in.encoding_of(session), session["sample_rate_hz"]) == ("g711_ulaw", 8000)
    session = duplex_in.merge(session, {"audio": {"input": {"format": {"type": "audio/pcm", "rate": 24000}}}})
    assert (duplex_in.encoding_of(session), session["sample_rate_hz"]) == ("pcm16", 24000)


def test_no_automatic_response_and_the_overlap_policy_are_turn_detection() -> None:
    vad = {"type": "server_vad"}
    session = merged(turn_detection=vad, extra_body={"auto_response": False}, overlap_policy="listen_only")
    assert (detection(session)["create_response"], detection(session)["interrupt_response"]) == (False, False)
    session = duplex_in.merge(session, {"overlap_policy": "barge_in_on_speech"})
    assert (detection(session)["create_response"], detection(session)["interrupt_response"]) == (False, True)
    said = merged(turn_detection={**vad, "interrupt_response": True}, overlap_policy="listen_only")
    assert detection(said)["interrupt_response"] is True


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"modalities": ["video"]}, "session.modalities"),
        ({"modalities": []}, "session.modalities"),
        ({"voice": 7}, "session.voice"),
        ({"turn_detection": {"type": "server_vad", "threshold": 7}}, "session.turn_detection.threshold"),
        ({"turn_detection": {"type": "psychic"}}, "session.turn_detection.type"),
        ({"input_audio_transcription": {"language": 7}}, "session.input_audio_transcription.language"),
        ({"max_response_output_tokens": 0}, "session.max_response_output_tokens"),
        ({"input_audio_format": "mp3"}, "session.input_audio_format"),
        ({"output_audio_format": "pcm_f32le"}, "session.output_audio_format"),
        ({"sample_rate_hz": 44100}, "session.sample_rate_hz"),
        ({"audio": {"input": {"sample_rate_hz": 11}}}, "session.audio.input.sample_rate_hz"),
        ({"input_audio_format": "g711_ulaw", "sample_rate_hz": 16000}, "session.sample_rate_hz"),
        ({"audio": {"output": {"sample_rate_hz": 16000}}}, "session.audio.output.sample_rate_hz"),
        ({"temperature": 3}, "session.temperature"),
        ({"ref_audio": "data:audio/wav;base64,AA=="}, "session.ref_audio"),
        ({"idle_timeout_s": 5}, "session.idle_timeout_s"),
        ({"playback_commit_policy": "commit_all_on_done"}, "session.playback_commit_policy"),
        ({"overlap_policy": "shout"}, "session.overlap_policy"),
        ({"extra_body": {"auto_response": "yes"}}, "session.extra_body.auto_response"),
        ({"extra_body": 7}, "session.extra_body"),
        ({"audio": 7}, "session.audio"),
        ({"audio": {"input": 7}}, "session.audio.input"),
    ],
)
def test_a_wrong_field_is_named_as_the_client_spelled_it(fields: dict[str, Any], param: str) -> None:
    current = fresh()
    before = json.dumps(current)
    why = refused(duplex_in.merge, current, fields)
    assert why.param == param
    assert repr(param) in why.message or why.code == "unsupported"
    assert json.dumps(current) == before


@pytest.mark.parametrize("value", [None, 7, "session", []])
def test_a_session_that_is_no_object_is_refused(value: Any) -> None:
    assert refused(duplex_in.merge, fresh(), value).param == "session"


# --- audio -----------------------------------------------------------------------------------------------------------


def test_audio_says_its_own_format_and_rate() -> None:
    pcm = b"\1\0\2\0"
    assert duplex_in.append({"audio": b64(pcm)}, "pcm16", 16000) == [InputAudio(pcm, 16000)]
    own = {"audio": b64(pcm), "format": "pcm16", "sample_rate_hz": 8000, "duration_ms": 0, "audio_end_ms": 0}
    assert duplex_in.append(own, "g711_ulaw", 8000) == [InputAudio(pcm, 8000)]
    assert duplex_in.append({"audio": b64(b"\xff\xff"), "format": "g711_ulaw"}, "pcm16", 48000) == [
        InputAudio(bytes(4), 8000)
    ]
    assert duplex_in.append({"audio": ""}, "pcm16", 16000) == []


def test_float_samples_are_taken_and_clipped() -> None:
    raw = np.array([0.0, 0.5, -1.0, 2.0], "<f4").tobytes()
    (audio,) = duplex_in.append({"audio": b64(raw)}, "pcm_f32le", 24000)
    assert np.frombuffer(audio.pcm, "<i2").tolist() == [0, 16384, -32767, 32767]


@pytest.mark.parametrize(
    ("event", "param"),
    [
        ({}, "audio"),
        ({"audio": "!"}, "audio"),
        ({"audio": b64(b"\1")}, "audio"),
        ({"audio": b64(b"\1\2\3"), "format": "pcm_f32le"}, "audio"),
        ({"audio": "!", "format": "pcm_f32le"}, "audio"),
        ({"audio": 7, "format": "pcm_f32le"}, "audio"),
        ({"audio": b64(np.array([np.nan], "<f4").tobytes()), "format": "pcm_f32le"}, "audio"),
        ({"audio": "", "format": "opus"}, "format"),
        ({"audio": "", "sample_rate_hz": 44100}, "sample_rate_hz"),
        ({"audio": "", "sample_rate_hz": True}, "sample_rate_hz"),
        ({"audio": "", "video_frames": ["AAAA"]}, "video_frames"),
    ],
)
def test_audio_that_cannot_be_is_refused(event: dict[str, Any], param: str) -> None:
    assert refused(duplex_in.append, event, "pcm16", 16000).param == param


# --- playback, turns, events -----------------------------------------------------------------------------------------


def test_what_is_not_committed_to_counts_as_not_played() -> None:
    assert duplex_in.ack({"played_ms": 700, "response_id": "r"}) == duplex_in.Ack(700, "r", None)
    assert duplex_in.ack({"played_ms": 700, "committed_ms": 500, "item_id": "i"}) == duplex_in.Ack(500, None, "i")
    assert duplex_in.ack({"played_ms": 700, "committed_ms": 900}) == duplex_in.Ack(700, None, None)


@pytest.mark.parametrize(
    ("event", "param"),
    [
        ({}, "played_ms"),
        ({"played_ms": -1}, "played_ms"),
        ({"played_ms": 1.5}, "played_ms"),
        ({"played_ms": 10**18}, "played_ms"),
        ({"played_ms": 1, "committed_ms": "1"}, "committed_ms"),
        ({"played_ms": 1, "response_id": 7}, "response_id"),
        ({"played_ms": 1, "item_id": ""}, "item_id"),
    ],
)
def test_a_wrong_playback_report_is_refused(event: dict[str, Any], param: str) -> None:
    assert refused(duplex_in.ack, event).param == param


def test_a_commit_asks_for_a_response_as_it_says() -> None:
    assert duplex_in.wants_response({"final": True}, True) is True
    assert duplex_in.wants_response({}, False) is False
    assert duplex_in.wants_response({"response_create": False}, True) is False
    assert duplex_in.wants_response({"create_response": True}, False) is True
    assert refused(duplex_in.wants_response, {"final": False}, True).param == "final"
    assert refused(duplex_in.wants_response, {"response_create": 1}, True).param == "response_create"


def test_a_resumption_is_told_from_every_other_first_message() -> None:
    event = {"type": "session.resume", "session_id": "s", "resume_token": "t", "last_received_server_event_seq": 7}
    assert duplex_in.resumption(json.dumps(event)) == duplex_in.Resume("s", "t", 7)
    del event["last_received_server_event_seq"]
    assert duplex_in.resumption(json.dumps(event)) == duplex_in.Resume("s", "t", 0)
    for other in ('{"type":"session.update"}', "no JSON", "[]", b"bytes", json.dumps({**event, "x": "y" * 9000})):
        assert duplex_in.resumption(other) is None


@pytest.mark.parametrize("field", ["session_id", "resume_token", "last_received_server_event_seq"])
@pytest.mark.parametrize("value", ["", -1, [], True])
def test_a_resumption_that_is_not_whole_is_refused(field: str, value: Any) -> None:
    event = {"type": "session.resume", "session_id": "s", "resume_token": "t", field: value}
    why = refused(duplex_in.resumption, json.dumps(event))
    assert (why.code, why.param) == ("invalid_session_resume", field)


def test_a_switch_is_on_or_off() -> None:
    assert [duplex_in.switch(value, "duplex", False) for value in (None, "1", "TRUE", "off", "0")] == [
        False,
        True,
        True,
        False,
        False,
    ]
    assert refused(duplex_in.switch, "perhaps", "duplex", False).param == "duplex"
