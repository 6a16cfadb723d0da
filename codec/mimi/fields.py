"""Fields of a checkpoint's configuration, each checked when it is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from .errors import ConfigInvalid


class Fields:
    """One mapping of a configuration. Every method raises ConfigInvalid, which names the field."""

    def __init__(self, where: str, fields: Mapping[str, object]) -> None:
        self._where = where
        self._fields = fields

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self._fields.get(name) is not None

    def whole(self, name: str, default: int | None = None) -> int:
        value = self._value(name, default)
        if not isinstance(value, int) or isinstance(value, bool):
            self.refuse(name, f"{value!r} is not a whole number")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self._value(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            self.refuse(name, f"{value!r} is not a number")
        return float(value)

    def wholes(self, name: str) -> tuple[int, ...]:
        value = self._value(name)
        if not isinstance(value, list | tuple):
            self.refuse(name, f"{value!r} is not a list")
        if not all(isinstance(one, int) and not isinstance(one, bool) for one in value):
            self.refuse(name, f"{value!r} holds something else than whole numbers")
        return tuple(value)

    def text(self, name: str, default: str | None = None) -> str:
        value = self._value(name, default)
        if not isinstance(value, str):
            self.refuse(name, f"{value!r} is not a text")
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self._fields.get(name, default)
        if not isinstance(value, bool):
            self.refuse(name, f"{value!r} is neither true nor false")
        return value

    def demand(self, name: str, wanted: object, *others: object) -> None:
        """The field may be absent, but not another than what is implemented: `wanted`, or one of `others`."""
        value = self._fields.get(name, wanted)
        if value not in (wanted, *others):
            self.refuse(name, f"{value!r} is not supported, only {wanted!r}; use a checkpoint that has it so")

    def _value(self, name: str, default: object = None) -> object:
        value = self._fields.get(name, default)
        if value is None:
            self.refuse(name, "is missing; write the geometry of the weights into their configuration")
        return value

    def refuse(self, name: str, message: str) -> NoReturn:
        raise ConfigInvalid(f"{self._where} {name}", message)
