"""Plain-data form of the core's dataclasses, for the journal and for snapshots.

A dataclass becomes a dict with its type name under "type" and only the fields that differ from their defaults, so
that a line of the journal stays short and an added field with a default leaves old journals readable.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable
from typing import Any

Plain: typing.TypeAlias = "bool | int | float | str | list[Plain] | dict[str, Plain] | None"


class RecordError(ValueError):
    """A record that does not have the form of its type; `path` says where."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path or 'record'}: {message}")
        self.path = path


MISSING = object()
"""In the place of a default that a field does not have."""
_plans: dict[type, list[tuple[str, Any, Any]]] = {}


def _plan(cls: type) -> list[tuple[str, Any, Any]]:
    plan = _plans.get(cls)
    if plan is None:
        hints = typing.get_type_hints(cls)
        plan = []
        for field in dataclasses.fields(cls):
            default: Any = MISSING
            if field.default is not dataclasses.MISSING:
                default = field.default
            elif field.default_factory is not dataclasses.MISSING:
                default = field.default_factory()
            plan.append((field.name, hints[field.name], default))
        _plans[cls] = plan
    return plan


def fields_of(cls: type) -> list[tuple[str, Any, Any]]:
    """The fields of a dataclass in order: name, annotation, and default (`MISSING` where it has none)."""
    return _plan(cls)


def to_plain(value: Any) -> Plain:
    """The plain form of a dataclass, container or scalar. Raises TypeError for anything else."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [to_plain(entry) for entry in value]
    if isinstance(value, dict):
        return {str(key): to_plain(entry) for key, entry in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        plain: dict[str, Plain] = {"type": type(value).__name__}
        for name, _, default in _plan(type(value)):
            entry = getattr(value, name)
            if default is MISSING or entry != default:
                plain[name] = to_plain(entry)
        return plain
    raise TypeError(f"{type(value).__name__} has no plain form")


class Reader:
    """Turns plain data back into the dataclasses of a vocabulary.

    `classes` are the types that may stand at the top of a record or in a union; nested fields follow the annotations.
    """

    def __init__(self, classes: Iterable[type]) -> None:
        self._classes = {cls.__name__: cls for cls in classes}

    def read(self, plain: Plain) -> Any:
        """The value of a record whose type is named in it. Raises RecordError."""
        if not isinstance(plain, dict) or not isinstance(plain.get("type"), str):
            raise RecordError("", 'expected an object with a "type"')
        cls = self._classes.get(str(plain["type"]))
        if cls is None:
            raise RecordError("type", f"unknown type {plain['type']!r}; written by a newer version?")
        return read_as(cls, plain)


def read_as(annotation: Any, plain: Plain, path: str = "") -> Any:
    """`plain` as a value of `annotation`. Raises RecordError naming the place that does not fit."""
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return _read_union(typing.get_args(annotation), plain, path)
    if origin is typing.Literal:
        if plain not in typing.get_args(annotation):
            raise RecordError(path, f"{plain!r} is not one of {typing.get_args(annotation)}")
        return plain
    if origin in (list, tuple):
        return _read_sequence(annotation, origin, plain, path)
    if origin is dict:
        if not isinstance(plain, dict):
            raise RecordError(path, "expected an object")
        key, entry = typing.get_args(annotation)
        return {_read_key(key, name, path): read_as(entry, value, f"{path}.{name}") for name, value in plain.items()}
    if dataclasses.is_dataclass(annotation):
        return _read_dataclass(typing.cast(type, annotation), plain, path)
    if annotation is float and isinstance(plain, int) and not isinstance(plain, bool):
        return float(plain)
    if annotation is type(None) and plain is None:
        return None
    if annotation in (bool, int, float, str) and type(plain) is annotation:
        return plain
    raise RecordError(path, f"{plain!r} does not fit {annotation}")


def _read_key(annotation: Any, name: str, path: str) -> Any:
    if annotation is not int:
        return name
    try:
        return int(name)
    except ValueError:
        raise RecordError(path, f"the key {name!r} is not a number") from None


def _read_union(options: tuple[Any, ...], plain: Plain, path: str) -> Any:
    if plain is None and type(None) in options:
        return None
    if isinstance(plain, dict):
        for option in options:
            if dataclasses.is_dataclass(option) and typing.cast(type, option).__name__ == plain.get("type"):
                return read_as(option, plain, path)
    last = RecordError(path, f"{plain!r} fits none of the options")
    for option in options:
        if option is type(None):
            continue
        try:
            return read_as(option, plain, path)
        except RecordError as error:
            last = error
    raise last


def _read_sequence(annotation: Any, origin: Any, plain: Plain, path: str) -> Any:
    if not isinstance(plain, list):
        raise RecordError(path, "expected a list")
    entries = typing.get_args(annotation)
    if origin is tuple and not (len(entries) == 2 and entries[1] is Ellipsis):
        if len(plain) != len(entries):
            raise RecordError(path, f"expected {len(entries)} entries")
        return tuple(
            read_as(kind, value, f"{path}[{i}]") for i, (kind, value) in enumerate(zip(entries, plain, strict=True))
        )
    values = [read_as(entries[0], value, f"{path}[{i}]") for i, value in enumerate(plain)]
    return tuple(values) if origin is tuple else values


def _read_dataclass(cls: type, plain: Plain, path: str) -> Any:
    if not isinstance(plain, dict):
        raise RecordError(path, f"expected an object of type {cls.__name__}")
    if plain.get("type", cls.__name__) != cls.__name__:
        raise RecordError(path, f"expected type {cls.__name__}, found {plain['type']!r}")
    values: dict[str, Any] = {}
    for name, annotation, default in _plan(cls):
        if name in plain:
            values[name] = read_as(annotation, plain[name], f"{path}.{name}" if path else name)
        elif default is MISSING:
            raise RecordError(f"{path}.{name}" if path else name, "is missing")
    return cls(**values)
