"""How full an engine is at one moment, in the same words for every engine; for whoever watches the process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from .caches import CacheMetrics


@dataclass(frozen=True, slots=True)
class KeyValues:
    """Keys and values of one stage. `bytes`: allocated for all sequences; `positions` of those there are, `held` of
    them stand for something."""

    bytes: int
    positions: int
    held: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """`slots`: what is let to sessions or sequences, `busy` of them at work. `kv` by stage. `queues`: what waits, by
    the name of the queue, each in its own unit, which the name ends with. `caches` by the kind of state they hold."""

    slots: int
    busy: int
    kv: Mapping[str, KeyValues] = field(default_factory=dict)
    queues: Mapping[str, int] = field(default_factory=dict)
    caches: Mapping[str, CacheMetrics] = field(default_factory=dict)


@runtime_checkable
class Counts(Protocol):
    """An engine that counts what happens to it."""

    @property
    def counters(self) -> Mapping[str, int]: ...


@runtime_checkable
class Occupied(Protocol):
    """An engine that tells how full it is. Safe to ask from any thread."""

    @property
    def occupancy(self) -> Occupancy: ...
