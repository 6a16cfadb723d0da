from __future__ import annotations

import json
from typing import Any

import pytest

from server.dialects.base import EnduringDialect, InputAudio, ItemAudio, Reply
from server.dialects.checks import Rejected
from server.dialects.realtime import RealtimeDialect
from server.dialects.realtime_duplex import RealtimeDuplexDialect
from server.dialects.realtime_duplex_outbox import Outbox
from sessions.core.config import SessionConfig
from sessions.core.events import (
    Close,
    CommandRejected,
    ConfigUpdate,
    InputCommit,
    PlaybackReported,
    ResponseCreate,
)
from sessions.core.fence import OUT_OF_BAND, Fence
from sessions.core.notices import (
    CommandFailed,
    InputCleared,
    ItemView,
    OutputOpened,
    PlaybackAcknowledged,
    PlaybackCleared,
    PlaybackStopped,
    ResponseOpened,
    ResponseView,
    SessionConfigured,
)
from sessions.core.timeline import from_ms
from sessions.ports import OutputFrame

DEFAULTS = SessionConfig(grace=from_ms(30_000), acknowledge_playback=True)
FENCE = Fence("sess_1", 1, 0)
FLAT = {"modalities": ["audio", "text"], "input_audio_format": "pcm16", "sample_rate_hz": 16000, "turn_detection": None}


def begun(defaults: SessionConfig = DEFAULTS, **options: Any) -> RealtimeDuplexDialect:
    made = RealtimeDuplexDialect("m", defaults, **options)
    made.attach("sess_1", "token_1", 1)
    return made


@pytest.fixture
def dialect() -> RealtimeDuplexDialect:
    made = begun()
    made.open("sess_1")
    return made


def say(dialect: RealtimeDuplexDialect, kind: str, **fields: Any) -> list[Any]:
    return dialect.receive(json.dumps({"type": kind, "event_id": "evt_1", **fields}))


def rejected(received: list[Any]) -> CommandRejected:
    (why,) = received
    assert isinstance(why, CommandRejected)
    assert why.command == "evt_1"
    return why


def read(texts: list[str]) -> list[dict[str, Any]]:
    return [json.loads(text) for text in texts]


def numbers(texts: list[str]) -> list[int | None]:
    return [event.get("server_event_seq") for event in read(texts)]


def speak(dialect: RealtimeDuplexDialect, response: str, frames: int) -> list[str]:
    """An audio response begins and `frames` times 20 ms of it are sent."""
    item = ItemView(f"item_of_{response}", "assistant", "message", "in_progress", "", True)
    texts = dialect.send(ResponseOpened(ResponseView(response, "in_progress", "audio")))
    texts += dialect.send(OutputOpened(response, 0, item, None))
    for n in range(frames):
        texts += dialect.send_frame(
            OutputFrame(FENCE, n, response, item.id, n * 960, n * 960 + 960, n * 960, bytes(960), 24000)
        )
    return texts


# --- connections -----------------------------------------------------------------------------------------------------


def test_it_is_a_dialect_that_endures_and_the_plain_one_is_not() -> None:
    assert isinstance(begun(), EnduringDialect)
    assert not isinstance(RealtimeDialect("m"), EnduringDialect)


def test_the_greeting_carries_the_token_and_what_can_be_done() -> None:
    (event,) = read(begun().open("sess_1"))
    assert event["type"] == "session.created"
    assert (event["resume_token"], event["attachment_generation"]) == ("token_1", 1)
    assert event["session"]["id"] == "sess_1"
    assert event["session"]["capabilities"]["chunk_period_ms"] == 20
    assert event["session"]["capabilities"]["supports_session_resume"] is True
    assert "server_event_seq" not in event


def test_without_grace_there_is_no_token() -> None:
    made = begun(SessionConfig())
    (event,) = read(made.open("sess_1"))
    assert "resume_token" not in event
    assert event["session"]["capabilities"]["supports_session_resume"] is False
    assert not made.resumable


def test_events_are_numbered_without_a_gap_and_audio_is_not(dialect: RealtimeDuplexDialect) -> None:
    texts = [*speak(dialect, "r", 3), *dialect.send(InputCleared())]
    kinds = [event["type"] for event in read(texts)]
    audio = [
        number for kind, number in zip(kinds, numbers(texts), strict=True) if kind == "response.output_audio.delta"
    ]
    assert audio == [None, None, None]
    assert [number for number in numbers(texts) if number is not None] == [1, 2, 3, 4, 5]


