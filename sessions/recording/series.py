"""Which records come many times a second, so that of each only what does not follow from the one before is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from ..core.effects import AdmitFrame, GrantCredit, SetTimer
from ..core.events import AudioArrived, DuplexFrame, EngineAudio, SpeechProbability, TimerDue
from ..core.records import fields_of

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


def getter(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Takes the fields `names` out of a record."""
    if not names:
        return lambda value: ()
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda value: (get(value),)


class Kind:
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
        self.values = getter(self.fields)
        self.numbers = getter([name for name, whole in zip(self.fields, self.whole, strict=True) if whole])
        others = [name for name, whole in zip(self.fields, self.whole, strict=True) if not whole]
        self.others = attrgetter(*(others or ["__class__"]))
        """Takes out what the other fields hold, to be compared."""
        self.keyed = "name" in self.fields
        """Timers of each name are a series of their own; the name is always written."""
        self.key = self.fields.index("name") if self.keyed else -1


KINDS: dict[type, Kind] = {cls: Kind(cls) for cls in SERIES}
