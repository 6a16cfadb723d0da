from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest

from server.dialects.checks import Rejected
from server.dialects.realtime import RealtimeDialect
from sessions.core.config import SessionConfig, TurnConfig
from sessions.core.events import CommandRejected, ConfigUpdate
from sessions.core.fence import Fence
from sessions.core.notices import CommandFailed, ItemView, OutputClosed, OutputOpened, SessionConfigured
from sessions.ports import OutputFrame

from .conftest import Validate

OLD, NEW = Fence("sess_1", 1, 0), Fence("sess_1", 1, 1)


@pytest.fixture
def dialect() -> RealtimeDialect:
    made = RealtimeDialect("talkover")
    made.open("sess_1")
    return made


def update(dialect: RealtimeDialect, event_id: str | None = None, **fields: Any) -> ConfigUpdate:
    event = {"type": "session.update", "event_id": event_id, "session": {"type": "realtime", **fields}}
    (command,) = dialect.receive(json.dumps(event))
    assert isinstance(command, ConfigUpdate)
    return command


def frame(number: int, fence: Fence = OLD, rate: int = 24000, level: int = 0) -> OutputFrame:
    pcm = np.full(rate // 50, level, dtype="<i2").tobytes()
    return OutputFrame(fence, number, "resp", "item", number * 960, number * 960 + 960, 5000 + number * 960, pcm, rate)


def said(texts: list[str]) -> bytes:
    return b"".join(base64.b64decode(json.loads(text)["delta"], validate=True) for text in texts)


def closing() -> OutputClosed:
    return OutputClosed("resp", 0, ItemView("item", "assistant", "message", "completed", "so", True), None)


MULAW_OUT = {"output": {"format": {"type": "audio/pcmu"}}}


# --- the session ---------------------------------------------------------------------------------------------------


def test_the_session_says_whether_it_is_recorded_and_whether_its_engine_sees(
    dialect: RealtimeDialect, valid: Validate
) -> None:
    (event,) = valid(dialect.open("sess_1"))
    assert event["session"]["x_talkover"] == {"notices": False}
    dialect.recorded = dialect.sees = True
    (event,) = valid(dialect.open("sess_1"))
    assert event["session"]["x_talkover"] == {"notices": False, "recording": True, "images": True}
    refused = RealtimeDialect("talkover", SessionConfig(recording_consent="refused"))
    refused.recorded = refused.sees = True
    (event,) = valid(refused.open("sess_1"))
    assert event["session"]["x_talkover"] == {"notices": False, "images": True}


def test_the_greeting_shows_the_whole_effective_session(valid: Validate) -> None:
    (event,) = valid(RealtimeDialect("talkover", SessionConfig(voice="anna")).open("sess_1"))
    assert event["type"] == "session.created"
    session = event["session"]
    assert (session["id"], session["object"], session["model"]) == ("sess_1", "realtime.session", "talkover")
    assert session["audio"]["input"]["turn_detection"]["interrupt_response"] is True
    assert session["audio"]["output"]["voice"] == "anna"


def test_a_session_may_begin_with_a_patch() -> None:
    made = RealtimeDialect("m", patch={"type": "realtime", "instructions": "sing", "audio": MULAW_OUT})
    assert made.config.instructions == "sing"
    assert said(made.send_frame(frame(0, rate=8000))) == b"\xff" * 160


def test_a_wrong_patch_is_an_error_at_once() -> None:
    with pytest.raises(Rejected, match=r"session\.audio\.output\.speed"):
        RealtimeDialect("m", patch={"type": "realtime", "audio": {"output": {"speed": 9}}})


def test_an_update_is_echoed_when_the_core_has_taken_it(dialect: RealtimeDialect, valid: Validate) -> None:
    command = update(dialect, instructions="sing", audio={"input": {"turn_detection": None}})
    assert command.config == SessionConfig(instructions="sing", turns=None)
    assert dialect.config == SessionConfig()
    (event,) = valid(dialect.send(SessionConfigured(command.config)))
    assert event["type"] == "session.updated"
    assert event["session"]["instructions"] == "sing"
    assert event["session"]["audio"]["input"]["turn_detection"] is None
    assert event["session"]["id"] == "sess_1"
    assert dialect.config == command.config


def test_a_wrong_update_is_rejected_whole(dialect: RealtimeDialect) -> None:
    event = {
        "type": "session.update",
        "event_id": "evt_1",
        "session": {
            "type": "realtime",
            "instructions": "sing",
            "audio": {"input": {"turn_detection": {"type": "server_vad", "threshold": 7}}},
        },
    }
    (rejected,) = dialect.receive(json.dumps(event))
    assert isinstance(rejected, CommandRejected)
    assert rejected.param == "session.audio.input.turn_detection.threshold"
    assert rejected.command == "evt_1"
    assert update(dialect, audio={"output": {"speed": 1.1}}).config.instructions == ""


def test_updates_in_a_row_build_on_each_other_and_are_echoed_in_turn(dialect: RealtimeDialect, valid: Validate) -> None:
    first = update(dialect, instructions="sing")
    second = update(dialect, audio={"output": {"speed": 0.8}})
    assert second.config == SessionConfig(instructions="sing", speed=0.8)
    (one,) = valid(dialect.send(SessionConfigured(first.config)))
    (two,) = valid(dialect.send(SessionConfigured(second.config)))
    assert (one["session"]["audio"]["output"]["speed"], two["session"]["audio"]["output"]["speed"]) == (1.0, 0.8)
    assert two["session"]["instructions"] == "sing"


def test_an_update_that_only_the_echo_shows_is_echoed_too(dialect: RealtimeDialect, valid: Validate) -> None:
    command = update(dialect, tracing="auto")
    (event,) = valid(dialect.send(SessionConfigured(command.config)))
    assert event["session"]["tracing"] == "auto"


@pytest.mark.parametrize("event_id", [None, "evt_9"])
def test_an_update_that_the_core_refuses_leaves_nothing_behind(
    dialect: RealtimeDialect, event_id: str | None, valid: Validate
) -> None:
    command = update(dialect, event_id, instructions="no", audio={"output": {"voice": "other"}})
    (event,) = valid(dialect.send(CommandFailed("cannot_update_voice", "too late", "voice", command.command)))
    assert event["error"]["param"] == "session.audio.output.voice"
    assert event["error"]["event_id"] == event_id
    assert update(dialect, audio={"output": {"speed": 0.8}}).config == SessionConfig(speed=0.8)


def test_a_refused_update_does_not_stand_in_the_way_of_the_next(dialect: RealtimeDialect, valid: Validate) -> None:
    first = update(dialect, audio={"output": {"voice": "other"}})
    dialect.send(CommandFailed("cannot_update_voice", "too late", "voice", first.command))
    second = update(dialect, instructions="sing")
    (event,) = valid(dialect.send(SessionConfigured(second.config)))
    assert event["session"]["audio"]["output"]["voice"] == "default"
    assert event["session"]["instructions"] == "sing"


def test_a_failure_that_only_looks_like_an_update_keeps_its_id(dialect: RealtimeDialect, valid: Validate) -> None:
    (event,) = valid(dialect.send(CommandFailed("x", "y", None, "session.update/77")))
    assert event["error"]["event_id"] == "session.update/77"


def test_a_configuration_that_no_update_asked_for_is_taken_over(dialect: RealtimeDialect, valid: Validate) -> None:
    command = update(dialect, instructions="sing")
    valid(dialect.send(SessionConfigured(SessionConfig(temperature=0.1))))
    (event,) = valid(dialect.send(SessionConfigured(command.config)))
    assert event["session"]["instructions"] == "sing"


def test_own_turn_settings_reach_the_core(dialect: RealtimeDialect) -> None:
    turn_detection = {"type": "server_vad", "x_commit_ms": 300, "x_resume_ms": 100}
    command = update(dialect, audio={"input": {"turn_detection": turn_detection}})
    assert command.config.turns == TurnConfig(commit_ms=300, resume_ms=100)


def test_input_is_read_in_the_new_format_right_after_the_update_and_in_the_old_after_a_refusal(
    dialect: RealtimeDialect,
) -> None:
    append = json.dumps({"type": "input_audio_buffer.append", "audio": base64.b64encode(b"\xff\xff").decode()})
    command = update(dialect, audio={"input": {"format": {"type": "audio/pcmu"}}, "output": {"voice": "other"}})
    (mulaw,) = dialect.receive(append)
    dialect.send(CommandFailed("cannot_update_voice", "too late", "voice", command.command))
    (pcm,) = dialect.receive(append)
    assert (getattr(mulaw, "rate", 0), getattr(pcm, "rate", 0)) == (8000, 24000)
    assert (getattr(mulaw, "pcm", b""), getattr(pcm, "pcm", b"")) == (bytes(4), b"\xff\xff")


# --- audio ---------------------------------------------------------------------------------------------------------


def test_a_delta_carries_its_epoch_its_number_and_its_place(dialect: RealtimeDialect, valid: Validate) -> None:
    (event,) = valid(dialect.send_frame(frame(7, NEW, level=1000)))
    assert (event["x_epoch"], event["x_seq"], event["x_ticks"]) == (1, 7, 5000 + 7 * 960)
    assert (event["response_id"], event["item_id"], event["output_index"]) == ("resp", "item", 0)
    assert base64.b64decode(event["delta"]) == frame(7, level=1000).pcm


def test_a_delta_has_the_index_of_its_output(dialect: RealtimeDialect, valid: Validate) -> None:
    dialect.send(OutputOpened("resp", 2, ItemView("item", "assistant", "message", "in_progress", "", True), None))
    (event,) = valid(dialect.send_frame(frame(0)))
    assert event["output_index"] == 2


def test_names_in_a_delta_are_escaped(dialect: RealtimeDialect, valid: Validate) -> None:
    odd = OutputFrame(OLD, 0, 'r"\\', "i\n\u00e9", 0, 960, 0, bytes(960), 24000)
    (event,) = valid(dialect.send_frame(odd))
    assert (event["response_id"], event["item_id"]) == ('r"\\', "i\n\u00e9")


def test_the_last_samples_go_out_before_the_audio_is_done(dialect: RealtimeDialect, valid: Validate) -> None:
    dialect.send(SessionConfigured(update(dialect, audio=MULAW_OUT).config))
    texts = dialect.send_frame(frame(0)) + dialect.send_frame(frame(1))
    assert len(said(texts)) == 320 - 32
    tail, done, *_ = valid(dialect.send(closing()))
    assert (tail["type"], done["type"]) == ("response.output_audio.delta", "response.output_audio.done")
    assert len(base64.b64decode(tail["delta"])) == 32
    assert (tail["x_seq"], tail["x_ticks"]) == (1, 5000 + 2 * 960 - 32 * 6)


def test_after_a_flush_no_sample_of_before_is_in_any_delta(dialect: RealtimeDialect) -> None:
    dialect.send(SessionConfigured(update(dialect, audio=MULAW_OUT).config))
    for number in range(3):
        dialect.send_frame(frame(number, OLD, level=20000))
    dialect.flush(NEW)
    assert "response.output_audio.delta" not in "".join(dialect.send(closing()))
    texts = [text for number in range(3, 6) for text in dialect.send_frame(frame(number, NEW))]
    assert set(said(texts)) == {0xFF}
    assert {json.loads(text)["x_epoch"] for text in texts} == {1}


def test_a_new_format_holds_from_its_echo_on_and_loses_no_sample(dialect: RealtimeDialect, valid: Validate) -> None:
    first = update(dialect, audio=MULAW_OUT)
    assert len(said(dialect.send_frame(frame(0)))) == 960
    dialect.send(SessionConfigured(first.config))
    mulaw = said(dialect.send_frame(frame(1)))
    second = update(dialect, audio={"output": {"format": {"type": "audio/pcm", "rate": 24000}}})
    tail, updated = valid(dialect.send(SessionConfigured(second.config)))
    assert len(mulaw) + len(base64.b64decode(tail["delta"])) == 160
    assert updated["session"]["audio"]["output"]["format"]["type"] == "audio/pcm"
    assert len(said(dialect.send_frame(frame(2)))) == 960
