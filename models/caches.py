"""Caches of states that may serve again: one cache per kind, with a budget, an eviction and figures of its own.

A key holds everything that must agree (`states.RULES`), tenant and version always among it, so a state of one tenant
is never found by another. Kinds that never serve twice (latents, sessions) have no key at all.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from .graph.states import RULES, Agreement, StateKind

V = TypeVar("V")


class NotReusable(ValueError):
    """A state has no key: its kind never serves twice, or something that must agree is not named."""


@dataclass(frozen=True, slots=True)
class CacheKey:
    """What must be the same for a state to serve again. Made by `key`, `feature_key` or `prefix_key`."""

    kind: StateKind
    tenant: str
    agreed: tuple[tuple[Agreement, str], ...]


def key(kind: StateKind, agreed: Mapping[Agreement, str]) -> CacheKey:
    """The key of a state of `kind`. Raises NotReusable unless `agreed` names all that its rule demands, and no more."""
    rule = RULES[kind]
    if rule.agreements is None:
        raise NotReusable(f"{kind.value}: a state of this kind never serves a second request; make it again")
    if agreed.keys() != rule.agreements:
        wanted = ", ".join(sorted(agreement.value for agreement in rule.agreements))
        raise NotReusable(f"{kind.value}: a key must name exactly {wanted}")
    for agreement, value in agreed.items():
        if not value:
            raise NotReusable(f"{kind.value}: the {agreement.value} is empty; a key without it would hit across it")
    return CacheKey(kind, agreed[Agreement.TENANT], tuple(sorted(agreed.items(), key=lambda pair: pair[0].name)))


def feature_key(tenant: str, content: bytes, preprocessing: str, encoder: str) -> CacheKey:
    """Features of a medium: `content` as it was given, how it was prepared, and the encoder's version."""
    return key(
        StateKind.FEATURE,
        {
            Agreement.TENANT: tenant,
            Agreement.CONTENT: hashlib.sha256(content).hexdigest(),
            Agreement.PREPROCESSING: preprocessing,
            Agreement.ENCODER: encoder,
        },
    )


def prefix_key(tenant: str, tokens: Sequence[str], model: str, first: int = 0) -> CacheKey:
    """Keys and values of exactly `tokens`, from position `first` on, in the model of that version."""
    digest = hashlib.sha256()
    for token in tokens:
        # With its length: tokens that end and begin differently must not run together into the same bytes.
        encoded = token.encode()
        digest.update(len(encoded).to_bytes(4, "big") + encoded)
    return key(
        StateKind.KV,
        {
            Agreement.TENANT: tenant,
            Agreement.PREFIX: digest.hexdigest(),
            Agreement.MODEL: model,
            Agreement.POSITIONS: f"{first}+{len(tokens)}",
        },
    )


@dataclass(frozen=True, slots=True)
class CacheMetrics:
    """Figures of one cache. `refused`: states that had no room even with everything else gone."""

    hits: int = 0
    misses: int = 0
    evictions: int = 0
    refused: int = 0
    entries: int = 0
    bytes: int = 0


class StateCache(Generic[V]):
    """States of one `kind`, together at most `budget` bytes; the least recently used goes first.

    `dispose` is called with each value that leaves, outside the lock. Safe to use from any thread.
    """

    def __init__(self, kind: StateKind, budget: int, dispose: Callable[[V], None] | None = None) -> None:
        if not RULES[kind].reusable:
            raise NotReusable(f"{kind.value}: a state of this kind never serves a second request")
        if budget < 0:
            raise ValueError(f"budget {budget} must be at least 0 bytes")
        self.kind = kind
        self.budget = budget
        self._dispose = dispose
        self._lock = threading.Lock()
        self._entries: OrderedDict[CacheKey, tuple[V, int]] = OrderedDict()
        self._metrics = CacheMetrics()

    def get(self, wanted: CacheKey) -> V | None:
        """The state under exactly this key; it counts as used now. Raises NotReusable for a key of another kind."""
        self._check(wanted)
        with self._lock:
            found = self._entries.get(wanted)
            if found is None:
                self._count(misses=1)
                return None
            self._entries.move_to_end(wanted)
            self._count(hits=1)
            return found[0]

    def put(self, under: CacheKey, value: V, size: int) -> bool:
        """Keep `value`, `size` bytes long, and let go of what has no room beside it; False where it fits nowhere.

        Raises NotReusable for a key of another kind.
        """
        self._check(under)
        if size < 0:
            raise ValueError(f"size {size} must be at least 0 bytes")
        gone: list[V] = []
        with self._lock:
            if size > self.budget:
                self._count(refused=1)
                return False
            if (old := self._entries.pop(under, None)) is not None:
                gone.append(old[0])
                self._count(entries=-1, bytes=-old[1])
            while self._metrics.bytes + size > self.budget:
                gone.append(self._drop(next(iter(self._entries))))
            self._entries[under] = (value, size)
            self._count(entries=1, bytes=size)
        self._let_go(gone)
        return True

    def held(self, tenant: str) -> int:
        """How many states of one tenant there are."""
        with self._lock:
            return sum(entry.tenant == tenant for entry in self._entries)

    def evict(self, *, tenant: str | None = None) -> int:
        """Let go of all of one tenant, or of everything; how many there were."""
        with self._lock:
            gone = [self._drop(entry) for entry in list(self._entries) if tenant is None or entry.tenant == tenant]
        self._let_go(gone)
        return len(gone)

    @property
    def metrics(self) -> CacheMetrics:
        with self._lock:
            return self._metrics

    def _check(self, given: CacheKey) -> None:
        if given.kind is not self.kind:
            raise NotReusable(f"kind: a {given.kind.value} is not kept in the cache of {self.kind.value}s")

    def _drop(self, entry: CacheKey) -> V:
        value, size = self._entries.pop(entry)
        self._count(evictions=1, entries=-1, bytes=-size)
        return value

    def _count(self, **by: int) -> None:
        self._metrics = replace(self._metrics, **{name: getattr(self._metrics, name) + n for name, n in by.items()})

    def _let_go(self, gone: Sequence[V]) -> None:
        if self._dispose is not None:
            for value in gone:
                self._dispose(value)