def test_a_client_that_comes_back_gets_what_it_missed_and_no_audio(dialect: RealtimeDuplexDialect) -> None:
    texts = speak(dialect, "r", 3)
    dialect.keep(InputCleared())
    dialect.attach("sess_1", "token_2", 2, after=2)
    resumed, *missed = dialect.open("sess_1")
    (event,) = read([resumed])
    assert (event["type"], event["session_id"]) == ("session.resumed", "sess_1")
    assert (event["resume_token"], event["attachment_generation"]) == ("token_2", 2)
    assert event["session"]["id"] == "sess_1"
    assert "server_event_seq" not in event
    assert missed[:-1] == [text for text in texts if (json.loads(text).get("server_event_seq") or 0) > 2]
    assert read(missed)[-1]["type"] == "input_audio_buffer.cleared"
    assert numbers(dialect.send(InputCleared())) == [6]


def test_a_gap_is_told(dialect: RealtimeDuplexDialect) -> None:
    made = begun(outbox=Outbox(most_events=1))
    made.send(InputCleared())
    made.send(InputCleared())
    made.attach("sess_1", "token_2", 2, after=0)
    resumed, lost, kept = read(made.open("sess_1"))
    assert resumed["type"] == "session.resumed"
    assert (lost["type"], lost["reason"]) == ("session.resync_required", "journal_gap")
    assert kept["server_event_seq"] == 2


def test_what_the_client_has_got_is_not_said_again(dialect: RealtimeDuplexDialect) -> None:
    dialect.send(InputCleared())
    dialect.send(InputCleared())
    assert say(dialect, "session.event_ack", server_event_seq=1) == []
    assert dialect.outbox.first == 2
    why = rejected(say(dialect, "session.event_ack", server_event_seq=9))
    assert (why.code, why.param) == ("invalid_event_ack", "server_event_seq")
    assert rejected(say(dialect, "session.event_ack", server_event_seq="x")).param == "server_event_seq"


def test_a_reply_that_found_no_connection_is_kept(dialect: RealtimeDuplexDialect) -> None:
    dialect.keep(Reply({"type": "session.heartbeat_ack", "session_id": "sess_1"}))
    assert [event["type"] for event in read(dialect.outbox.after(0))] == ["session.heartbeat_ack"]


def test_the_last_words_are_for_the_reason(dialect: RealtimeDuplexDialect) -> None:
    (closed,) = read(dialect.farewell("client_close"))
    assert (closed["type"], closed["session_id"], closed["reason"]) == ("session.closed", "sess_1", "client_close")
    assert closed["event"]["reason"] == "client_close"
    dialect.attach("sess_1", "token_2", 2, after=0)
    (replaced,) = read(dialect.farewell("replaced"))
    assert (replaced["type"], replaced["attachment_generation"]) == ("session.replaced", 2)
    assert "server_event_seq" not in replaced
    (over,) = read(dialect.farewell("session_over"))
    assert (over["type"], over["error"]["code"]) == ("error", "session_resume_expired")


def test_whether_the_client_has_its_newest_token_shows_in_what_it_says(dialect: RealtimeDuplexDialect) -> None:
    assert dialect.spoken_to is False
    say(dialect, "session.heartbeat")
    assert dialect.spoken_to is True
    dialect.attach("sess_1", "token_2", 2, after=0)
    assert dialect.spoken_to is False


# --- the session object ---------------------------------------------------------------------------------------------


def test_an_update_in_the_clients_spelling_is_taken_and_echoed_with_its_rate(dialect: RealtimeDuplexDialect) -> None:
    (command,) = say(dialect, "session.update", session=FLAT)
    assert isinstance(command, ConfigUpdate)
    assert (command.config.turns, command.config.grace, command.config.acknowledge_playback) == (
        None,
        DEFAULTS.grace,
        True,
    )
    (event,) = read(dialect.send(SessionConfigured(command.config)))
    assert event["session"]["audio"]["input"]["format"] == {"type": "audio/pcm", "rate": 16000}
    assert event["session"]["audio"]["output"]["format"] == {"type": "audio/pcm", "rate": 24000}


def test_a_refused_update_leaves_the_rate_as_it_was(dialect: RealtimeDuplexDialect) -> None:
    (command,) = say(dialect, "session.update", session={**FLAT, "voice": "nobody"})
    dialect.send(CommandFailed("unknown_voice", "no such voice", "voice", command.command))
    assert say(dialect, "input_audio_buffer.append", audio="AQACAA==") == [InputAudio(b"\1\0\2\0", 24000)]


