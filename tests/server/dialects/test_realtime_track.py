"""The dialect of calls: what it says beside the events of the WebSocket."""

from __future__ import annotations

import json
from typing import Any

import pytest

from server.dialects.checks import Object, Rejected
from server.dialects.realtime_track import MISSED_MOST, TrackDialect
from sessions.core.config import SessionConfig
from sessions.core.notices import PlaybackStarted, SpeechStarted

NOTICES: Object = {"type": "realtime", "x_talkover": {"notices": True}}


def read(messages: list[str]) -> list[dict[str, Any]]:
    return [json.loads(message) for message in messages]


def test_the_output_buffer_is_reported() -> None:
    [event] = read(TrackDialect("m").send(PlaybackStarted("r")))
    assert (event["type"], event["response_id"]) == ("output_audio_buffer.started", "r")


def test_later_session_objects_go_over_earlier_ones_field_by_field() -> None:
    key: Object = {"type": "realtime", "instructions": "a", "audio": {"input": {"turn_detection": None}}}
    call: Object = {"type": "realtime", "instructions": "b", "audio": {"output": {"speed": 1.25}}}
    dialect = TrackDialect("m", SessionConfig(), patches=[key, call])
    assert (dialect.config.instructions, dialect.config.turns, dialect.config.speed) == ("b", None, 1.25)
    [created] = read(dialect.open("sess_1"))
    assert created["session"]["audio"]["output"]["speed"] == 1.25
    assert created["session"]["audio"]["input"]["turn_detection"] is None


def test_a_wrong_one_of_them_is_refused_by_its_field() -> None:
    wrong: Object = {"type": "realtime", "audio": {"output": {"speed": 9}}}
    with pytest.raises(Rejected) as refused:
        TrackDialect("m", patches=[NOTICES, wrong])
    assert refused.value.param == "session.audio.output.speed"


def test_the_token_is_shown_to_a_client_that_may_come_back_and_to_no_other() -> None:
    dialect = TrackDialect("m")
    dialect.resume_token = "first"
    [created] = read(dialect.open("sess_1"))
    assert "resume_token" not in created["session"]["x_talkover"]
    dialect.resumable = True
    [created] = read(dialect.open("sess_1"))
    assert created["session"]["x_talkover"] == {"notices": False, "resume_token": "first"}
    dialect.resume_token = "second"
    [created] = read(dialect.open("sess_1"))
    assert created["session"]["x_talkover"]["resume_token"] == "second"
    assert created["session"]["id"] == "sess_1"


def test_events_of_ours_go_to_those_who_asked() -> None:
    assert TrackDialect("m").own("mute", {"epoch": 1}) == []
    [event] = read(TrackDialect("m", patches=[NOTICES]).own("mute", {"epoch": 1}))
    assert event["type"] == "x_talkover.mute"
    assert event["epoch"] == 1
    assert event["event_id"]


def test_what_is_missed_is_kept_for_a_client_that_may_come_back_the_newest_of_it() -> None:
    dialect = TrackDialect("m")
    dialect.miss(SpeechStarted("u", 0))
    assert dialect.missed() == []
    dialect.resumable = True
    for number in range(MISSED_MOST + 10):
        dialect.miss(SpeechStarted(f"u{number}", 0))
    items = [event["item_id"] for event in read(dialect.missed())]
    assert items == [f"u{number}" for number in range(10, MISSED_MOST + 10)]
    assert dialect.missed() == []


def test_an_event_that_is_too_long_is_named_by_the_error_in_its_place() -> None:
    [event] = read([TrackDialect("m").too_large("session.updated", 16_384)])
    assert event["error"]["code"] == "message_too_large"
    assert "session.updated" in event["error"]["message"]
    assert "16384" in event["error"]["message"]
