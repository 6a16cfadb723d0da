"""Lines say everything that was said to them, whatever they leave out."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from sessions.core.effects import AdmitFrame, Effect, SetTimer
from sessions.core.events import AudioArrived, EngineAudio, Event, ItemCreate, SpeechProbability, TimerDue
from sessions.core.fence import Fence
from sessions.core.records import RecordError, to_plain
from sessions.core.timeline import Ticks
from sessions.recording.line_reader import LineReader, parsed
from sessions.recording.lines import Writer, text
from sessions.recording.series import SERIES

from .steps import Part, drive

FENCE = Fence("sess_t", 1, 0)


@pytest.fixture(scope="module")
def driven() -> list[Part]:
    return [part for one in drive(40, seed=3) for part in one.parts]


def read(lines: list[str]) -> list[tuple[int, Ticks, Event, list[Effect]]]:
    """The events of lines, with their effects."""
    reader = LineReader()
    found: list[tuple[int, Ticks, Event, list[Effect]]] = []
    for line in lines:
        one = reader.line(json.loads(line))
        if one.event is not None:
            found.append((one.number, one.now, one.event, []))
        else:
            found[-1][3].extend(one.effects or [])
    return found


def test_every_event_and_effect_comes_back_as_it_was(driven: list[Part]) -> None:
    kinds: set[type] = set()
    for one in driven:
        writer = Writer()
        lines = []
        for number, step in enumerate(one.steps, 1):
            lines.append(writer.event(number, step.event, step.now))
            if step.effects:
                lines.append(writer.effects(step.effects))
            kinds.update(map(type, (step.event, *step.effects)))
        assert read(lines) == [(number, step.now, step.event, step.effects) for number, step in enumerate(one.steps, 1)]
    assert set(SERIES) <= kinds
    assert len(kinds) > (len(get_args(Event)) + len(get_args(Effect))) * 3 // 4


def test_the_text_of_a_record_is_that_of_its_plain_form(driven: list[Part]) -> None:
    for one in driven[:10]:
        for step in one.steps:
            for record in (step.event, *step.effects):
                assert text(record) == json.dumps(to_plain(record), separators=(",", ":"), ensure_ascii=False)


@pytest.mark.parametrize("number", [0.1, -0.0, 1e300, 5e-324, float("inf"), float("-inf")])
def test_numbers_keep_every_digit(number: float) -> None:
    event = SpeechProbability(0, 1, number, -number)
    ((_, _, again, _),) = read([Writer().event(1, event, 0)])
    assert repr(again) == repr(event)


def test_what_follows_from_the_record_before_is_left_out() -> None:
    writer = Writer()
    lines = [writer.event(number, AudioArrived(960 * number, 960 * number + 960), 1000) for number in range(1, 5)]
    assert [json.loads(line)["event"] for line in lines[2:]] == [{"type": "AudioArrived"}] * 2
    assert [event.start for _, _, event, _ in read(lines) if isinstance(event, AudioArrived)] == [960, 1920, 2880, 3840]


def test_timers_of_each_name_follow_their_own() -> None:
    writer = Writer()
    effects: list[Effect] = []
    for number in range(6):
        effects += [SetTimer("pump", 100 * number), SetTimer("idle", 7 * number)]
    ((_, _, _, again),) = read([writer.event(1, TimerDue("pump"), 0), writer.effects(effects)])
    assert again == effects


def test_a_chapter_can_be_read_without_the_ones_before() -> None:
    def frames(first: int) -> list[Effect]:
        return [
            AdmitFrame(FENCE, n, "r", "i", n * 960, n * 960 + 960, n * 960, "r", n * 960)
            for n in range(first, first + 5)
        ]

    writer = Writer()
    lines = [writer.event(1, TimerDue("pump"), 5), writer.effects(frames(0))]
    writer.chapter()
    later = [writer.event(2, TimerDue("pump"), 6), writer.effects(frames(5))]
    assert read(later) == [(2, 6, TimerDue("pump"), frames(5))]
    assert read(lines + later)[1:] == read(later)


def test_where_audio_lies_is_told_until_it_follows() -> None:
    writer = Writer()
    ats = [0, 4800, 9600, 14_400, 100_000, 104_800, 109_600]
    lines = [writer.event(number, EngineAudio(FENCE, "r", 0, 4800), 0, None, at) for number, at in enumerate(ats, 1)]
    reader = LineReader()
    assert [reader.line(json.loads(line)).at for line in lines] == ats
    assert '"at"' not in lines[3]


def test_half_a_character_is_kept() -> None:
    event = ItemCreate("user", text='\ud83d "quoted" \n \x00 你好')
    line = Writer().event(1, event, 0).encode("utf-8", "backslashreplace")
    ((_, _, again, _),) = read([line.decode("utf-8")])
    assert again == event


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ([], ""),
        ({"effects": []}, "effects"),
        ({"effects": 5}, "effects"),
        ({"now": 0, "event": {"type": "CarrierAttached"}}, "n"),
        ({"n": "1", "now": 0, "event": {"type": "CarrierAttached"}}, "n"),
        ({"n": 1, "now": 0.5, "event": {"type": "CarrierAttached"}}, "now"),
        ({"n": 1, "now": 0, "event": {"type": "AudioArrived"}}, "event.start"),
        ({"n": 1, "now": 0, "event": {"type": "AudioArrived", "start": "0", "end": 1}}, "event.start"),
        ({"n": 1, "now": 0, "event": {"type": "AudioArrived", "start": True, "end": 1}}, "event.start"),
        ({"n": 1, "now": 0, "event": {"type": "TimerDue"}}, "event.name"),
        ({"n": 1, "now": 0, "event": {"type": "NoSuch"}}, "event.type"),
        ({"n": 1, "now": 0, "event": {"type": "HoldCarrier"}}, "event"),
        ({"n": 1, "now": 0, "event": {"type": ["AudioArrived"]}}, "event"),
        ({"n": 1, "now": 0, "event": {"type": "EngineAudio", "fence": 3}}, "event.fence"),
    ],
)
def test_a_line_that_does_not_fit_is_named_by_its_place(line: Any, place: str) -> None:
    with pytest.raises(RecordError) as caught:
        LineReader().line(line)
    assert caught.value.path.startswith(place)


def test_effects_that_are_events_are_refused() -> None:
    reader = LineReader()
    reader.line({"n": 1, "now": 0, "event": {"type": "CarrierAttached"}})
    with pytest.raises(RecordError, match="does not belong"):
        reader.line({"effects": [{"type": "Close"}]})


def test_a_line_is_one_value_as_json_has_it() -> None:
    for line in (b'{"now":1}', b' {"now":1} ', '{"now":"ü"}'.encode(), b"[1]"):
        assert parsed(line) == json.loads(line)
    for line in (b"", b"{}{}", b'{"now":1}x', b"{", b'{"now":"\xff"}'):
        with pytest.raises(ValueError, match=r"Expecting|Extra data|decode"):
            parsed(line)


def test_a_record_of_scalars_whose_types_are_wrong_is_refused_by_its_place() -> None:
    reader = LineReader()
    reader.line({"n": 1, "now": 0, "event": {"type": "PlaybackReported", "response": "resp", "position": 5}})
    with pytest.raises(RecordError, match=r"event\.position"):
        reader.line({"now": 0, "event": {"type": "PlaybackReported", "response": "resp", "position": "5"}})
    with pytest.raises(RecordError, match=r"event\.response"):
        reader.line({"now": 0, "event": {"type": "PlaybackReported", "position": 5}})
    with pytest.raises(RecordError, match=r"event\.start"):
        LineReader().line({"n": 1, "now": 0, "event": {"type": "AudioArrived", "end": 5}})
