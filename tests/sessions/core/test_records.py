from __future__ import annotations

import dataclasses
import json
import types
import typing
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.core.config import SessionConfig, Tool, TurnConfig
from sessions.core.effects import Effect, Notify
from sessions.core.events import AudioArrived, EngineWords, Event, ItemCreate, SpeechProbability
from sessions.core.fence import Fence
from sessions.core.notices import Held, InputCleared, Notice
from sessions.core.records import Reader, RecordError, read_as, to_plain
from sessions.core.state import State
from sessions.core.timeline import Word

VOCABULARY: tuple[type, ...] = (*typing.get_args(Event), *typing.get_args(Effect))
READER = Reader(VOCABULARY)


def values(annotation: Any, depth: int = 0) -> st.SearchStrategy[Any]:
    """Values of any annotation that the core uses."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return st.one_of([values(option, depth) for option in arguments])
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple and arguments[1:] == (Ellipsis,):
        return st.lists(values(arguments[0], depth + 1), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*(values(argument, depth + 1) for argument in arguments))
    if origin is list:
        return st.lists(values(arguments[0], depth + 1), max_size=2)
    if origin is dict:
        return st.dictionaries(values(arguments[0]), values(arguments[1], depth + 1), max_size=2)
    if dataclasses.is_dataclass(annotation):
        hints = typing.get_type_hints(annotation)
        fields = {field.name: values(hints[field.name], depth + 1) for field in dataclasses.fields(annotation)}
        return st.builds(typing.cast(Any, annotation), **fields)
    plain: dict[Any, st.SearchStrategy[Any]] = {
        int: st.integers(-(2**53), 2**53),
        float: st.floats(allow_nan=False),
        str: st.text(max_size=4),
        bool: st.booleans(),
        type(None): st.none(),
    }
    return plain[annotation]


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(to_plain(value)))


# --- there and back ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", VOCABULARY, ids=lambda kind: kind.__name__)
@settings(max_examples=15, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_every_event_and_effect_comes_back_as_it_was(kind: type, data: st.DataObject) -> None:
    value = data.draw(values(kind))
    assert READER.read(through_json(value)) == value


@pytest.mark.parametrize("kind", typing.get_args(Notice), ids=lambda kind: kind.__name__)
@settings(max_examples=15, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_every_notice_comes_back_as_it_was(kind: type, data: st.DataObject) -> None:
    value = Notify(data.draw(values(kind)))
    assert READER.read(through_json(value)) == value


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(state=values(State))
def test_every_state_comes_back_as_it_was(state: State) -> None:
    assert read_as(State, through_json(state)) == state


def test_the_vocabulary_has_no_two_types_of_one_name() -> None:
    kinds = (*VOCABULARY, *typing.get_args(Notice))
    assert len({kind.__name__ for kind in kinds}) == len(set(kinds))


# --- the form ------------------------------------------------------------------------------------------------------


def test_only_what_differs_from_the_defaults_is_written() -> None:
    assert to_plain(AudioArrived(0, 960)) == {"type": "AudioArrived", "start": 0, "end": 960}
    assert to_plain(AudioArrived(0, 960, True)) == {"type": "AudioArrived", "start": 0, "end": 960, "concealed": True}
    assert to_plain(SessionConfig()) == {"type": "SessionConfig"}
    assert to_plain(SessionConfig(turns=None)) == {"type": "SessionConfig", "turns": None}


def test_a_field_that_is_not_written_has_its_default() -> None:
    assert read_as(SessionConfig, {"type": "SessionConfig"}) == SessionConfig()


def test_a_field_of_a_newer_version_is_passed_over() -> None:
    record: Any = {"type": "AudioArrived", "start": 0, "end": 960, "volume": 3}
    assert READER.read(record) == AudioArrived(0, 960)


def test_nested_types_and_containers_are_plain_too() -> None:
    event = EngineWords(Fence("s", 1, 2), "r", (Word("a", 0, 1), Word(" b", 1, 2)))
    assert to_plain(event) == {
        "type": "EngineWords",
        "fence": {"type": "Fence", "session": "s", "incarnation": 1, "epoch": 2},
        "response": "r",
        "words": [
            {"type": "Word", "text": "a", "start": 0, "end": 1},
            {"type": "Word", "text": " b", "start": 1, "end": 2},
        ],
    }


def test_keys_of_a_dict_are_written_as_text_and_read_as_what_they_were() -> None:
    assert to_plain({1: 2.5}) == {"1": 2.5}
    assert read_as(dict[int, float], {"1": 2}) == {1: 2.0}
    assert read_as(dict[str, int], {"1": 2}) == {"1": 2}


def test_what_is_no_record_has_no_plain_form() -> None:
    with pytest.raises(TypeError, match="object has no plain form"):
        to_plain(object())
    with pytest.raises(TypeError, match="type has no plain form"):
        to_plain(Fence)


# --- what does not fit ---------------------------------------------------------------------------------------------


@dataclass
class Pair:
    both: tuple[int, str]
    more: dict[int, list[float]] = dataclasses.field(default_factory=dict)


BAD: list[tuple[Any, Any, str, str]] = [
    (AudioArrived, {"type": "AudioArrived", "start": 0}, "end", "end: is missing"),
    (AudioArrived, {"type": "AudioArrived", "start": "0", "end": 1}, "start", "start: '0' does not fit"),
    (AudioArrived, {"type": "AudioArrived", "start": True, "end": 1}, "start", "start: True does not fit"),
    (AudioArrived, {"type": "AudioArrived", "start": 1.5, "end": 1}, "start", "start: 1.5 does not fit"),
    (AudioArrived, [], "", "record: expected an object of type AudioArrived"),
    (AudioArrived, {"type": "Held", "start": 0, "end": 1}, "", "record: expected type AudioArrived, found 'Held'"),
    (SpeechProbability, {"start": 0, "end": 1, "probability": True}, "probability", "probability: True does not fit"),
    (TurnConfig, {"kind": "psychic"}, "kind", "kind: 'psychic' is not one of"),
    (SessionConfig, {"turns": {"type": "TurnConfig", "kind": 3}}, "turns.kind", "turns.kind: 3 is not one of"),
    (SessionConfig, {"turns": 3}, "turns", "turns: expected an object of type TurnConfig"),
    (SessionConfig, {"tools": {}}, "tools", "tools: expected a list"),
    (SessionConfig, {"tools": [{"name": "a"}, {"name": 4}]}, "tools[1].name", "tools[1].name: 4 does not fit"),
    (SessionConfig, {"instructions": None}, "instructions", "instructions: None does not fit"),
    (EngineWords, {"fence": {"session": "s"}, "response": "r", "words": []}, "fence.incarnation", "is missing"),
    (ItemCreate, {"role": "user", "audio": {"start": 0}}, "audio.end", "audio.end: is missing"),
    (Notify, {"notice": {"type": "Unheard"}}, "notice", "notice: expected type"),
    (Notify, {"notice": 4}, "notice", "notice: expected an object"),
    (Pair, {"both": [1]}, "both", "both: expected 2 entries"),
    (Pair, {"both": [1, 2]}, "both[1]", "both[1]: 2 does not fit"),
    (Pair, {"both": [1, "a"], "more": []}, "more", "more: expected an object"),
    (Pair, {"both": [1, "a"], "more": {"x": []}}, "more", "more: the key 'x' is not a number"),
    (Pair, {"both": [1, "a"], "more": {"7": [1, "b"]}}, "more.7[1]", "more.7[1]: 'b' does not fit"),
    (type(None), 0, "", "record: 0 does not fit"),
    (
        State,
        {"type": "State", "session": "s", "incarnation": 1, "config": {}, "abilities": {}, "requests": {"1": 2}},
        "requests.1",
        "expected an object",
    ),
]


@pytest.mark.parametrize(("annotation", "plain", "path", "message"), BAD)
def test_an_error_names_the_place_that_does_not_fit(annotation: Any, plain: Any, path: str, message: str) -> None:
    with pytest.raises(RecordError) as raised:
        read_as(annotation, plain)
    assert raised.value.path == path
    assert message in str(raised.value)


def test_a_whole_number_is_a_float_where_one_is_expected() -> None:
    value = read_as(float, 3)
    assert (value, type(value)) == (3.0, float)
    assert read_as(type(None), None) is None


def test_an_unknown_notice_is_never_taken_for_one_without_fields() -> None:
    assert read_as(Notify, {"notice": {"type": "InputCleared"}}) == Notify(InputCleared())
    with pytest.raises(RecordError):
        read_as(Notify, {"notice": {"type": "InputClearedAgain"}})


@pytest.mark.parametrize("plain", [[], None, {}, {"type": 3}])
def test_a_record_must_name_its_type(plain: Any) -> None:
    with pytest.raises(RecordError, match='expected an object with a "type"'):
        READER.read(plain)


def test_a_type_outside_of_the_vocabulary_is_refused() -> None:
    with pytest.raises(RecordError, match="type: unknown type 'Held'; written by a newer version"):
        READER.read(to_plain(Held(0)))


def test_a_tool_in_a_configuration_comes_back() -> None:
    config = SessionConfig(tools=(Tool(name="look_up", parameters='{"type": "object"}'),))
    assert read_as(SessionConfig, through_json(config)) == config
