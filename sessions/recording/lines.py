"""Writes the lines of a journal: one JSON object each, short where one record follows from the one before.

    {"n":1,"now":0,"event":{"type":"CarrierAttached"}}        an event, before it is handled
    {"effects":[{"type":"OpenPerception", ...}]}              what the core made of the event above it
    {"now":2880,"event":{"type":"AudioArrived"}}              the next stretch of audio, as long as the last one

Records are in the plain form of `sessions.core.records`. A record of one of the types in `SERIES` (`series`) may
besides leave out a field that follows from the record of its type before: an integer that grew by as much as the last
time, anything else that stayed the same. Lines are written in chapters that can be read by themselves: the first event
of a chapter has its number `n`, and the first record of each type in it is complete.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from json.encoder import encode_basestring
from operator import eq, sub
from typing import Any

from ..core.effects import Effect
from ..core.events import Event
from ..core.records import fields_of
from ..core.timeline import Ticks
from .series import KINDS, Kind, getter

# --- the plain form as text ----------------------------------------------------------------------------------------


class _Texts(dict[type, Callable[[Any], str]]):
    """How a value of each type is written; the same text as `json.dumps` of `to_plain` gives, several times faster."""

    def __missing__(self, kind: type) -> Callable[[Any], str]:
        write = self[kind] = _dataclass_text(kind)
        return write


def _float_text(value: float) -> str:
    if value != value or value in (float("inf"), float("-inf")):
        return json.dumps(value)
    return float.__repr__(value)


def _sequence_text(values: Sequence[Any]) -> str:
    return "[" + ",".join([text(value) for value in values]) + "]"


def _mapping_text(values: dict[Any, Any]) -> str:
    return "{" + ",".join([f"{encode_basestring(str(key))}:{text(value)}" for key, value in values.items()]) + "}"


def _dataclass_text(kind: type) -> Callable[[Any], str]:
    plan = fields_of(kind)
    values = getter([name for name, _, _ in plan])
    defaults = [default for _, _, default in plan]
    labels = [f',"{name}":' for name, _, _ in plan]
    head = f'{{"type":"{kind.__name__}"'

    def write(value: Any) -> str:
        out = head
        for entry, default, label in zip(values(value), defaults, labels, strict=True):
            if entry != default:
                out += label + _texts[type(entry)](entry)
        return out + "}"

    return write


_texts = _Texts(
    {
        bool: lambda value: "true" if value else "false",
        int: int.__repr__,
        float: _float_text,
        str: encode_basestring,
        type(None): lambda value: "null",
        list: _sequence_text,
        tuple: _sequence_text,
        dict: _mapping_text,
    }
)


def text(value: Any) -> str:
    """`value` (of the core's dataclasses) as JSON of its plain form."""
    return _texts[type(value)](value)


# --- records that follow each other --------------------------------------------------------------------------------


class _Written:
    """The last record of a series that was written, its whole numbers, and how much each had grown.

    `same`: how one is written that follows from it.
    """

    __slots__ = ("kind", "last", "numbers", "same", "steps")

    def __init__(self, kind: Kind, value: Any) -> None:
        self.kind = kind
        self.last = value
        self.numbers = kind.numbers(value)
        self.steps = (0,) * len(self.numbers)
        name = f',"name":{text(value.name)}' if kind.keyed else ""
        self.same = f'{{"type":"{kind.name}"{name}}}'

    def take(self, value: Any) -> str:
        """What is written of `value`, which comes next."""
        kind = self.kind
        last, self.last = self.last, value
        numbers = kind.numbers(value)
        steps = tuple(map(sub, numbers, self.numbers))
        self.numbers = numbers
        if steps == self.steps and kind.others(value) == kind.others(last):
            return self.same
        grown = map(eq, steps, self.steps)
        self.steps = steps
        out = f'{{"type":"{kind.name}"'
        for index, (entry, before) in enumerate(zip(kind.values(value), kind.values(last), strict=True)):
            follows = next(grown) if kind.whole[index] else entry == before
            if not follows or index == kind.key:
                out += kind.labels[index] + text(entry)
        return out + "}"


class _Chapter(dict[type, Callable[[Any], str]]):
    """How the next record of each type is written."""

    def __missing__(self, cls: type) -> Callable[[Any], str]:
        kind = KINDS.get(cls)
        if kind is None:
            write = _texts[cls]
        elif kind.keyed:
            write = _keyed(kind)
        else:
            return self._first(kind)
        self[cls] = write
        return write

    def _first(self, kind: Kind) -> Callable[[Any], str]:
        def write(value: Any) -> str:
            self[kind.cls] = _Written(kind, value).take
            return _whole(kind, value)

        return write


def _keyed(kind: Kind) -> Callable[[Any], str]:
    """The same for a type of which each name is a series."""
    series: dict[str, _Written] = {}

    def write(value: Any) -> str:
        written = series.get(value.name)
        if written is not None:
            return written.take(value)
        series[value.name] = _Written(kind, value)
        return _whole(kind, value)

    return write


def _whole(kind: Kind, value: Any) -> str:
    entries = zip(kind.labels, kind.values(value), strict=True)
    return f'{{"type":"{kind.name}"' + "".join([label + text(entry) for label, entry in entries]) + "}"


class Writer:
    """Turns events and effects into lines."""

    def __init__(self) -> None:
        self.chapter()

    def chapter(self) -> None:
        """What follows can be read without what came before."""
        self._records = _Chapter()
        self._opening = True
        self._track = ""
        self._at: Ticks | None = None
        self._step: Ticks = 0

    def event(self, number: int, event: Event, now: Ticks, track: str | None = None, at: Ticks | None = None) -> str:
        """`track`: which track holds its samples, `at`: and where (None: at the event's own position)."""
        record = self._records[type(event)](event)
        if self._opening:
            self._opening = False
            head = f'{{"n":{number},"now":{now},"event":{record}'
        else:
            head = f'{{"now":{now},"event":{record}'
        if at is not None:
            before, self._at = self._at, at
            step = 0 if before is None else at - before
            if before is None or step != self._step:
                head += f',"at":{at}'
            self._step = step
        elif track is not None and track != self._track:
            head += f',"track":"{track}"'
            self._track = track
        return head + "}\n"

    def effects(self, effects: Sequence[Effect]) -> str:
        records = self._records
        return '{"effects":[' + ",".join([records[type(effect)](effect) for effect in effects]) + "]}\n"
