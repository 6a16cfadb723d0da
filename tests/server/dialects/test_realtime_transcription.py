from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.realtime.realtime_transcription_session_create_request import (
    RealtimeTranscriptionSessionCreateRequest,
)
from openai.types.realtime.realtime_transcription_session_create_response import (
    RealtimeTranscriptionSessionCreateResponse,
)

from server.dialects.checks import Rejected
from server.dialects.realtime import RealtimeDialect
from sessions.core.events import CommandRejected, ConfigUpdate
from sessions.core.notices import InputTranscriptDone, SessionConfigured
from sessions.core.timeline import from_ms

from .conftest import Validate

IN = "session.audio.input"


@pytest.fixture
def dialect() -> RealtimeDialect:
    made = RealtimeDialect("m", intent="transcription")
    made.open("sess_1")
    return made


def update(dialect: RealtimeDialect, kind: str = "transcription", **fields: Any) -> ConfigUpdate | CommandRejected:
    (command,) = dialect.receive(json.dumps({"type": "session.update", "session": {"type": kind, **fields}}))
    assert isinstance(command, ConfigUpdate | CommandRejected)
    return command


def test_the_greeting_is_a_transcription_session(valid: Validate) -> None:
    (event,) = valid(RealtimeDialect("m", intent="transcription").open("sess_1"))
    session = event["session"]
    RealtimeTranscriptionSessionCreateResponse.model_validate(session, strict=True)
    assert (session["id"], session["object"]) == ("sess_1", "realtime.transcription_session")
    assert session["type"] == "transcription"
    assert set(session["audio"]) == {"input"}
    assert session["audio"]["input"]["transcription"] == {"model": "default"}
    assert session["audio"]["input"]["turn_detection"] == {
        "type": "server_vad",
        "threshold": 0.5,
        "prefix_padding_ms": 300,
        "silence_duration_ms": 500,
    }


def test_it_opens_a_session_that_listens_only(dialect: RealtimeDialect) -> None:
    config = dialect.config
    assert not config.responses
    assert config.transcribe_input
    assert config.turns is not None
    assert not config.turns.create_response


@pytest.mark.parametrize("detection", [None, {"type": "semantic_vad", "eagerness": "low"}, {"type": "server_vad"}])
def test_an_update_is_kept_and_shown(dialect: RealtimeDialect, valid: Validate, detection: Any) -> None:
    wanted = {
        "format": {"type": "audio/pcmu"},
        "noise_reduction": None,
        "transcription": {"model": "whisper-1", "language": "en"},
        "turn_detection": detection,
    }
    command = update(dialect, audio={"input": wanted}, include=["item.input_audio_transcription.logprobs"])
    assert isinstance(command, ConfigUpdate)
    assert not command.config.responses
    assert (command.config.turns is None) == (detection is None)
    (event,) = valid(dialect.send(SessionConfigured(command.config)))
    assert event["type"] == "session.updated"
    shown = event["session"]
    RealtimeTranscriptionSessionCreateRequest.model_validate(shown, strict=True)
    assert shown["include"] == ["item.input_audio_transcription.logprobs"]
    assert shown["audio"]["input"] | {"turn_detection": None} == wanted | {"turn_detection": None}
    assert (shown["audio"]["input"]["turn_detection"] or {}).items() >= (detection or {}).items()


def test_asking_for_answers_in_turn_detection_makes_none(dialect: RealtimeDialect) -> None:
    detection = {"type": "server_vad", "create_response": True, "interrupt_response": True}
    command = update(dialect, audio={"input": {"turn_detection": detection}})
    assert isinstance(command, ConfigUpdate)
    assert command.config.turns is not None
    assert not command.config.turns.create_response


def test_what_was_said_is_told_with_its_length(dialect: RealtimeDialect, valid: Validate) -> None:
    events = valid(dialect.send(InputTranscriptDone("item_1", "hello", from_ms(1500))))
    assert [event["type"].rpartition(".")[2] for event in events] == ["delta", "completed"]
    assert events[0]["delta"] == events[1]["transcript"] == "hello"
    assert events[1]["usage"] == {"type": "duration", "seconds": 1.5}


def test_a_key_of_a_transcription_session_opens_one() -> None:
    patch: Any = {"type": "transcription", "audio": {"input": {"turn_detection": None}}}
    made = RealtimeDialect("m", patch=patch)
    assert made.config.turns is None
    assert not made.config.responses


@pytest.mark.parametrize(("first", "then"), [("transcription", "realtime"), ("conversation", "transcription")])
def test_a_session_stays_of_its_type(first: str, then: str) -> None:
    dialect = RealtimeDialect("m", intent=first)
    dialect.open("sess_1")
    refused = update(dialect, then)
    assert isinstance(refused, CommandRejected)
    assert (refused.code, refused.param) == ("cannot_update_session_type", "session.type")
    assert "connect with" in refused.message


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"instructions": "be brief"}, "session.instructions"),
        ({"tools": [{"type": "function", "name": "f"}]}, "session.tools"),
        ({"output_modalities": ["text"]}, "session.output_modalities"),
        ({"audio": {"output": {"voice": "alloy"}}}, "session.audio.output"),
        (
            {"audio": {"input": {"turn_detection": {"type": "server_vad", "idle_timeout_ms": 5000}}}},
            f"{IN}.turn_detection.idle_timeout_ms",
        ),
    ],
)
def test_what_is_about_responses_is_refused(dialect: RealtimeDialect, fields: dict[str, Any], param: str) -> None:
    refused = update(dialect, **fields)
    assert isinstance(refused, CommandRejected)
    assert (refused.code, refused.param) == ("unsupported", param)
    assert "makes none" in refused.message


@pytest.mark.parametrize(
    ("intent", "patch", "param"),
    [
        ("dictation", None, "intent"),
        ("transcription", {"type": "realtime"}, "intent"),
        ("conversation", {"type": "transcription"}, "intent"),
        (None, {"type": "poem"}, "session.type"),
        (None, {}, "session.type"),
    ],
)
def test_a_wrong_or_contradictory_intent_is_refused(intent: str | None, patch: Any, param: str) -> None:
    with pytest.raises(Rejected) as refused:
        RealtimeDialect("m", patch=patch, intent=intent)
    assert refused.value.param == param
