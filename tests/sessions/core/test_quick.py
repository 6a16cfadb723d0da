"""Records that are made quickly are what they were: the same arguments, the same fields, and frozen."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields, replace
from typing import get_args

import pytest

from sessions.core.context import ContextEntry, ContextPart, ImageRef, ItemReference
from sessions.core.effects import Effect
from sessions.core.events import Event
from sessions.core.fence import Fence
from sessions.core.notices import ItemView, Notice, ResponseView
from sessions.core.quick import quicken
from sessions.core.timeline import Span, Token, Word
from sessions.core.turns import Decision

KINDS = (
    *(kind for union in (Event, Effect, Notice, Decision) for kind in get_args(union)),
    *(ItemView, ResponseView, ImageRef, ContextPart, ContextEntry, ItemReference, Fence, Span, Word, Token),
)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_record_takes_the_arguments_that_its_fields_say(kind: type) -> None:
    expected = [
        (one.name, one.type, inspect.Parameter.empty if one.default is MISSING else one.default) for one in fields(kind)
    ]
    arguments = inspect.signature(kind).parameters.values()
    assert [(one.name, one.annotation, one.default) for one in arguments] == expected
    values = {one.name: object() for one in fields(kind)}
    made = kind(**values)
    assert {name: getattr(made, name) for name in values} == values
    assert made == kind(*values.values()) == replace(made)
    assert hash(made) == hash(kind(**values))
    for name in values:
        with pytest.raises(FrozenInstanceError):
            setattr(made, name, None)
    with pytest.raises(TypeError, match="nothing"):
        kind(nothing=1)


def test_what_is_left_out_has_its_default_and_what_has_none_is_missed() -> None:
    @dataclass(frozen=True, slots=True)
    class Two:
        one: int
        other: tuple[int, ...] = (1, 2)

    quicken((Two,))
    assert Two(7) == Two(7, (1, 2)) == Two(other=(1, 2), one=7)
    with pytest.raises(TypeError, match="one"):
        Two()  # type: ignore[call-arg]


def test_a_class_that_needs_more_than_its_fields_set_is_refused() -> None:
    @dataclass(frozen=True, slots=True)
    class Made:
        some: list[int] = field(default_factory=list)

    @dataclass(frozen=True)
    class Open:
        some: int

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Named:
        some: int

    @dataclass(frozen=True, slots=True)
    class Checked:
        some: int

        def __post_init__(self) -> None:
            """Something of its own."""

    for kind in (Made, Open, Named, Checked):
        with pytest.raises(ValueError, match="must have slots and no field but plain arguments"):
            quicken((kind,))
