"""The short way in for audio says what the long one says, whatever a client writes."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.dialects.base import InputAudio
from server.dialects.realtime import RealtimeDialect
from server.dialects.realtime_append import AppendForm
from sessions.core.events import CommandRejected

AUDIO = base64.b64encode(bytes(range(64))).decode()
OTHER = base64.b64encode(bytes(range(64, 160))).decode()


def written(audio: str, compact: bool = True, **more: str) -> str:
    event = {"type": "input_audio_buffer.append", "audio": audio, **more}
    return json.dumps(event, separators=(",", ":") if compact else None)


@pytest.mark.parametrize(
    "write",
    [
        written,
        lambda audio: written(audio, compact=False),
        lambda audio: json.dumps({"audio": audio, "type": "input_audio_buffer.append"}, indent=2),
        lambda audio: written(audio, event_id="event_1"),
    ],
)
def test_the_second_event_of_a_kind_is_known_by_its_form(write: object) -> None:
    assert callable(write)
    form = AppendForm()
    assert form.audio_of(write(AUDIO)) is None
    form.learn(write(AUDIO), json.loads(write(AUDIO)))
    assert form.audio_of(write(OTHER)) == OTHER


@pytest.mark.parametrize(
    "message",
    [
        written("AAAA"),  # too short to be sure of its place
        written(AUDIO, event_id=AUDIO),  # twice
        written(AUDIO).replace(AUDIO, "\\u0041" + AUDIO[1:]),
        '{"event_id":"' + AUDIO + '","type":"input_audio_buffer.append","audio":"\\u0041' + AUDIO[1:] + '"}',
    ],
)
def test_nothing_is_learned_where_the_place_of_the_audio_is_not_certain(message: str) -> None:
    form = AppendForm()
    form.learn(message, json.loads(message))
    assert form.audio_of(message) is None


def test_who_never_writes_the_same_twice_is_looked_at_only_a_few_times() -> None:
    form = AppendForm()
    for number in range(20):
        message = written(AUDIO, event_id=f"e{number}")
        form.learn(message, json.loads(message))
    assert form.audio_of(written(OTHER, event_id="e7")) == OTHER
    assert form.audio_of(written(OTHER, event_id="e19")) is None


BAD = ["", "A", "AAA", "A===", "AAAA=", 'AAAA","x":"', "AA\nAA", "ÄÖÜä", "AAA\\", "AAAA", "\ud800AAA", "AA==AAAA"]


@pytest.mark.parametrize("media", ["audio/pcm", "audio/pcmu", "audio/pcma"])
@pytest.mark.parametrize("raw", [*BAD, AUDIO, OTHER, AUDIO[:-2] + "=="])
def test_a_dialect_that_knows_the_form_answers_like_one_that_does_not(raw: str, media: str) -> None:
    update = json.dumps(
        {
            "type": "session.update",
            "session": {"type": "realtime", "audio": {"input": {"format": {"type": media}}}},
        }
    )
    message = written(AUDIO).replace(AUDIO, raw)
    fresh, learned = RealtimeDialect("m"), RealtimeDialect("m")
    for dialect in (fresh, learned):
        dialect.receive(update)
    first = learned.receive(written(AUDIO))
    assert isinstance(first[0], InputAudio)
    assert learned.receive(written(OTHER)) == fresh.receive(written(OTHER))
    fresh = RealtimeDialect("m")
    fresh.receive(update)
    assert learned.receive(message) == fresh.receive(message)


@given(st.binary(max_size=80), st.text(max_size=20))
def test_whatever_stands_in_the_place_of_the_audio_is_answered_alike(raw: bytes, junk: str) -> None:
    for audio in (base64.b64encode(raw).decode(), base64.b64encode(raw).decode() + junk, junk):
        message = written(AUDIO).replace(AUDIO, audio)
        fresh, learned = RealtimeDialect("m"), RealtimeDialect("m")
        learned.receive(written(AUDIO))
        assert learned.receive(message) == fresh.receive(message)


def test_a_new_format_holds_for_the_next_event_on_the_short_way_too() -> None:
    dialect = RealtimeDialect("m")
    dialect.receive(written(AUDIO))
    session = {"type": "realtime", "audio": {"input": {"format": {"type": "audio/pcmu"}}}}
    dialect.receive(json.dumps({"type": "session.update", "session": session}))
    [heard] = dialect.receive(written(AUDIO))
    assert isinstance(heard, InputAudio)
    assert (len(heard.pcm), heard.rate) == (128, 8000)


def test_an_id_of_a_bad_event_is_still_named() -> None:
    dialect = RealtimeDialect("m")
    dialect.receive(written(AUDIO, event_id="mine"))
    [refused] = dialect.receive(written("AAA", event_id="mine"))
    assert isinstance(refused, CommandRejected)
    assert (refused.param, refused.command) == ("audio", "mine")