def test_a_session_begins_as_its_client_said_first() -> None:
    made = begun()
    seen: list[SessionConfig] = []
    made.begin_with(json.dumps({"type": "session.update", "session": FLAT}), seen.append)
    assert made.config.turns is None
    assert seen == [made.config]
    (event,) = read(made.open("sess_1"))
    assert event["session"]["audio"]["input"]["turn_detection"] is None
    assert event["session"]["audio"]["input"]["format"]["rate"] == 16000


@pytest.mark.parametrize(
    "message",
    [
        b"bytes",
        "no JSON",
        '{"type":"session.heartbeat"}',
        '{"type":"session.update"}',
        '{"type":"session.update","session":7}',
    ],
)
def test_what_cannot_begin_a_session_changes_nothing(message: str | bytes) -> None:
    made = begun()
    made.begin_with(message, lambda config: None)
    assert made.config == DEFAULTS


def test_a_configuration_that_is_not_possible_here_does_not_begin_a_session() -> None:
    def impossible(config: SessionConfig) -> None:
        raise Rejected("unknown_voice", "there is none")

    made = begun()
    made.begin_with(json.dumps({"type": "session.update", "session": FLAT}), impossible)
    assert made.config == DEFAULTS


# --- input -----------------------------------------------------------------------------------------------------------


def test_audio_is_at_the_sessions_rate_unless_it_says_otherwise(dialect: RealtimeDuplexDialect) -> None:
    say(dialect, "session.update", session=FLAT)
    assert say(dialect, "input_audio_buffer.append", audio="AQACAA==") == [InputAudio(b"\1\0\2\0", 16000)]
    assert say(dialect, "input_audio_buffer.append", audio="AQACAA==", sample_rate_hz=48000) == [
        InputAudio(b"\1\0\2\0", 48000)
    ]


def test_audio_inside_an_item_is_at_the_sessions_rate_too(dialect: RealtimeDuplexDialect) -> None:
    say(dialect, "session.update", session=FLAT)
    item = {"type": "message", "role": "user", "content": [{"type": "input_audio", "audio": "AQACAA=="}]}
    (received,) = say(dialect, "conversation.item.create", item=item)
    assert isinstance(received, ItemAudio)
    assert (received.pcm, received.rate) == (b"\1\0\2\0", 16000)
    say(dialect, "session.update", session={"input_audio_format": "g711_ulaw"})
    (received,) = say(dialect, "conversation.item.create", item=item)
    assert received.rate == 8000
    say(dialect, "session.update", session={"input_audio_format": "pcm_f32le"})
    assert rejected(say(dialect, "conversation.item.create", item=item)).param == "item.content"


def test_without_turn_detection_a_commit_is_also_the_question(dialect: RealtimeDuplexDialect) -> None:
    assert say(dialect, "input_audio_buffer.commit", final=True) == [InputCommit("evt_1")]
    say(dialect, "session.update", session=FLAT)
    assert say(dialect, "input_audio_buffer.commit", final=True) == [
        InputCommit("evt_1"),
        ResponseCreate(command="evt_1"),
    ]
    assert say(dialect, "input_audio_buffer.commit", response_create=False) == [InputCommit("evt_1")]
    say(dialect, "session.update", session={"extra_body": {"auto_response": False}})
    assert say(dialect, "input_audio_buffer.commit") == [InputCommit("evt_1")]
    assert rejected(say(dialect, "input_audio_buffer.commit", final=False)).param == "final"


def test_a_session_that_only_listens_answers_no_commit() -> None:
    made = begun(intent="transcription")
    made.open("sess_1")
    say(made, "session.update", session={"turn_detection": None})
    assert say(made, "input_audio_buffer.commit") == [InputCommit("evt_1")]


def test_a_heartbeat_is_answered_in_its_turn(dialect: RealtimeDuplexDialect) -> None:
    assert say(dialect, "session.heartbeat") == []
    (reply,) = dialect.replies()
    assert dialect.replies() == []
    dialect.send(InputCleared())
    (event,) = read(dialect.reply(reply))
    assert (event["type"], event["session_id"], event["server_event_seq"]) == ("session.heartbeat_ack", "sess_1", 2)


def test_a_client_ends_its_session_by_word(dialect: RealtimeDuplexDialect) -> None:
    assert say(dialect, "session.close", reason="replaced") == [Close("client_close")]


