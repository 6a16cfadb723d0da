"""`models.families.embedded.tool_calls`, with a model that a test makes up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.families.embedded.thinker import ThinkerError
from models.families.embedded.tool_calls import demanded_call, parse_calls
from sessions.core.config import Tool


class Model:
    """Continues every value with `answer`, cut at the first mark, and prefers the option number `favourite`."""

    def __init__(self, answer: str = "Paris", favourite: int = 0) -> None:
        self.answer = answer
        self.favourite = favourite
        self.prompts: list[str] = []
        self.options: list[Sequence[str]] = []

    def complete(self, prompt: str, until: str, limit: int) -> str:
        self.prompts.append(prompt)
        ends = [at for mark in until if (at := self.answer.find(mark)) >= 0]
        return self.answer[: min(ends)] if ends else self.answer

    def choose(self, prompt: str, options: Sequence[str]) -> int:
        self.prompts.append(prompt)
        self.options.append(options)
        return min(self.favourite, len(options) - 1)


def tool(schema: object, name: str = "f", description: str = "") -> Tool:
    return Tool(name=name, description=description, parameters=json.dumps(schema))


def filled(schema: object, model: Model | None = None, question: str = "") -> Any:
    call = demanded_call(model or Model(), "PROMPT", question, [tool(schema)], "required", "c")
    return json.loads(call.arguments)


def one(schema: object, answer: str = "Paris", question: str = "", favourite: int = 0) -> Any:
    """The value of a single required field `x` with this schema."""
    whole = {"type": "object", "properties": {"x": schema}, "required": ["x"]}
    return filled(whole, Model(answer, favourite), question)["x"]


def test_the_model_fills_values_into_a_frame_that_is_given() -> None:
    model = Model('Paris", "x": ')
    schema = {"properties": {"city": {"type": "string"}, "unit": {"enum": ["c", "f"]}}, "required": ["city", "unit"]}
    assert filled(schema, model) == {"city": "Paris", "unit": "c"}
    assert model.prompts[0] == 'PROMPT<tool_call>[{"name": "f", "arguments": {"city": "'
    assert model.prompts[1].endswith('{"city": "Paris", "unit": ')


def test_only_required_fields_are_filled_and_all_where_none_are_named() -> None:
    fields = {"a": {"type": "string"}, "b": {"type": "null"}}
    assert filled({"type": "object", "properties": fields, "required": ["b"]}) == {"b": None}
    assert filled({"type": "object", "properties": fields}) == {"a": "Paris", "b": None}
    assert filled({}) == {}


@pytest.mark.parametrize(
    ("schema", "answer", "value"),
    [
        ({"type": "integer"}, "5}}]", 5),
        ({"type": "integer"}, " about 7.6,", 8),
        ({"type": "integer", "maximum": 4}, "5", 4),
        ({"type": "integer", "minimum": 9}, "5", 9),
        ({"type": "integer", "exclusiveMinimum": 5}, "5", 6),
        ({"type": "integer", "exclusiveMaximum": 5}, "5", 4),
        ({"type": "integer", "multipleOf": 5}, "12", 10),
        ({"type": "number"}, "-2.5", -2.5),
        ({"type": "number"}, "many", 0),
        ({"type": "number", "default": 3}, "many", 3),
        ({"type": "number", "minimum": 1}, "many", 1),
        ({"type": "string"}, 'New York", "x"', "New York"),
        ({"type": "string"}, "caf\\u00e9", "café"),
        ({"type": "string"}, "bad\\q", "badq"),
        ({"type": "string", "maxLength": 3}, "Paris", "Par"),
        ({"type": "string", "minLength": 8, "default": "standard"}, "x", "standard"),
        ({"type": "string", "pattern": "^[A-Z]{3}$"}, "ABC", "ABC"),
        ({"type": ["null", "string"]}, "Paris", "Paris"),
        ({"type": "null"}, "x", None),
        ({"const": 7}, "x", 7),
        ({"enum": [None, 2]}, "x", None),
        ({"type": "boolean"}, "x", True),
        ({"type": "array", "items": {"type": "string"}}, 'a"', ["a"]),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, "3", [3, 3]),
        ({"type": "array", "maxItems": 0}, "3", []),
        ({"properties": {"y": {"type": "integer"}}}, "1", {"y": 1}),
        ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, "4", 4),
        ({"allOf": [{"type": "integer"}, {"minimum": 6}]}, "4", 6),
        ({}, "Paris", "Paris"),
    ],
)
def test_each_value_gets_the_type_and_bounds_of_its_schema(schema: object, answer: str, value: object) -> None:
    got = one(schema, answer)
    assert got == value
    assert type(got) is type(value) or {type(got), type(value)} <= {int, float}


def test_what_the_user_said_word_for_word_decides_a_choice() -> None:
    schema = {"enum": ["living_room", "kitchen", "hall"]}
    assert one(schema, question="The light in the living room, please.") == "living_room"
    assert one(schema, question="The kitchen or the hall?", favourite=2) == "hall"


def test_a_number_that_the_model_does_not_give_is_taken_from_the_question() -> None:
    assert one({"type": "integer"}, answer="some", question="for 12 minutes") == 12


def test_a_pattern_is_looked_for_in_the_question_and_else_refused() -> None:
    schema = {"type": "string", "pattern": "^[0-9]{5}$"}
    assert one(schema, question="I live in 10115 Berlin") == "10115"
    with pytest.raises(ThinkerError, match="'x' has a pattern"):
        one(schema)


def test_local_references_are_followed() -> None:
    schema = {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/city"}},
        "required": ["x"],
        "$defs": {"city": {"enum": ["Rome"]}},
    }
    assert filled(schema) == {"x": "Rome"}


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"x": {"$ref": "#/$defs/none"}}},
        {"properties": {"x": {"$ref": "https://example.org/schema"}}},
        {"properties": {"x": {"$ref": "#/properties/x"}}},
        {"properties": {"x": {"anyOf": [{"type": "null"}]}}},
        {"$ref": "#", "properties": {}},
        {"type": "string"},
    ],
)
def test_a_schema_that_cannot_be_followed_is_a_typed_failure(schema: object) -> None:
    with pytest.raises(ThinkerError) as failed:
        filled(schema)
    assert failed.value.code == "tool_schema"


def test_an_endlessly_nested_schema_is_a_typed_failure() -> None:
    schema: dict[str, object] = {"properties": {"x": {"$ref": "#/$defs/node"}}}
    schema["$defs"] = {"node": {"properties": {"next": {"$ref": "#/$defs/node"}}}}
    with pytest.raises(ThinkerError, match="nested deeper"):
        filled(schema)


@pytest.mark.parametrize("parameters", ["{", "[]", "3"])
def test_parameters_that_are_no_schema_are_a_typed_failure(parameters: str) -> None:
    with pytest.raises(ThinkerError) as failed:
        demanded_call(Model(), "", "", [Tool(name="f", parameters=parameters)], "f", "c")
    assert failed.value.code == "tool_schema"


WEATHER = tool({}, "get_weather", "The weather of a city")
LIGHT = tool({}, "set_light", "Turn a light on or off")


def test_the_tool_that_the_question_is_about_is_called() -> None:
    model = Model()
    call = demanded_call(model, "", "Please turn on the lights.", [WEATHER, LIGHT], "required", "c7")
    assert (call.call, call.name, call.arguments) == ("c7", "set_light", "{}")
    assert model.options == []


def test_where_words_do_not_decide_the_model_chooses() -> None:
    model = Model(favourite=1)
    assert demanded_call(model, "", "Do something.", [WEATHER, LIGHT], "required", "c").name == "set_light"
    assert model.options == [['get_weather"', 'set_light"']]


def test_a_named_tool_is_called_whatever_the_question() -> None:
    assert demanded_call(Model(), "", "Turn on the light", [WEATHER, LIGHT], "get_weather", "c").name == "get_weather"


def test_an_unknown_tool_is_a_typed_failure() -> None:
    with pytest.raises(ThinkerError) as failed:
        demanded_call(Model(), "", "", [WEATHER], "other", "c")
    assert failed.value.code == "unknown_tool"


def test_calls_that_the_model_volunteers_are_parsed() -> None:
    text = ' <tool_call>[{"name": "f", "arguments": {"x": 1}}, {"name": "g"}]</tool_call> and more'
    assert parse_calls(text) == [("f", '{"x": 1}'), ("g", "{}")]
    assert parse_calls('<tool_call>{"name": "f", "arguments": "{}"}') == [("f", "{}")]


@pytest.mark.parametrize(
    "text", ["", "no call", "<tool_call>[{", "<tool_call>[1]</tool_call>", "<tool_call>[]</tool_call>"]
)
def test_what_is_no_well_formed_call_is_none(text: str) -> None:
    assert parse_calls(text) == []


_LEAVES = st.sampled_from(
    [{"type": kind} for kind in ("string", "integer", "number", "boolean", "null")] + [{"enum": ["a", 1, None]}]
)
_SCHEMAS = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.dictionaries(st.text("xyz", min_size=1, max_size=2), inner, max_size=3).map(
            lambda fields: {"type": "object", "properties": fields, "required": list(fields)}
        ),
        inner.map(lambda item: {"type": "array", "items": item}),
    ),
    max_leaves=6,
)


def accepts(schema: dict[str, Any], value: object) -> bool:
    if "enum" in schema:
        return value in schema["enum"]
    match schema["type"]:
        case "object":
            return isinstance(value, dict) and all(
                name in value and accepts(member, value[name]) for name, member in schema["properties"].items()
            )
        case "array":
            return isinstance(value, list) and all(accepts(schema["items"], item) for item in value)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case _:
            return isinstance(value, int | float) and not isinstance(value, bool)


def depth(schema: dict[str, Any]) -> int:
    inner = [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]
    return 1 + max(map(depth, inner), default=0)


@given(_SCHEMAS.filter(lambda schema: depth(schema) <= 5), st.text(max_size=20))
def test_whatever_the_model_writes_the_arguments_validate(schema: dict[str, Any], answer: str) -> None:
    whole = {"type": "object", "properties": {"x": schema}, "required": ["x"]}
    assert accepts(whole, filled(whole, Model(answer)))
