"""What is to be otherwise in a what-if run, read from the spelling of the command line."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ..core.config import SessionConfig, TurnConfig
from ..core.events import (
    EndOfTurnProbability,
    ItemTruncate,
    OutputClear,
    PlaybackReported,
    ResponseCancel,
)
from ..core.timeline import Ticks, from_ms

DROPS: Mapping[str, type] = {
    "playback.ack": PlaybackReported,
    "client.cancel": ResponseCancel,
    "client.clear": OutputClear,
    "client.truncate": ItemTruncate,
    "perception.end_of_turn": EndOfTurnProbability,
}
"""What `--drop` can leave out, besides interruptions."""

SESSION_SETTINGS = ("lead_ms", "frame_ms", "credit_ms", "grace_ms")
"""Of the session, settable as session.NAME."""

_INTERRUPTION = re.compile(r"interruption(?:\.(\d+))?")
_SHIFT = re.compile(r"interruption(?:\.(\d+))?=([+-]?\d+(?:\.\d+)?)ms")


class AlterationError(ValueError):
    """An alteration that cannot be; names it and says what can."""


@dataclass(frozen=True, slots=True)
class Shift:
    """Speech that interrupts comes `by` later (negative: earlier). `number`: which interruption; None: each."""

    number: int | None
    by: Ticks


@dataclass(frozen=True, slots=True)
class Alterations:
    """`settings` by full name; `dropped` event types; `silenced` interruptions (None among them: each)."""

    settings: Mapping[str, str] = field(default_factory=dict)
    dropped: frozenset[type] = frozenset()
    silenced: frozenset[int | None] = frozenset()
    shifts: tuple[Shift, ...] = ()

    @classmethod
    def parse(cls, set_: Iterable[str] = (), drop: Iterable[str] = (), shift: Iterable[str] = ()) -> Alterations:
        """From NAME=VALUE, NAME and interruption[.N]=MSms. Raises AlterationError."""
        settings = {}
        for given in set_:
            name, separator, value = given.partition("=")
            if not separator:
                raise AlterationError(f"--set {given}: give NAME=VALUE, such as turn.silence_ms=300")
            settings[name.strip()] = value.strip()
        alterations = cls(settings, *_drops(drop), tuple(_shift(given) for given in shift))
        alterations.config(SessionConfig())
        return alterations

    def config(self, config: SessionConfig) -> SessionConfig:
        """`config` with the altered settings. Raises AlterationError."""
        for name, value in self.settings.items():
            config = _set(config, name, value)
        return config

    @property
    def none(self) -> bool:
        return not (self.settings or self.dropped or self.silenced or self.shifts)


def _drops(drop: Iterable[str]) -> tuple[frozenset[type], frozenset[int | None]]:
    kinds: set[type] = set()
    silenced: set[int | None] = set()
    for given in drop:
        match = _INTERRUPTION.fullmatch(given)
        if match:
            silenced.add(int(match[1]) if match[1] else None)
        elif given in DROPS:
            kinds.add(DROPS[given])
        else:
            raise AlterationError(f"--drop {given}: choose one of {', '.join(DROPS)}, interruption, interruption.N")
    return frozenset(kinds), frozenset(silenced)


def _shift(given: str) -> Shift:
    match = _SHIFT.fullmatch(given.replace(" ", ""))
    if match is None:
        raise AlterationError(f"--shift {given}: give interruption=MSms or interruption.N=MSms, such as -200ms")
    by = from_ms(float(match[2]))
    if abs(by) > from_ms(60_000):
        raise AlterationError(f"--shift {given}: by a minute at most")
    return Shift(int(match[1]) if match[1] else None, by)


def _set(config: SessionConfig, name: str, value: str) -> SessionConfig:
    group, _, setting = name.partition(".")
    turns = config.turns or TurnConfig()
    if group == "session" and setting in SESSION_SETTINGS:
        length = from_ms(_number(name, value, float))
        if length <= 0 and setting != "grace_ms":
            raise AlterationError(f"--set {name}={value}: must be more than 0")
        span: dict[str, Any] = {setting.removesuffix("_ms"): length}
        return replace(config, **span)
    if name in ("turn.hold_ms", "hold_ms"):
        # How long a hold lasts before it is an interruption by duration alone, whichever kind of turn detection it is.
        held = _number(name, value, int)
        return replace(config, turns=replace(turns, commit_ms=held, semantic_commit_ms=held))
    if name == "vad.threshold":
        setting, group = "threshold", "turn"
    hints = typing.get_type_hints(TurnConfig)
    if group != "turn" or setting not in hints:
        names = [f"turn.{one.name}" for one in fields(TurnConfig)]
        names += ["turn.hold_ms", "vad.threshold", *(f"session.{one}" for one in SESSION_SETTINGS)]
        raise AlterationError(f"--set {name}: there is no such setting; there are {', '.join(names)}")
    altered: dict[str, Any] = {setting: _value(name, value, hints[setting])}
    return replace(config, turns=replace(turns, **altered))


def _value(name: str, value: str, hint: object) -> object:
    if typing.get_origin(hint) is typing.Literal:
        if value not in typing.get_args(hint):
            raise AlterationError(f"--set {name}={value}: choose one of {', '.join(typing.get_args(hint))}")
        return value
    if isinstance(hint, types.UnionType):
        if value.lower() in ("none", "off"):
            return None
        hint = next(option for option in typing.get_args(hint) if option is not type(None))
    if hint is bool:
        if value.lower() not in ("true", "false"):
            raise AlterationError(f"--set {name}={value}: give true or false")
        return value.lower() == "true"
    return _number(name, value, float if hint is float else int)


Number = typing.TypeVar("Number", int, float)


def _number(name: str, value: str, kind: type[Number]) -> Number:
    try:
        number = kind(value)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise AlterationError(f"--set {name}={value}: give {what}") from None
    if not 0 <= number <= 1_000_000:
        raise AlterationError(f"--set {name}={value}: must lie between 0 and 1000000")
    return number