def test_to_resume_is_for_a_first_message(dialect: RealtimeDuplexDialect) -> None:
    why = rejected(say(dialect, "session.resume", session_id="s", resume_token="t"))
    assert (why.code, why.param) == ("unsupported_session_resume", "type")
    assert "autostart=0" in why.message


# --- playback --------------------------------------------------------------------------------------------------------


def test_a_report_is_a_position_and_never_beyond_what_was_sent(dialect: RealtimeDuplexDialect) -> None:
    speak(dialect, "r", 10)
    assert say(dialect, "playback.ack", played_ms=40, response_id="r") == [PlaybackReported("r", from_ms(40))]
    assert say(dialect, "playback.ack", played_ms=900, response_id="r") == [PlaybackReported("r", from_ms(200))]
    assert say(dialect, "playback.ack", played_ms=60, committed_ms=50, item_id="item_of_r") == [
        PlaybackReported("r", from_ms(50))
    ]


def test_where_none_is_named_the_newest_response_is_meant(dialect: RealtimeDuplexDialect) -> None:
    speak(dialect, "r", 1)
    speak(dialect, "s", 1)
    assert say(dialect, "playback.ack", played_ms=10) == [PlaybackReported("s", from_ms(10))]


def test_a_report_on_what_was_never_said_is_refused(dialect: RealtimeDuplexDialect) -> None:
    assert rejected(say(dialect, "playback.ack", played_ms=10)).code == "playback_item_not_found"
    speak(dialect, "r", 1)
    speak(dialect, "s", 1)
    for field, value in (("response_id", "x"), ("item_id", "x")):
        why = rejected(say(dialect, "playback.ack", played_ms=10, **{field: value}))
        assert (why.code, why.param) == ("playback_item_not_found", field)
    why = rejected(say(dialect, "playback.ack", played_ms=10, response_id="s", item_id="item_of_r"))
    assert (why.code, why.param) == ("playback_item_mismatch", "item_id")


def test_what_the_ledger_made_of_a_report_is_told(dialect: RealtimeDuplexDialect) -> None:
    speak(dialect, "r", 10)
    (event,) = read(dialect.send(PlaybackAcknowledged("r", from_ms(900), from_ms(200), from_ms(45) + 1, True)))
    assert event["type"] == "playback.acknowledged"
    assert event["event"] == {
        "type": "playback.acknowledged",
        "session_id": "sess_1",
        "response_id": "r",
        "item_id": "item_of_r",
        "playback": {"generated_ms": 900, "sent_ms": 200, "played_ms": 45, "committed_ms": 45},
        "history_committed": True,
    }
    (event,) = read(dialect.send(PlaybackAcknowledged("r", from_ms(900), from_ms(200), from_ms(45), False)))
    assert event["event"]["history_committed"] is False


@pytest.mark.parametrize(
    ("end", "heard"),
    [(PlaybackStopped("r"), 200), (PlaybackCleared("r", from_ms(60), "so"), 60)],
    ids=["played", "cut"],
)
def test_a_late_report_is_answered_with_the_ledgers_last_word(
    dialect: RealtimeDuplexDialect, end: PlaybackStopped | PlaybackCleared, heard: int
) -> None:
    speak(dialect, "r", 10)
    dialect.send(end)
    assert say(dialect, "playback.ack", played_ms=120, response_id="r") == []
    (reply,) = dialect.replies()
    (event,) = read(dialect.reply(reply))
    assert event["event"]["playback"]["played_ms"] == event["event"]["playback"]["committed_ms"] == heard
    assert event["event"]["history_committed"] is True


def test_only_the_latest_responses_can_be_reported_on(dialect: RealtimeDuplexDialect) -> None:
    for n in range(70):
        speak(dialect, f"r{n}", 1)
    assert rejected(say(dialect, "playback.ack", played_ms=10, response_id="r5")).code == "playback_item_not_found"
    assert say(dialect, "playback.ack", played_ms=10, response_id="r6") == [PlaybackReported("r6", from_ms(10))]


def test_what_is_said_beside_the_conversation_is_not_reported_on(dialect: RealtimeDuplexDialect) -> None:
    item = ItemView("beside", "assistant", "message", "in_progress", "", True)
    dialect.send(OutputOpened("aside", 0, item, None, aside=True))
    dialect.send_frame(OutputFrame(Fence("sess_1", 1, OUT_OF_BAND), 0, "aside", "beside", 0, 960, 0, bytes(960), 24000))
    assert rejected(say(dialect, "playback.ack", played_ms=10)).code == "playback_item_not_found"
