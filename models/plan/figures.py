"""A figure and where it comes from: measured, declared by somebody, or computed from such."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeAlias


class PlanError(ValueError):
    """Something that was asked of the planner cannot be. `field` names the option; the message says what would do."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class Origin(Enum):
    """Where a figure comes from; the values are what is printed."""

    MEASURED = "measured"
    DECLARED = "declared"
    """Stated by a data sheet, a configuration, or whoever asked."""
    COMPUTED = "computed"


Unit: TypeAlias = Literal["bytes", "bytes/s", "s", "sessions", "/s", "positions", "parameters", "FLOP/s"]


@dataclass(frozen=True, slots=True)
class Figure:
    """`source`: who states it, how it was measured, or from what it was computed."""

    value: float
    unit: Unit
    origin: Origin
    source: str

    def __str__(self) -> str:
        return spelled(self.value, self.unit)

    def record(self) -> dict[str, object]:
        """As plain values."""
        whole = self.unit in ("bytes", "sessions", "positions", "parameters")
        value = round(self.value) if whole else self.value
        return {"value": value, "unit": self.unit, "origin": self.origin.value, "source": self.source}


def computed(value: float, unit: Unit, source: str) -> Figure:
    return Figure(value, unit, Origin.COMPUTED, source)


def declared(value: float, unit: Unit, source: str) -> Figure:
    return Figure(value, unit, Origin.DECLARED, source)


def measured(value: float, unit: Unit, source: str) -> Figure:
    return Figure(value, unit, Origin.MEASURED, source)


_BYTES = ("B", "KiB", "MiB", "GiB", "TiB")


def spelled(value: float, unit: Unit) -> str:
    """For people: 96.0 KiB, 3.2 ms, 1,024."""
    match unit:
        case "bytes":
            return _scaled(value)
        case "bytes/s":
            # As data sheets have them.
            for size, name in ((1e12, "TB/s"), (1e9, "GB/s")):
                if value >= size:
                    return f"{value / size:.3g} {name}"
            return f"{value / 1e6:.3g} MB/s"
        case "s":
            for size, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
                if value >= size:
                    return f"{value / size:.3g} {name}"
            return f"{value * 1e9:.3g} ns"
        case "FLOP/s":
            return f"{value / 1e12:.4g} TFLOP/s"
        case "parameters":
            return f"{value / 1e9:.2f} B" if value >= 1e9 else f"{value / 1e6:.2f} M"
        case "/s":
            return f"{value:g}/s"
        case _:
            return f"{round(value):,}"


def _scaled(value: float) -> str:
    place = 0
    while abs(value) >= 1024 and place < len(_BYTES) - 1:
        value, place = value / 1024, place + 1
    return f"{value:.0f} {_BYTES[place]}" if place == 0 else f"{value:.1f} {_BYTES[place]}"
