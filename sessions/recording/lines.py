"""The lines of a journal: one JSON object each, short where one record follows from the one before.

    {"n":1,"now":0,"event":{"type":"CarrierAttached"}}        an event, before it is handled
    {"effects":[{"type":"OpenPerception", ...}]}              what the core made of the event above it
    {"now":2880,"event":{"type":"AudioArrived"}}              the next stretch of audio, as long as the last one

Records are in the plain form of `sessions.core.records`. A record of one of the types in `SERIES` may besides leave out
a field that follows from the record of its type before: an integer that grew by as much as the last time, anything else
that stayed the same. Lines are written in chapters that can be read by themselves: the first event of a chapter has
its number `n`, and the first record of each type in it is complete.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Callable, Sequence
from json.encoder import encode_basestring
from operator import attrgetter, eq, sub
from typing import Any, cast, get_args

from ..core.effects import AdmitFrame, Effect, GrantCredit, SetTimer
from ..core.events import AudioArrived, DuplexFrame, EngineAudio, Event, SpeechProbability, TimerDue
from ..core.fence import Fence
from ..core.records import MISSING, Plain, Reader, RecordError, fields_of, read_as
from ..core.timeline import Ticks

SERIES: tuple[type, ...] = (
    AudioArrived,
    SpeechProbability,
    EngineAudio,
    DuplexFrame,
    TimerDue,
    AdmitFrame,
    GrantCredit,
    SetTimer,
)
"""Types that come many times a second."""

_MISSING = object()


# --- the plain form as text ----------------------------------------------------------------------------------------


def _getter(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Takes the fields `names` out of a record."""
    if not names:
        return lambda value: ()
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda value: (get(value),)


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
    values = _getter([name for name, _, _ in plan])
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


class _Kind:
    """How one type of `SERIES` is taken apart and put together."""

    def __init__(self, cls: type) -> None:
        plan = fields_of(cls)
        self.cls = cls
        self.name = cls.__name__
        self.fields = [name for name, _, _ in plan]
        self.annotations = [annotation for _, annotation, _ in plan]
        self.labels = [f',"{name}":' for name in self.fields]
        self.whole = [annotation is int for annotation in self.annotations]
        self.defaults = [default for _, _, default in plan]
        self.values = _getter(self.fields)
        self.numbers = _getter([name for name, whole in zip(self.fields, self.whole, strict=True) if whole])
        others = [name for name, whole in zip(self.fields, self.whole, strict=True) if not whole]
        self.others = attrgetter(*(others or ["__class__"]))
        """Takes out what the other fields hold, to be compared."""
        self.keyed = "name" in self.fields
        """Timers of each name are a series of their own; the name is always written."""
        self.key = self.fields.index("name") if self.keyed else -1


_KINDS: dict[type, _Kind] = {cls: _Kind(cls) for cls in SERIES}
_BY_NAME: dict[str, _Kind] = {kind.name: kind for kind in _KINDS.values()}


class _Written:
    """The last record of a series that was written, its whole numbers, and how much each had grown.

    `same`: how one is written that follows from it.
    """

    __slots__ = ("kind", "last", "numbers", "same", "steps")

    def __init__(self, kind: _Kind, value: Any) -> None:
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
        kind = _KINDS.get(cls)
        if kind is None:
            write = _texts[cls]
        elif kind.keyed:
            write = _keyed(kind)
        else:
            return self._first(kind)
        self[cls] = write
        return write

    def _first(self, kind: _Kind) -> Callable[[Any], str]:
        def write(value: Any) -> str:
            self[kind.cls] = _Written(kind, value).take
            return _whole(kind, value)

        return write


def _keyed(kind: _Kind) -> Callable[[Any], str]:
    """The same for a type of which each name is a series."""
    series: dict[str, _Written] = {}

    def write(value: Any) -> str:
        written = series.get(value.name)
        if written is not None:
            return written.take(value)
        series[value.name] = _Written(kind, value)
        return _whole(kind, value)

    return write


def _whole(kind: _Kind, value: Any) -> str:
    entries = zip(kind.labels, kind.values(value), strict=True)
    return f'{{"type":"{kind.name}"' + "".join([label + text(entry) for label, entry in entries]) + "}"


class _Series:
    """The last record of a series that was read, and the steps that led to it."""

    __slots__ = ("last", "steps")

    def __init__(self) -> None:
        self.last: list[Any] = []
        self.steps: list[int] = []

    def expected(self, kind: _Kind) -> list[Any]:
        if not self.last:
            return [_MISSING] * len(kind.fields)
        return [
            last + step if whole else last for last, step, whole in zip(self.last, self.steps, kind.whole, strict=True)
        ]

    def follow(self, kind: _Kind, values: Sequence[Any]) -> None:
        if self.last:
            self.steps = [
                value - last if whole else 0 for value, last, whole in zip(values, self.last, kind.whole, strict=True)
            ]
        else:
            self.steps = [0] * len(values)
        self.last = list(values)


