"""The timeline of a talk, from events as they arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from server.client import RATE, Pcm, Received, Utterance
from server.timeline import Entry, Figures, Latency, figures, speech_end, timeline


def event(arrived: float, kind: str, /, **body: Any) -> Received:
    return Received(arrived, {"type": kind, **body})


def said(began: float | None, seconds: float = 1.0, silence: float = 0.5) -> Utterance:
    """A clip that sounds for `seconds` and is silent for `silence`; None: it was never played."""
    future: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    if began is not None:
        future.set_result(began)
    sound = np.full(round(seconds * RATE), 1000, np.int16)
    return Utterance(np.concatenate([sound, np.zeros(round(silence * RATE), np.int16)]), future)


def texts(entries: list[Entry]) -> list[str]:
    return [entry.text for entry in entries]


# --- where speech ends ---------------------------------------------------------------------------------------------


def clip(*levels: int) -> Pcm:
    return np.array(levels, np.int16)


@pytest.mark.parametrize(
    ("pcm", "end"),
    [
        (clip(0, 1000, 1000, 0, 0), 3),
        (clip(1000, 11, 10), 2),
        (clip(0, -32768, 0), 2),
        (clip(0, 0, 0), 3),
        (clip(5), 1),
    ],
)
def test_speech_ends_with_the_last_sample_that_is_not_forty_decibels_below_the_loudest(pcm: Pcm, end: int) -> None:
    assert speech_end(pcm) == end


# --- lines ---------------------------------------------------------------------------------------------------------


async def test_the_user_begins_and_stops_where_the_clip_sounds() -> None:
    entries = timeline([], [said(10.0, seconds=1.0), said(15.5, seconds=0.5)], began=9.5)
    assert [str(entry) for entry in entries] == [
        "   0.500  user   begins to speak",
        "   1.500  user   stops speaking",
        "   6.000  user   begins to speak",
        "   6.500  user   stops speaking",
    ]


async def test_a_clip_that_was_never_played_has_no_line() -> None:
    assert timeline([], [said(None)], began=0.0) == []
    assert figures([], [said(None)]).latencies == ()


LINES: list[tuple[Received, tuple[str, str]]] = [
    (
        event(1, "input_audio_buffer.speech_started", audio_start_ms=420),
        ("server", "speech started at 420 ms of input"),
    ),
    (
        event(1, "input_audio_buffer.speech_stopped", audio_end_ms=1420),
        ("server", "speech stopped at 1420 ms of input"),
    ),
    (
        event(1, "conversation.item.input_audio_transcription.completed", transcript="Hello."),
        ("user", 'said: "Hello."'),
    ),
    (event(1, "x_talkover.held", at=48 * 5312), ("server", "hold, on speech at 5312 ms of input")),
    (event(1, "x_talkover.resumed", words=""), ("server", "resumed")),
    (event(1, "x_talkover.resumed", words="Okay."), ("server", 'resumed after "Okay."')),
    (event(1, "x_talkover.input_transcript_hypothesis", text="act"), ("server", 'hears "act"')),
    (event(1, "x_talkover.turn_ended", by="silence"), ("server", "turn ended by silence")),
    (event(1, "x_talkover.epoch_began", epoch=3, cause="barge_in"), ("server", "epoch 3 (barge_in)")),
    (
        event(1, "x_talkover.playback_cleared", heard=48 * 1820 + 47, text="It is"),
        ("agent", 'cut at 1820 ms; heard: "It is"'),
    ),
    (event(1, "response.output_audio_transcript.done", transcript="It is."), ("agent", 'said: "It is."')),
    (event(1, "response.done", response={"id": "r", "status": "cancelled"}), ("server", "response cancelled")),
    (event(1, "error", error={"message": "no"}), ("server", "error: no")),
]


@pytest.mark.parametrize(("received", "line"), LINES, ids=lambda value: getattr(value, "type", None))
def test_each_kind_of_event_has_its_line(received: Received, line: tuple[str, str]) -> None:
    (entry,) = timeline([received], [], began=0.25)
    assert (entry.side, entry.text) == line
    assert entry.plain() == {"at": 0.75, "side": line[0], "text": line[1]}


def test_only_the_first_audio_of_each_response_has_a_line_and_its_epoch() -> None:
    deltas = [
        event(1 + n / 10, "response.output_audio.delta", response_id=response, x_epoch=epoch)
        for n, (response, epoch) in enumerate([("r1", 0), ("r1", 0), ("r2", 1), ("r2", 1)])
    ]
    entries = timeline(deltas, [], 0.0)
    assert [(entry.at, entry.side, entry.text) for entry in entries] == [
        (1.0, "agent", "first audio (epoch 0)"),
        (1.2, "agent", "first audio (epoch 1)"),
    ]


def test_what_says_nothing_to_a_reader_has_no_line() -> None:
    assert (
        timeline([event(1, kind) for kind in ("session.created", "response.created", "rate_limits.updated")], [], 0)
        == []
    )


def test_a_server_that_tells_no_numbers_is_no_reason_to_stop() -> None:
    odd = [event(1, "input_audio_buffer.speech_started", audio_start_ms=True), event(2, "x_talkover.held", at="soon")]
    assert texts(timeline(odd, [], 0)) == ["speech started at 0 ms of input", "hold, on speech at 0 ms of input"]


async def test_lines_stand_in_the_order_of_their_times() -> None:
    entries = timeline([event(1.5, "x_talkover.held", at=0), event(0.2, "error", error={})], [said(1.0)], 0.0)
    assert [entry.at for entry in entries] == [0.2, 1.0, 1.5, 2.0]


# --- figures -------------------------------------------------------------------------------------------------------


def answer(end: float, moments: Mapping[str, float], response: str = "r1") -> list[Received]:
    """Events of one answer; moments are seconds from the end of speech."""
    kinds: dict[str, tuple[str, dict[str, Any]]] = {
        "turn_ended": ("x_talkover.turn_ended", {}),
        "words": ("x_talkover.stage_reached", {"stage": "words", "response": response}),
        "first_token": ("x_talkover.stage_reached", {"stage": "first_token", "response": response}),
        "created": ("response.created", {"response": {"id": response}}),
        "first_clause": ("x_talkover.stage_reached", {"stage": "first_clause", "response": response}),
        "made": ("x_talkover.stage_reached", {"stage": "first_audio", "response": response}),
        "audio": ("response.output_audio.delta", {"response_id": response}),
    }
    events = [event(end + moments[name], kind, **body) for name, (kind, body) in kinds.items() if name in moments]
    return sorted(events, key=lambda one: one.at)


WHOLE = {
    "turn_ended": 0.3,
    "words": 0.31,
    "first_token": 0.4,
    "created": 0.3,
    "first_clause": 0.5,
    "made": 0.55,
    "audio": 0.56,
}


async def test_latencies_count_from_the_end_of_the_sound_and_not_of_the_clip() -> None:
    found = figures(answer(2.0, WHOLE), [said(1.0, seconds=1.0, silence=3.0)])
    assert found.latencies == (Latency(0.3, 0.31, 0.4, 0.5, 0.55, 0.56),)
    assert str(found) == (
        "seconds from the end of speech: turn ended 0.300, words 0.310, first token 0.400, first clause 0.500, "
        "audio made 0.550, first audio here 0.560"
    )


async def test_a_stage_that_was_not_seen_is_left_out_and_no_number_is_made_up() -> None:
    found = figures(answer(2.0, {"created": 0.3, "audio": 0.5}), [said(1.0)])
    assert found.latencies == (Latency(None, None, None, None, None, 0.5),)
    assert str(found) == "seconds from the end of speech: first audio here 0.500"
    assert found.plain()["latencies"] == [
        {
            "turn_ended": None,
            "words": None,
            "first_token": None,
            "first_clause": None,
            "audio_made": None,
            "first_audio": 0.5,
        }
    ]


async def test_a_response_that_was_begun_in_vain_does_not_count() -> None:
    vain = [event(2.1, "x_talkover.stage_reached", stage="first_token", response="r0")]
    found = figures([*vain, *answer(2.0, WHOLE)], [said(1.0)])
    assert found.latencies[0].first_token == 0.4


async def test_every_answer_belongs_to_the_words_before_it() -> None:
    events = [*answer(2.0, WHOLE), *answer(6.0, {**WHOLE, "audio": 0.8}, "r2")]
    found = figures(events, [said(1.0), said(5.0)])
    assert [latency.first_audio for latency in found.latencies] == [0.56, 0.8]


async def test_words_that_got_no_answer_have_no_latency() -> None:
    """A backchannel: the answer before it goes on, and its audio is none of its own."""
    events = [*answer(2.0, WHOLE), event(4.5, "response.output_audio.delta", response_id="r1")]
    found = figures(events, [said(1.0), said(3.0)])
    assert len(found.latencies) == 1
    assert figures(answer(2.0, {"created": 0.3}), [said(1.0)]).latencies == ()
    assert str(Figures((), (), ())) == "no answer was heard"


def test_figures_tell_what_both_said() -> None:
    heard = "conversation.item.input_audio_transcription.completed"
    spoken = "response.output_audio_transcript.done"
    events = [
        event(1, heard, transcript="Hello?"),
        event(2, spoken, transcript="Yes."),
        event(3, heard, transcript="Bye."),
    ]
    found = figures(events, [])
    assert (found.user, found.agent) == (("Hello?", "Bye."), ("Yes.",))
    assert found.plain() == {"latencies": [], "user": ["Hello?", "Bye."], "agent": ["Yes."]}
