from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from server.dialects import checks
from server.dialects.checks import Rejected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "nonsense",
        '{"a":1,}',
        '{"a":NaN}',
        '{"a":-Infinity}',
        "[" * 100_000,
        '{"a":' + "9" * 5000 + "}",
        "[1]",
        "7",
        '"text"',
        "null",
        "true",
    ],
)
def test_what_is_not_one_json_object_is_refused(text: str) -> None:
    with pytest.raises(Rejected) as caught:
        checks.parse(text)
    assert caught.value.code == "invalid_json"
    assert len(caught.value.message) < 300


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (r'{"type":"x","item":{"content":[{"text":"a"},{"text":"b \ud83d"}]}}', "item.content[1].text"),
        (r'{"type":"\udE00\uD83d"}', "type"),
        (r'{"type":"x","metadata":{"\ud83d":"v"}}', "metadata"),
        (r'{"\udfff":1}', "a key"),
        (r'{"a":["\ud83d\ud83d\ude42"]}', "a[0]"),
    ],
)
def test_half_a_character_is_refused_by_the_name_of_its_field(text: str, path: str) -> None:
    with pytest.raises(Rejected) as caught:
        checks.parse(text)
    assert (caught.value.code, caught.value.param) == ("invalid_value", path)
    caught.value.message.encode()


def test_whole_characters_are_taken_however_they_are_written() -> None:
    assert checks.parse(r'{"a":"\ud83d\ude42 \\ud83d","b":"🙂\u2028"}') == {"a": "🙂 \\ud83d", "b": "🙂\u2028"}


def test_an_object_is_parsed() -> None:
    assert checks.parse('{"type":"x","n":[1,2.5,null]}') == {"type": "x", "n": [1, 2.5, None]}


BAD: list[tuple[Callable[..., object], tuple[Any, ...], Any, str]] = [
    (checks.an_object, (), [1], "invalid_type"),
    (checks.an_object, (), "x", "invalid_type"),
    (checks.a_list, (), {"a": 1}, "invalid_type"),
    (checks.a_list, (), "text", "invalid_type"),
    (checks.a_list, (2,), [1, 2, 3], "invalid_value"),
    (checks.a_string, (), 5, "invalid_type"),
    (checks.a_string, (3,), "four", "invalid_value"),
    (checks.a_string, (9, 1), "", "invalid_value"),
    (checks.a_bool, (), 1, "invalid_type"),
    (checks.a_number, (0, 1), True, "invalid_type"),
    (checks.a_number, (0, 1), "0.5", "invalid_type"),
    (checks.a_number, (0, 1), 1.01, "invalid_value"),
    (checks.an_integer, (0, 9), 1.5, "invalid_type"),
    (checks.an_integer, (0, 9), False, "invalid_type"),
    (checks.an_integer, (0, 9), None, "invalid_type"),
    (checks.an_integer, (0, 9), 10, "invalid_value"),
    (checks.one_of, (("a", "b"),), "c", "invalid_value"),
    (checks.one_of, (("a", "b"),), 3, "invalid_type"),
]


@pytest.mark.parametrize(("check", "arguments", "value", "code"), BAD)
def test_a_wrong_value_is_refused_by_the_name_of_its_field(
    check: Callable[..., object], arguments: tuple[Any, ...], value: object, code: str
) -> None:
    with pytest.raises(Rejected) as caught:
        check(value, "some.field", *arguments)
    assert (caught.value.code, caught.value.param) == (code, "some.field")
    assert "some.field" in caught.value.message


def test_a_missing_field_is_named() -> None:
    with pytest.raises(Rejected) as caught:
        checks.required({}, "voice", "session.voice")
    assert (caught.value.code, caught.value.param) == ("missing_required_parameter", "session.voice")


def test_a_whole_number_written_as_a_float_is_an_integer() -> None:
    value = checks.an_integer(3.0, "n", 0, 9)
    assert value == 3
    assert isinstance(value, int)
