"""Reading what a scenario reported."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def text(result: dict[str, object], key: str) -> str:
    value = result[key]
    assert isinstance(value, str), f"{key} is {value!r}"
    return value


def number(result: dict[str, object], key: str) -> float:
    value = result[key]
    assert isinstance(value, int | float), f"{key} is {value!r}"
    return value


def strings(result: dict[str, object], key: str) -> list[str]:
    value = result[key]
    assert isinstance(value, list), f"{key} is {value!r}"
    return [str(entry) for entry in value]


def assert_valid(result: dict[str, object]) -> None:
    """No error of any kind, and no event that the client's own models refuse."""
    assert result["errors"] == []
    assert result["invalid"] == []
    assert result["types"]


def assert_order(types: Sequence[str], expected: Sequence[str]) -> None:
    """Each of `expected` occurs, and first occurs after the one before it."""
    places = [types.index(name) for name in expected]
    assert all(a < b for a, b in pairwise(places)), types
