"""What of a model costs memory and time, as far as sizes alone tell. Pure arithmetic.

Keys and values take B · L · n_layers · 2 · n_kv_heads · d_head · b bytes: two numbers per position, layer, key-value
head (grouped-query attention has fewer of them than of query heads) and dimension, of `b` bytes each. What the figure
leaves out is said where it is printed: paging, alignment, and what a step computes with in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

ITEM: Mapping[str, int] = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1}
"""Bytes of one number."""


def kv_bytes(batch: int, length: int, layers: int, kv_heads: int, head_dim: int, item: int) -> int:
    """Keys and values of `batch` sequences of `length` positions."""
    return batch * length * layers * 2 * kv_heads * head_dim * item


@dataclass(frozen=True, slots=True)
class Attention:
    """One stack of attention layers. `cells`: positions that are allocated for each session, all at once."""

    name: str
    layers: int
    kv_heads: int
    head_dim: int
    cells: int
    item: int
    moves: bool = False
    """A window that moves: a session of any length takes as much."""

    @property
    def bytes(self) -> int:
        """Of one session."""
        return kv_bytes(1, self.cells, self.layers, self.kv_heads, self.head_dim, self.item)

    @property
    def per_position(self) -> int:
        return kv_bytes(1, 1, self.layers, self.kv_heads, self.head_dim, self.item)


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture: of `count` experts `used` are for each token, drawn anew; `bytes` of all of them, in all layers."""

    count: int
    used: int
    bytes: int

    def read(self, tokens: int) -> float:
        """Bytes that `tokens` together read, if each draws evenly: those that at least one of them drew."""
        missed = (1 - self.used / self.count) ** tokens
        return self.bytes * (1 - missed)

    def multiplied(self) -> float:
        """Bytes that take part in one token's products."""
        return self.bytes * self.used / self.count


@dataclass(frozen=True, slots=True)
class Part:
    """One part with weights. `ticks`: how often it runs in one tick of a session that speaks.

    `fixed`: state of a session that hangs on nothing, such as a codec's; `looked_up`: weights that are not read whole
    (embeddings).
    """

    name: str
    weights: int
    item: int
    ticks: Fraction = Fraction(1)
    attention: tuple[Attention, ...] = ()
    fixed: int = 0
    looked_up: int = 0
    experts: Experts | None = None
    within: str = ""
    """The part whose stage it steps in; empty: its own."""

    @property
    def stage(self) -> str:
        """The stage that it steps in."""
        return self.within or self.name

    @property
    def session(self) -> int:
        """Bytes of one session's state."""
        return self.fixed + sum(attention.bytes for attention in self.attention)

    def read(self, sessions: int) -> float:
        """Bytes that one step for `sessions` must read at least, keys and values at their full length included."""
        experts = self.experts
        dense = self.weights - self.looked_up - (experts.bytes if experts else 0)
        drawn = experts.read(sessions) if experts else 0.0
        return dense + drawn + sessions * sum(attention.bytes for attention in self.attention)

    def operations(self, sessions: int) -> float:
        """Multiplications and additions of one step, two for each weight that takes part."""
        experts = self.experts
        dense = self.weights - self.looked_up - (experts.bytes if experts else 0)
        active = dense + (experts.multiplied() if experts else 0.0)
        return 2.0 * sessions * active / self.item


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """All parts of a model at one dtype. `tick`: seconds that a session's step may take; None: nobody states one."""

    model: str
    dtype: str
    parts: Sequence[Part]
    tick: Fraction | None
    source: str
    context: int
    """Positions of one session, as it is planned."""
    symbols: Mapping[str, int] = field(default_factory=dict)
    spare_sessions: int = 0
    """Sessions' state that is allocated beyond those that are let."""
    missing: Sequence[str] = ()
    """What is not in the figures because no source states it."""

    @property
    def stages(self) -> Sequence[str]:
        """What steps in a tick, in order."""
        return list(dict.fromkeys(part.stage for part in self.parts if part.ticks))

    @property
    def weights(self) -> int:
        return sum(part.weights for part in self.parts)

    @property
    def session(self) -> int:
        """Bytes of one session's state."""
        return sum(part.session for part in self.parts)
