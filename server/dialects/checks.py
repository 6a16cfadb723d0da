"""Checks on JSON that a peer sent: each returns the value in its proper type or says what is wrong with which field."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import NoReturn, TypeAlias

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
Object: TypeAlias = Mapping[str, Json]

MISSING = "missing_required_parameter"
INVALID_TYPE = "invalid_type"
INVALID_VALUE = "invalid_value"
INVALID_JSON = "invalid_json"
UNSUPPORTED = "unsupported"


class Rejected(Exception):
    """A message is refused. `param` is the path of the wrong field, None where the message as a whole is wrong."""

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""The escape of half a character, or of one half of a pair."""

_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def parse(text: str) -> Object:
    """A JSON object from text. Raises Rejected for anything else, however deep or long it is.

    JSON can hold half a surrogate pair, which is no text: no tokenizer, file or other server takes it.
    """
    try:
        value = _DECODER.decode(text)
        if _SURROGATE.search(text):
            _whole_characters(value, "")
    except (ValueError, RecursionError) as error:
        raise Rejected(INVALID_JSON, f"the message is not valid JSON ({_short(str(error))}); send one object") from None
    if not isinstance(value, dict):
        raise Rejected(INVALID_JSON, f"the message is {_name(value)}; send an object with a `type`")
    return value


def _whole_characters(value: Json, path: str) -> None:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            path = _short(path)
            why = f"{path!r} holds half a character ({value[error.start]!r}); send its surrogate pair whole"
            raise Rejected(INVALID_VALUE, why, path) from None
    elif isinstance(value, Mapping):
        for key, entry in value.items():
            _whole_characters(key, path or "a key")
            _whole_characters(entry, f"{path}.{key}" if path else key)
    elif isinstance(value, Sequence):
        for index, entry in enumerate(value):
            _whole_characters(entry, f"{path}[{index}]")


def required(holder: Object, key: str, path: str) -> Json:
    """`holder[key]`, where `path` is the name of that field to the client."""
    if key not in holder:
        raise Rejected(MISSING, f"missing required parameter {path!r}", path)
    return holder[key]


def an_object(value: Json, path: str) -> Object:
    if not isinstance(value, Mapping):
        _wrong_type(value, "an object", path)
    return value


def a_list(value: Json, path: str, longest: int = 1024) -> Sequence[Json]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        _wrong_type(value, "an array", path)
    if len(value) > longest:
        raise Rejected(INVALID_VALUE, f"{path!r} has {len(value)} entries; at most {longest} are taken", path)
    return value


def a_string(value: Json, path: str, longest: int = 1 << 20, shortest: int = 0) -> str:
    if not isinstance(value, str):
        _wrong_type(value, "a string", path)
    if not shortest <= len(value) <= longest:
        raise Rejected(INVALID_VALUE, f"{path!r} has {len(value)} characters; {shortest} to {longest} are taken", path)
    return value


def a_bool(value: Json, path: str) -> bool:
    if not isinstance(value, bool):
        _wrong_type(value, "a boolean", path)
    return value


def a_number(value: Json, path: str, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        _wrong_type(value, "a number", path)
    if not low <= value <= high:
        raise Rejected(INVALID_VALUE, f"{path!r} is {_short(str(value))}; give a number from {low} to {high}", path)
    return value


def an_integer(value: Json, path: str, low: int, high: int) -> int:
    """A whole number; 3.0 is one, as JavaScript does not tell it from 3."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        _wrong_type(value, "an integer", path)
    if not low <= value <= high:
        raise Rejected(INVALID_VALUE, f"{path!r} is {_short(str(value))}; give an integer from {low} to {high}", path)
    return value


def one_of(value: Json, path: str, choices: Sequence[str]) -> str:
    if not isinstance(value, str):
        _wrong_type(value, "a string", path)
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise Rejected(INVALID_VALUE, f"{path!r} is {_short(value)!r}; supported values are {listed}", path)
    return value


def _wrong_type(value: Json, wanted: str, path: str) -> NoReturn:
    raise Rejected(INVALID_TYPE, f"{path!r} is {_name(value)}; give {wanted}", path)


def _name(value: Json) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "an array" if isinstance(value, Sequence) else "an object"


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."
