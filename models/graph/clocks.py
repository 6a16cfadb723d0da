"""Clocks: each state has its own, and rates of different clocks are never divided by each other.

A codec frame lasts h / f_s seconds; its Q codes tick Q times as fast; text tokens and diffusion steps follow nobody's
sample rate. Tokens per second over frames per second is therefore no number, and asking for it is an error, for the
type checker (`Rate[Frames]` and `Rate[Tokens]` do not mix) and at run time.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, TypeVar

from codec.identity import CodecIdentity


class ClockMismatch(TypeError):
    """Quantities of two clocks were divided, added or compared. `left` and `right` are their names."""

    def __init__(self, left: str, right: str, doing: str) -> None:
        super().__init__(
            f"{doing}: {left} and {right} are different clocks; turn one into the other with a `Conversion` that "
            "states how many ticks of one go into the other, or compare durations in seconds"
        )
        self.left = left
        self.right = right


@dataclass(frozen=True, slots=True)
class Clock:
    """What is counted, and whose: frames of one codec are not frames of another."""

    of: str

    @property
    def name(self) -> str:
        """Such as "frames of mimi/1"."""
        return f"{type(self).__name__.lower()} of {self.of}"


class Samples(Clock):
    """Audio samples of one channel."""

    __slots__ = ()


class Frames(Clock):
    """Frames: of a codec (`hop` samples each), or of an encoder."""

    __slots__ = ()


class Codes(Clock):
    """Single codes: as many per frame as there are codebooks."""

    __slots__ = ()


class Tokens(Clock):
    """Tokens of one autoregressive model."""

    __slots__ = ()


class Positions(Clock):
    """Positions that a medium takes in a backbone's sequence."""

    __slots__ = ()


class Steps(Clock):
    """Denoising steps of one diffusion model."""

    __slots__ = ()


class Chunks(Clock):
    """Stretches of media that are handed over as one."""

    __slots__ = ()


C = TypeVar("C", bound=Clock)
D = TypeVar("D", bound=Clock)


@dataclass(frozen=True, slots=True)
class Rate(Generic[C]):
    """`per_second` ticks of `clock` in a second; exact. Raises ValueError unless positive."""

    clock: C
    per_second: Fraction

    def __post_init__(self) -> None:
        if self.per_second <= 0:
            raise ValueError(f"per_second {self.per_second} of {self.clock.name} must be above 0")

    def __truediv__(self, other: Rate[C]) -> Fraction:
        """How many times as fast. Raises ClockMismatch for a rate of another clock."""
        self._same(other, "dividing rates")
        return self.per_second / other.per_second

    def __lt__(self, other: Rate[C]) -> bool:
        self._same(other, "comparing rates")
        return self.per_second < other.per_second

    def __add__(self, other: Rate[C]) -> Rate[C]:
        self._same(other, "adding rates")
        return Rate(self.clock, self.per_second + other.per_second)

    def seconds(self, ticks: int) -> Fraction:
        """How long `ticks` last."""
        return Fraction(ticks) / self.per_second

    def convert(self, conversion: Conversion[C, D]) -> Rate[D]:
        """The same pace on another clock. Raises ClockMismatch where `conversion` is not of this clock."""
        if conversion.source != self.clock:
            raise ClockMismatch(self.clock.name, conversion.source.name, "converting a rate")
        return Rate(conversion.target, self.per_second * conversion.ratio)

    def _same(self, other: Rate[C], doing: str) -> None:
        if not isinstance(other, Rate):
            raise TypeError(f"{doing}: {other!r} is not a rate; give a Rate of {self.clock.name}")
        if self.clock != other.clock or type(self.clock) is not type(other.clock):
            raise ClockMismatch(self.clock.name, other.clock.name, doing)

    def __str__(self) -> str:
        return f"{float(self.per_second):g} {self.clock.name} per second"


@dataclass(frozen=True, slots=True)
class Conversion(Generic[C, D]):
    """`ratio` ticks of `target` for each tick of `source`: a stated fact about a model, not a quotient of rates."""

    source: C
    target: D
    ratio: Fraction

    def __post_init__(self) -> None:
        if self.ratio <= 0:
            raise ValueError(f"ratio {self.ratio} must be above 0")


def frame_rate(codec: CodecIdentity) -> Rate[Frames]:
    """f_s / h: frames per second of a codec."""
    return Rate(Frames(f"{codec.name}/{codec.version}"), Fraction(codec.sample_rate, codec.hop))


def codes_per_frame(codec: CodecIdentity) -> Conversion[Frames, Codes]:
    """Q codes for each frame, so that `frame_rate(codec).convert(...)` is Q f_s / h."""
    of = f"{codec.name}/{codec.version}"
    return Conversion(Frames(of), Codes(of), Fraction(codec.codebooks))


def media_positions(of: str, positions: int, seconds: Fraction) -> Rate[Positions]:
    """L_m / Δt: positions per second that a medium takes in a backbone. Raises ValueError unless both are above 0."""
    if seconds <= 0:
        raise ValueError(f"seconds {seconds} must be above 0")
    return Rate(Positions(of), Fraction(positions) / seconds)
