"""Each notice becomes events that the vendor's own models accept, in the order that clients accept."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.dialects.realtime import RealtimeDialect
from sessions.core.config import SessionConfig
from sessions.core.fence import Fence
from sessions.core.notices import (
    CommandFailed,
    EpochBegan,
    Held,
    InputCleared,
    InputCommitted,
    InputTimedOut,
    InputTranscriptDone,
    InputTranscriptFailed,
    InputTranscriptHypothesis,
    ItemAdded,
    ItemDeleted,
    ItemRetrieved,
    ItemTruncated,
    ItemView,
    Notice,
    OutputClosed,
    OutputOpened,
    OutputText,
    PlaybackCleared,
    PlaybackStarted,
    PlaybackStopped,
    ResponseClosed,
    ResponseOpened,
    ResponseView,
    Resumed,
    SessionConfigured,
    SpeechStarted,
    SpeechStopped,
    StageReached,
    TurnEnded,
)
from sessions.core.timeline import Token
from sessions.ports import OutputFrame

from .conftest import Validate, check

FENCE = Fence("sess_1", 1, 0)


def dialect(**options: Any) -> RealtimeDialect:
    made = RealtimeDialect("m", SessionConfig(), **options)
    made.open("sess_1")
    return made


def spoken(text: str = "", status: Any = "in_progress") -> ItemView:
    return ItemView("item_a", "assistant", "message", status, text, True)


def call(arguments: str = "", status: Any = "in_progress") -> ItemView:
    return ItemView("item_c", "assistant", "function_call", status, arguments, call="call_1", name="add")


def frame(number: int, rate: int = 24000) -> OutputFrame:
    pcm = bytes(range(96)) * (rate // 2400)
    return OutputFrame(FENCE, number, "resp_1", "item_a", number * 960, number * 960 + 960, 7 + number * 960, pcm, rate)


def opened(**fields: Any) -> ResponseOpened:
    return ResponseOpened(ResponseView("resp_1", "in_progress", "audio", **fields))


def closed(status: Any = "completed", *items: ItemView, detail: str = "", **fields: Any) -> ResponseClosed:
    return ResponseClosed(ResponseView("resp_1", status, "audio", items, detail, **fields))


def test_a_spoken_reply_in_the_order_that_clients_accept(valid: Validate) -> None:
    d = dialect()
    done = spoken("Hi there.", "completed")
    texts: list[str] = []
    for notice in (
        SpeechStarted("item_u", 48_000),
        SpeechStopped("item_u", 96_000),
        InputCommitted("item_u", None),
        ItemAdded(ItemView("item_u", "user", "message", "completed", "", True), None),
        opened(metadata=(("client_event_id", "evt"),)),
        OutputOpened("resp_1", 0, spoken(), "item_u"),
        OutputText("resp_1", 0, "item_a", "Hi there.", True),
    ):
        texts += d.send(notice)
    texts += d.send_frame(frame(0)) + d.send_frame(frame(1))
    texts += d.send(OutputClosed("resp_1", 0, done, "item_u"))
    texts += d.send(closed("completed", done, metadata=(("client_event_id", "evt"),), input_tokens=5, output_tokens=3))
    events = valid(texts)
    assert [event["type"] for event in events] == [
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
        "response.created",
        "response.output_item.added",
        "conversation.item.added",
        "response.content_part.added",
        "response.output_audio_transcript.delta",
        "response.output_audio.delta",
        "response.output_audio.delta",
        "response.output_audio.done",
        "response.output_audio_transcript.done",
        "response.content_part.done",
        "conversation.item.done",
        "response.output_item.done",
        "response.done",
        "rate_limits.updated",
    ]
    by_type = {event["type"]: event for event in events}
    assert by_type["response.content_part.added"]["part"] == {"type": "audio", "transcript": ""}
    assert by_type["response.output_item.added"]["item"]["content"] == []
    assert by_type["response.output_item.done"]["item"]["content"] == [
        {"type": "output_audio", "transcript": "Hi there."}
    ]
    assert by_type["conversation.item.done"]["previous_item_id"] == "item_u"
    response = by_type["response.done"]["response"]
    assert by_type["response.created"]["response"]["metadata"] == response["metadata"] == {"client_event_id": "evt"}
    assert response["status_details"] is None
    assert (response["usage"]["total_tokens"], response["usage"]["input_tokens"]) == (8, 5)
    assert response["conversation_id"] == "conv_1"
    assert by_type["response.created"]["response"]["usage"] is None
    assert by_type["input_audio_buffer.speech_started"]["audio_start_ms"] == 1000


def test_a_text_reply_in_the_order_that_clients_accept(valid: Validate) -> None:
    d = dialect()
    view = ItemView("item_t", "assistant", "message", "in_progress")
    done = ItemView("item_t", "assistant", "message", "completed", "yes")
    texts = d.send(OutputOpened("resp_1", 0, view, None)) + d.send(OutputText("resp_1", 0, "item_t", "yes", False))
    events = valid(texts + d.send(OutputClosed("resp_1", 0, done, None)))
    assert [event["type"] for event in events] == [
        "response.output_item.added",
        "conversation.item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "conversation.item.done",
        "response.output_item.done",
    ]
    assert events[2]["part"] == {"type": "text", "text": ""}
    assert events[5]["part"] == {"type": "text", "text": "yes"}
    assert events[7]["item"]["content"] == [{"type": "output_text", "text": "yes"}]


def test_a_function_call_in_the_order_that_clients_accept(valid: Validate) -> None:
    d = dialect()
    arguments = '{"a":1}'
    texts = d.send(OutputOpened("resp_1", 1, call(), "item_a"))
    events = valid(texts + d.send(OutputClosed("resp_1", 1, call(arguments, "completed"), "item_a")))
    assert [event["type"] for event in events] == [
        "response.output_item.added",
        "conversation.item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "conversation.item.done",
        "response.output_item.done",
    ]
    assert events[0]["item"]["arguments"] == ""
    assert (events[3]["arguments"], events[3]["name"], events[3]["call_id"]) == (arguments, "add", "call_1")
    assert events[5]["item"]["arguments"] == arguments
    assert {event["output_index"] for event in events if "output_index" in event} == {1}


@pytest.mark.parametrize(
    ("status", "detail", "details"),
    [
        ("cancelled", "barge_in", {"type": "cancelled", "reason": "turn_detected"}),
        ("cancelled", "withdrawn", {"type": "cancelled", "reason": "turn_detected"}),
        ("cancelled", "client_cancel", {"type": "cancelled", "reason": "client_cancelled"}),
        ("cancelled", "client_clear", {"type": "cancelled", "reason": "client_cancelled"}),
        ("cancelled", "detached", {"type": "cancelled", "reason": "client_cancelled"}),
        ("cancelled", "superseded", {"type": "cancelled", "reason": "client_cancelled"}),
        ("incomplete", "max_output_tokens", {"type": "incomplete", "reason": "max_output_tokens"}),
        ("incomplete", "content_filter", {"type": "incomplete", "reason": "content_filter"}),
        (
            "failed",
            "engine_lost",
            {"type": "failed", "error": {"type": "server_error", "code": "engine_lost", "message": ""}},
        ),
    ],
)
def test_a_response_that_did_not_complete_says_why_and_lists_no_limits(
    status: str, detail: str, details: object, valid: Validate
) -> None:
    (event,) = valid(dialect().send(closed(status, spoken("Hi", "incomplete"), detail=detail)))
    assert event["response"]["status_details"] == details


@pytest.mark.parametrize(
    ("view", "content"),
    [
        (ItemView("i", "user", "message", "completed", "hi"), {"type": "input_text", "text": "hi"}),
        (ItemView("i", "user", "message", "completed", "hi", True), {"type": "input_audio", "transcript": "hi"}),
        (ItemView("i", "user", "message", "completed", "", True), {"type": "input_audio", "transcript": None}),
        (ItemView("i", "system", "message", "completed", "be"), {"type": "input_text", "text": "be"}),
        (ItemView("i", "assistant", "message", "incomplete", "so"), {"type": "output_text", "text": "so"}),
        (ItemView("i", "assistant", "message", "incomplete", "so", True), {"type": "output_audio", "transcript": "so"}),
    ],
)
def test_each_kind_of_message_shows_its_content(view: ItemView, content: object, valid: Validate) -> None:
    (event,) = valid(dialect().send(ItemRetrieved(view)))
    assert event["item"]["content"] == [content]
    assert event["item"]["status"] == view.status


def test_a_tool_result_shows_its_output(valid: Validate) -> None:
    view = ItemView("i", "user", "function_call_output", "completed", "4", call="call_1")
    events = valid(dialect().send(ItemAdded(view, "p")))
    assert [event["type"] for event in events] == ["conversation.item.added", "conversation.item.done"]
    assert events[0]["item"]["output"] == "4"
    assert events[0]["previous_item_id"] == "p"


def test_captions_of_the_user_add_up_to_the_transcript(valid: Validate) -> None:
    d = dialect()
    assert d.send(InputTranscriptHypothesis("i", "hello we")) == []
    delta, done = valid(d.send(InputTranscriptDone("i", "Hello, world.", 72_000)))
    assert delta["delta"] == done["transcript"] == "Hello, world."
    assert done["usage"] == {"type": "duration", "seconds": 1.5}
    assert "logprobs" not in done
    (failed,) = valid(d.send(InputTranscriptFailed("i", "asr_failed", "no luck")))
    assert failed["error"] == {"type": "server_error", "code": "asr_failed", "message": "no luck"}


def test_how_sure_the_recognizer_was_goes_with_the_transcript(valid: Validate) -> None:
    tokens = (Token("Gr", (71, 114), -0.1), Token("\ufffd", (195,), -0.25))
    delta, done = valid(dialect().send(InputTranscriptDone("i", "Gr\u00fc", 72_000, tokens)))
    expected = [
        {"token": "Gr", "bytes": [71, 114], "logprob": -0.1},
        {"token": "\ufffd", "bytes": [195], "logprob": -0.25},
    ]
    assert delta["logprobs"] == done["logprobs"] == expected


def test_a_spoken_item_is_added_without_its_words_which_follow(valid: Validate) -> None:
    spoken = ItemView("i", "user", "message", "completed", "hello", True)
    added, done = valid(dialect().send(ItemAdded(spoken, None)))
    assert added["item"]["content"] == done["item"]["content"] == [{"type": "input_audio", "transcript": None}]
    (retrieved,) = valid(dialect().send(ItemRetrieved(spoken)))
    assert retrieved["item"]["content"] == [{"type": "input_audio", "transcript": "hello"}]


def test_an_error_names_the_clients_event(valid: Validate) -> None:
    (event,) = valid(dialect().send(CommandFailed("item_not_found", "no such item", "item_id", "evt_7")))
    assert event["error"] == {
        "type": "invalid_request_error",
        "code": "item_not_found",
        "message": "no such item",
        "param": "item_id",
        "event_id": "evt_7",
    }
    (event,) = valid(dialect().send(CommandFailed("x", "y", kind="server_error")))
    assert (event["error"]["type"], event["error"]["event_id"]) == ("server_error", None)


def test_milliseconds_are_whole_and_never_too_many(valid: Validate) -> None:
    (event,) = valid(dialect().send(ItemTruncated("i", 0, 48 * 1500 + 47, "so")))
    assert event["audio_end_ms"] == 1500


OWN: list[tuple[Notice, dict[str, Any]]] = [
    (Held(480), {"type": "x_talkover.held", "at": 480}),
    (Resumed("mm"), {"type": "x_talkover.resumed", "words": "mm"}),
    (
        EpochBegan(3, "barge_in", 960),
        {"type": "x_talkover.epoch_began", "epoch": 3, "cause": "barge_in", "at": 960},
    ),
    (
        TurnEnded("i", 10, 20, "silence"),
        {"type": "x_talkover.turn_ended", "item": "i", "speech_end": 10, "decided_at": 20, "by": "silence"},
    ),
    (
        StageReached("r", "first_code", 48 * 152 + 7),
        {"type": "x_talkover.stage_reached", "response": "r", "stage": "first_code", "elapsed_ms": 152},
    ),
    (StageReached("", "ends_soon"), {"type": "x_talkover.stage_reached", "response": "", "stage": "ends_soon"}),
    (
        PlaybackCleared("r", 5, "so"),
        {"type": "x_talkover.playback_cleared", "response": "r", "heard": 5, "text": "so", "heard_by": "model"},
    ),
    (
        InputTranscriptHypothesis("i", "so"),
        {"type": "x_talkover.input_transcript_hypothesis", "item": "i", "text": "so"},
    ),
]


@pytest.mark.parametrize(("notice", "event"), OWN)
def test_our_own_notices_are_sent_only_to_who_asked(notice: Notice, event: dict[str, Any]) -> None:
    assert dialect().send(notice) == []
    asked = dialect(patch={"type": "realtime", "x_talkover": {"notices": True}})
    (text,) = asked.send(notice)
    sent = json.loads(text)
    assert sent.pop("event_id").startswith("event_")
    assert sent == event


def test_the_output_buffer_is_reported_only_where_audio_has_a_track(valid: Validate) -> None:
    notices: list[Notice] = [PlaybackStarted("r"), PlaybackStopped("r"), PlaybackCleared("r", 0, "")]
    assert [text for notice in notices for text in dialect().send(notice)] == []
    tracked = dialect(track=True)
    events = valid([text for notice in notices for text in tracked.send(notice)])
    assert [event["type"] for event in events] == [
        f"output_audio_buffer.{word}" for word in ("started", "stopped", "cleared")
    ]
    assert tracked.send_frame(frame(0)) == []


ids = st.text(min_size=1, max_size=12)
ticks = st.integers(0, 10**9)
statuses = st.sampled_from(["in_progress", "completed", "incomplete"])
words = st.text(max_size=30)
items = st.one_of(
    st.builds(
        ItemView,
        ids,
        st.sampled_from(["user", "assistant", "system"]),
        st.just("message"),
        statuses,
        words,
        st.booleans(),
    ),
    st.builds(ItemView, ids, st.just("assistant"), st.just("function_call"), statuses, words, call=ids, name=ids),
    st.builds(ItemView, ids, st.just("user"), st.just("function_call_output"), statuses, words, call=ids),
)
outputs = items.filter(lambda item: item.role == "assistant")
responses = st.builds(
    ResponseView,
    ids,
    st.sampled_from(["in_progress", "completed", "cancelled", "incomplete", "failed"]),
    st.sampled_from(["audio", "text"]),
    st.lists(outputs, max_size=3).map(tuple),
    st.sampled_from(["", "barge_in", "withdrawn", "client_cancel", "max_output_tokens", "content_filter", "boom"]),
    words,
    st.lists(st.tuples(ids, words), max_size=3).map(tuple),
    st.none() | st.integers(1, 4096),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
)
previous = st.none() | ids
notices: st.SearchStrategy[Notice] = st.one_of(
    st.just(SessionConfigured(SessionConfig())),
    st.builds(SpeechStarted, ids, ticks),
    st.builds(SpeechStopped, ids, ticks),
    st.builds(InputCommitted, ids, previous),
    st.just(InputCleared()),
    st.builds(InputTimedOut, ids, ticks, ticks),
    st.builds(InputTranscriptHypothesis, ids, words),
    st.builds(InputTranscriptDone, ids, words, ticks),
    st.builds(InputTranscriptFailed, ids, words, words),
    st.builds(ItemAdded, items, previous),
    st.builds(ItemDeleted, ids),
    st.builds(ItemRetrieved, items),
    st.builds(ItemTruncated, ids, st.integers(0, 3), ticks, words),
    st.builds(ResponseOpened, responses),
    st.builds(OutputOpened, ids, st.integers(0, 5), outputs, previous),
    st.builds(OutputText, ids, st.integers(0, 5), ids, words, st.booleans()),
    st.builds(OutputClosed, ids, st.integers(0, 5), outputs, previous),
    st.builds(ResponseClosed, responses),
    st.builds(PlaybackStarted, ids),
    st.builds(PlaybackStopped, ids),
    st.builds(PlaybackCleared, ids, ticks, words),
    st.builds(Held, ticks),
    st.builds(Resumed, words),
    st.builds(EpochBegan, st.integers(1, 99), st.just("barge_in"), st.none() | ticks),
    st.builds(TurnEnded, ids, ticks, ticks, words),
    st.builds(StageReached, ids, words),
    st.builds(CommandFailed, words, words, st.none() | words, st.none() | words),
)
frames = st.builds(
    lambda n, item, response, epoch: OutputFrame(
        Fence("s", 1, epoch), n, response, item, 0, 960, n * 960, bytes(960), 24000
    ),
    st.integers(0, 10**6),
    ids,
    ids,
    st.integers(0, 99),
)


@settings(max_examples=150, deadline=None)
@given(walk=st.lists(notices | frames, max_size=12), media=st.sampled_from(["audio/pcm", "audio/pcmu", "audio/pcma"]))
def test_whatever_the_core_says_every_event_is_one_of_the_protocol(
    walk: list[Notice | OutputFrame], media: str
) -> None:
    d = RealtimeDialect("m", patch={"type": "realtime", "audio": {"output": {"format": {"type": media}}}})
    events = [check(text) for text in d.open("sess_1")]
    for step in walk:
        for text in d.send_frame(step) if isinstance(step, OutputFrame) else d.send(step):
            events.append(check(text))
    numbers = [event["event_id"] for event in events]
    assert numbers == [f"event_{n}" for n in range(1, len(numbers) + 1)]
