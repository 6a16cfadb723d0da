"""Reads the lines of a journal, which `lines` writes."""

from __future__ import annotations

import json
import json.scanner
import typing
from collections.abc import Callable
from typing import Any, Final, cast, get_args

from ..core.effects import Effect
from ..core.events import DuplexFrame, EngineAudio, Event
from ..core.fence import Fence
from ..core.records import MISSING, Plain, Reader, RecordError, fields_of, read_as
from ..core.timeline import Ticks
from .series import KINDS, Kind

_BY_NAME: Final[dict[str, Kind]] = {kind.name: kind for kind in KINDS.values()}
_scan = json.scanner.make_scanner(json.JSONDecoder())  # type: ignore[arg-type]
"""What `json.loads` does in the end; the rest of it takes four times as long for a line."""


def parsed(line: bytes) -> Plain:
    """A line as plain data. Raises ValueError and RecursionError."""
    written = line.decode()
    try:
        value, end = _scan(written, 0)
    except StopIteration:
        return cast(Plain, json.loads(written))  # which says what is wrong
    return cast(Plain, value) if end == len(written) else cast(Plain, json.loads(written))


class _Series:
    """The last record of a series that was read, and the steps that led to it."""

    __slots__ = ("_fields", "_kind", "_last", "_steps")

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._fields = 2 if kind.keyed else 1
        """Of a record that says nothing but that there is another one: its type, and the name of its series."""
        self._last: list[Any] = []
        self._steps: list[tuple[int, int]] = []
        """Which numbers grew, and by how much."""

    def read(self, plain: dict[str, Plain], path: str) -> Any:
        """The next record. Raises RecordError."""
        if self._last:
            values = self._last.copy()
            for index, step in self._steps:
                values[index] += step
            if len(plain) != self._fields:
                self._say(values, plain, path)
                self._follow(values)
        else:
            values = list(self._kind.defaults)
            self._say(values, plain, path)
            if MISSING in values:
                field = self._kind.fields[values.index(MISSING)]
                raise RecordError(f"{path}.{field}", "is missing in the first of its kind")
        self._last = values
        return self._kind.cls(*values)

    def _say(self, values: list[Any], plain: dict[str, Plain], path: str) -> None:
        """Put what `plain` says into `values`."""
        kind = self._kind
        for index, field in enumerate(kind.fields):
            if field in plain:
                values[index] = _checked(kind.annotations[index], plain[field], f"{path}.{field}")

    def _follow(self, values: list[Any]) -> None:
        steps = [
            (index, value - last)
            for index, (value, last, whole) in enumerate(zip(values, self._last, self._kind.whole, strict=True))
            if whole
        ]
        self._steps = [(index, step) for index, step in steps if step]


class _Places:
    """Positions on `agent_generated`: a series of one number."""

    def __init__(self) -> None:
        self._last: Ticks | None = None
        self._step: Ticks = 0

    def read(self, given: Ticks | None) -> Ticks | None:
        """The next one; `given`: where it does not follow. None where there was none to follow from."""
        last = self._last
        if given is None:
            self._last = None if last is None else last + self._step
        else:
            self._step = 0 if last is None else given - last
            self._last = given
        return self._last


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


def _simple(cls: type) -> Callable[[dict[str, Plain]], Any] | None:
    """Reads a record of nothing but scalars, and answers None where it is not quite that; None for other types."""
    plan = fields_of(cls)
    if any(annotation not in (int, str, bool) for _, annotation, _ in plan):
        return None

    def read(plain: dict[str, Plain]) -> Any:
        values = []
        for name, annotation, default in plan:
            value = plain.get(name, default)
            if type(value) is not annotation:
                return None
            values.append(value)
        return cls(*values)

    return read


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
        self._simple = {
            cls.__name__: read for cls in get_args(Event) if cls not in KINDS and (read := _simple(cls)) is not None
        }
        self._memory: dict[tuple[str, str], _Series] = {}
        """The series of the chapter."""
        self._at = _Places()
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
            self._memory = {}
            self._at = _Places()
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
            at = self._at.read(None if given is None else cast(int, _checked(int, given, "at")))
        return Line(self._number, now, cast(Event, event), None, self._track or None, at)

    def _record(self, plain: Plain, path: str, allowed: frozenset[type]) -> Any:
        if not isinstance(plain, dict):
            raise RecordError(path, 'expected an object with a "type"')
        name = plain.get("type")
        if not isinstance(name, str):
            raise RecordError(f"{path}.type", "is missing")
        kind = _BY_NAME.get(name)
        if kind is not None:
            value = self._of_series(kind, plain, path)
        else:
            simple = self._simple.get(name)
            value = None if simple is None else simple(plain)
            if value is None:
                value = self._other(plain, path)
        if type(value) not in allowed:
            raise RecordError(path, f"{type(value).__name__} does not belong here")
        return value

    def _other(self, plain: dict[str, Plain], path: str) -> Any:
        try:
            return self._read(plain)
        except RecordError as error:
            raise RecordError(f"{path}.{error.path}", str(error).partition(": ")[2]) from None

    def _of_series(self, kind: Kind, plain: dict[str, Plain], path: str) -> Any:
        key = plain.get("name") if kind.keyed else ""
        if not isinstance(key, str):
            raise RecordError(f"{path}.name", "is missing")
        series = self._memory.get((kind.name, key))
        if series is None:
            series = self._memory[kind.name, key] = _Series(kind)
        return series.read(plain, path)
