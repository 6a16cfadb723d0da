"""Symbolic shapes: B, T, F, N, P, d, Q and K stand for numbers that a checkpoint or a batch gives.

| symbol | counts |
|---|---|
| B | sequences of a batch |
| T | text positions |
| F | audio frames |
| N | video frames |
| P | patches of one image or video frame |
| d | width of the backbone (d_x: of x) |
| Q | codebooks per audio frame |
| K | entries of one codebook (a value's range, not an axis) |
| S | audio samples |
| C, H, W | channels, height and width of a latent |

A shape is written "B,N*P,d": axes by commas, a product inside an axis by asterisks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

VARYING: frozenset[str] = frozenset("BTFNPSHW")
"""What each batch brings anew. Between stages these stand for whatever comes, so they equal only themselves; the others
are fixed by the checkpoint."""

_SYMBOL = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


class ShapeError(ValueError):
    """A shape is malformed or does not fit. `axis` is the axis in question, None where it is the number of axes."""

    def __init__(self, message: str, axis: int | None = None) -> None:
        super().__init__(message)
        self.axis = axis


class ShapeMismatch(ShapeError):
    """Two shapes, or a shape and what really came, disagree."""


@dataclass(frozen=True, slots=True)
class Dim:
    """One axis: `factor` times the product of `symbols` (sorted, with repetition)."""

    factor: int
    symbols: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Dim:
        """From "8", "F" or "2*N*P". Raises ShapeError."""
        factor, symbols = 1, []
        for part in text.split("*"):
            word = part.strip()
            if word.isdecimal() and int(word) > 0:
                factor *= int(word)
            elif _SYMBOL.fullmatch(word):
                symbols.append(word)
            else:
                raise ShapeError(f"{text!r} is no axis; write a number above 0, a symbol, or a product such as N*P")
        return cls(factor, tuple(sorted(symbols)))

    def given(self, known: Mapping[str, int]) -> Dim:
        """This axis with what is known put in."""
        factor = self.factor * prod(known[symbol] for symbol in self.symbols if symbol in known)
        return Dim(factor, tuple(symbol for symbol in self.symbols if symbol not in known))

    def __str__(self) -> str:
        words = [str(self.factor)] if self.factor != 1 or not self.symbols else []
        return "*".join([*words, *self.symbols])


@dataclass(frozen=True, slots=True)
class Shape:
    """Axes, outermost first."""

    dims: tuple[Dim, ...]

    @classmethod
    def parse(cls, text: str) -> Shape:
        """From "B,F,Q"; an empty text has no axis. Raises ShapeError."""
        return cls(tuple(Dim.parse(part) for part in text.split(",")) if text.strip() else ())

    @property
    def symbols(self) -> frozenset[str]:
        return frozenset(symbol for dim in self.dims for symbol in dim.symbols)

    def given(self, known: Mapping[str, int]) -> Shape:
        """This shape with what is known put in."""
        return Shape(tuple(dim.given(known) for dim in self.dims))

    def unify(self, other: Shape, known: Mapping[str, int]) -> dict[str, int]:
        """What must hold besides `known` for both to be the same shape.

        Symbols mean the same in both. One that a checkpoint fixes is solved against a number; one of `VARYING` is not,
        and two different symbols of which neither is known are two different things. Raises ShapeMismatch.
        """
        if len(self.dims) != len(other.dims):
            raise ShapeMismatch(f"[{self}] has {len(self.dims)} axes, [{other}] has {len(other.dims)}")
        found = dict(known)
        _settle([(axis, *pair) for axis, pair in enumerate(zip(self.dims, other.dims, strict=True))], found, VARYING)
        for axis, (mine, theirs) in enumerate(zip(self.dims, other.dims, strict=True)):
            left, right = mine.given(found), theirs.given(found)
            if left != right:
                raise ShapeMismatch(f"axis {axis}: {_told(mine, left)} is not {_told(theirs, right)}", axis)
        return found

    def match(self, actual: Sequence[int], known: Mapping[str, int]) -> dict[str, int]:
        """What the sizes that really came say about the symbols, `known` included.

        A product of two unknown symbols may stay open: it is checked once one of them is known. Raises ShapeMismatch
        naming the axis.
        """
        if len(actual) != len(self.dims):
            raise ShapeMismatch(f"[{self}] has {len(self.dims)} axes, what came has {len(actual)}: {list(actual)}")
        for axis, size in enumerate(actual):
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise ShapeMismatch(f"axis {axis}: {size!r} is no size", axis)
        found = dict(known)
        _settle([(axis, dim, Dim(size)) for axis, (dim, size) in enumerate(zip(self.dims, actual, strict=True))], found)
        for axis, (dim, size) in enumerate(zip(self.dims, actual, strict=True)):
            left = dim.given(found)
            if not left.symbols and left.factor != size:
                raise ShapeMismatch(f"axis {axis}: {_told(dim, left)} is expected, {size} came", axis)
            if left.symbols and (size % left.factor if left.factor else size):
                raise ShapeMismatch(f"axis {axis}: {size} is no multiple of {left.factor} ({dim})", axis)
        return found

    def __str__(self) -> str:
        return ",".join(map(str, self.dims))


def _told(dim: Dim, value: Dim) -> str:
    return str(dim) if dim == value else f"{dim} = {value}"


def _settle(
    equations: Sequence[tuple[int, Dim, Dim]], found: dict[str, int], rigid: frozenset[str] = frozenset()
) -> None:
    """Solve for every symbol that stands alone against a number and is not `rigid`, until nothing new is learnt."""
    learnt = True
    while learnt:
        learnt = False
        for axis, mine, theirs in equations:
            for left, right in ((mine.given(found), theirs.given(found)), (theirs.given(found), mine.given(found))):
                if len(left.symbols) == 1 and left.symbols[0] not in rigid and not right.symbols and left.factor:
                    if right.factor % left.factor:
                        raise ShapeMismatch(f"axis {axis}: {right.factor} is no multiple of {left.factor}", axis)
                    found[left.symbols[0]] = right.factor // left.factor
                    learnt = True
                    break