class _Memory:
    """The series of one chapter, as they are read."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, str], _Series] = {}

    def of(self, kind: _Kind, name: str) -> _Series:
        key = (kind.name, name)
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = _Series()
        return series


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


class _Place:
    """The position on `agent_generated`, as a series of one number."""

    fields = ("at",)
    whole = (True,)


_PLACE = cast(_Kind, _Place)


# --- reading -------------------------------------------------------------------------------------------------------


def _checked(annotation: Any, plain: Plain, path: str) -> Any:
    if annotation is int and type(plain) is int:
        return plain
    if annotation is Fence and isinstance(plain, dict):
        return _fence(plain, path)
    return read_as(annotation, plain, path)


def _fence(plain: dict[str, Plain], path: str) -> Fence:
    session, incarnation, epoch = plain.get("session"), plain.get("incarnation"), plain.get("epoch")
    if type(session) is str and type(incarnation) is int and type(epoch) is int:
        return Fence(session, incarnation, epoch)
    return cast(Fence, read_as(Fence, plain, path))


class Line(typing.NamedTuple):
    """One line, read. `effects` stays None on a line with an event. `at`: position on `agent_generated`."""

    number: int
    now: Ticks
    event: Event | None
    effects: list[Effect] | None
    track: str | None
    at: Ticks | None


class LineReader:
    """Turns lines back into events and effects, in the order in which they were written."""

    def __init__(self) -> None:
        self._read = Reader((*get_args(Event), *get_args(Effect))).read
        self._events = frozenset(get_args(Event))
        self._effects = frozenset(get_args(Effect))
        self._memory = _Memory()
        self._at = _Series()
        self._number = 0
        self._track = ""

    @property
    def number(self) -> int:
        """Of the event that was read last."""
        return self._number

    def line(self, plain: Plain) -> Line:
        """One parsed line. Raises RecordError naming the place that does not fit."""
        if not isinstance(plain, dict):
            raise RecordError("", "expected an object")
        if "event" in plain:
            return self._event(plain)
        effects = plain.get("effects")
        if not isinstance(effects, list):
            raise RecordError("effects", "expected a list, or an event in its place")
        if self._number == 0:
            raise RecordError("effects", "stand before any event")
        read = [self._record(entry, f"effects[{index}]", self._effects) for index, entry in enumerate(effects)]
        return Line(self._number, 0, None, read, None, None)

    def _event(self, plain: dict[str, Plain]) -> Line:
        number = plain.get("n")
        if number is not None:
            self._number = cast(int, _checked(int, number, "n"))
            self._memory = _Memory()
            self._at = _Series()
            self._track = ""
        elif self._number == 0:
            raise RecordError("n", "is missing at the beginning of a chapter")
        else:
            self._number += 1
        now = cast(int, _checked(int, plain.get("now"), "now"))
        event = self._record(plain["event"], "event", self._events)
        if "track" in plain:
            self._track = cast(str, _checked(str, plain["track"], "track"))
        at = None
        if type(event) is EngineAudio or type(event) is DuplexFrame:
            given = plain.get("at")
            at = self._at.expected(_PLACE)[0] if given is None else _checked(int, given, "at")
            if at is _MISSING:
                at = None
            else:
                self._at.follow(_PLACE, (at,))
        return Line(self._number, now, cast(Event, event), None, self._track or None, at)

    def _record(self, plain: Plain, path: str, allowed: frozenset[type]) -> Any:
        if not isinstance(plain, dict):
            raise RecordError(path, 'expected an object with a "type"')
        name = plain.get("type")
        kind = _BY_NAME.get(name) if isinstance(name, str) else None
        if kind is None:
            try:
                value = self._read(plain)
            except RecordError as error:
                raise RecordError(f"{path}.{error.path}", str(error).partition(": ")[2]) from None
        else:
            value = self._of_series(kind, plain, path)
        if type(value) not in allowed:
            raise RecordError(path, f"{type(value).__name__} does not belong here")
        return value

    def _of_series(self, kind: _Kind, plain: dict[str, Plain], path: str) -> Any:
        key = plain.get("name") if kind.keyed else ""
        if not isinstance(key, str):
            raise RecordError(f"{path}.name", "is missing")
        series = self._memory.of(kind, key)
        expected = series.expected(kind)
        for index, field in enumerate(kind.fields):
            if field in plain:
                expected[index] = _checked(kind.annotations[index], plain[field], f"{path}.{field}")
            elif expected[index] is _MISSING:
                expected[index] = kind.defaults[index]
            if expected[index] is MISSING:
                raise RecordError(f"{path}.{field}", "is missing in the first of its kind")
        series.follow(kind, expected)
        return kind.cls(*expected)
