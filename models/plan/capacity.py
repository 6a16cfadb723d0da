"""Sessions by memory and by tick time, and which of the two ends first."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from .devices import Device
from .figures import Figure, Origin, PlanError, computed, declared
from .geometry import Geometry, Part

MOST_SESSIONS = 1_000_000
"""Beyond this nobody has a device for it, and the arithmetic says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """What is taken for granted. `usable`: share of the memory that weights and states may take; the rest is for what a
    step computes with in between, for the libraries and for fragments. `steps`: seconds of one step by sessions, and
    where that is known from.
    """

    usable: float = 0.9
    steps: Mapping[int, float] = field(default_factory=dict)
    stages: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    """The same by stage, where they are known apart."""
    steps_origin: Origin = Origin.DECLARED
    steps_source: str = ""

    def check(self) -> Assumptions:
        """Itself, or PlanError."""
        if not 0 < self.usable <= 1:
            raise PlanError("--usable", f"{self.usable:g} must be above 0 and at most 1")
        for sessions, seconds in self.steps.items():
            if sessions < 1 or not (0 < seconds < math.inf):
                raise PlanError(
                    "--step-ms", f"{sessions}={seconds * 1000:g} needs a number of sessions and a time, above 0"
                )
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """`limit`: what ends first, in words. A figure that is None is not known, and `limit` says why where it matters."""

    weights: Figure
    session: Figure
    spare: Figure
    """State that is allocated beyond the sessions."""
    budget: Figure
    by_memory: Figure
    devices_for_weights: int
    """How many such devices the weights alone need."""
    tick: Figure | None
    steps: Sequence[tuple[int, Figure]]
    """Seconds of one step, by sessions."""
    stages: Sequence[tuple[int, str, Figure]]
    """Seconds that each stage has of it, by sessions; empty where nobody says."""
    by_tick: Figure | None
    limit: str


def capacity(geometry: Geometry, device: Device, assumptions: Assumptions) -> Capacity:
    """Raises PlanError."""
    assumptions.check()
    budget = device.memory.value * assumptions.usable
    spare = geometry.spare_sessions * geometry.session
    left = budget - geometry.weights - spare
    fits = max(0, math.floor(left / geometry.session)) if geometry.session else (MOST_SESSIONS if left >= 0 else 0)
    by_memory = computed(
        fits, "sessions", "(memory · usable share - weights - spare state) / state of one session, rounded down"
    )
    tick = None if geometry.tick is None else declared(float(geometry.tick), "s", "one frame of the codec: hop / rate")
    steps = _steps(geometry, device, assumptions, fits)
    by_tick = None if tick is None else _by_tick(geometry, device, assumptions, tick.value)
    return Capacity(
        weights=computed(geometry.weights, "bytes", f"parameters of {geometry.source}, {geometry.dtype}"),
        session=computed(geometry.session, "bytes", "keys and values, codec state and what else a session holds"),
        spare=computed(spare, "bytes", f"{geometry.spare_sessions} sessions' state beyond those that are let"),
        budget=computed(
            budget, "bytes", f"{assumptions.usable:.0%} of the device's memory ({device.memory.origin.value})"
        ),
        by_memory=by_memory,
        devices_for_weights=math.ceil(geometry.weights / budget),
        tick=tick,
        steps=steps,
        stages=_stages(geometry, device, assumptions, [sessions for sessions, _ in steps]),
        by_tick=by_tick,
        limit=_limit(geometry, budget, by_memory, by_tick),
    )


def step_seconds(geometry: Geometry, device: Device, sessions: int) -> float:
    """The least that one step of `sessions` takes: for each part the longer of reading its weights and states once and
    of its multiplications, one part after the other."""
    return sum(part_seconds(geometry, part, device, sessions) for part in geometry.parts)


def part_seconds(geometry: Geometry, part: Part, device: Device, sessions: int) -> float:
    """What one part has of `step_seconds`."""
    flops = device.flops.get(geometry.dtype) or device.flops["float32"]
    read, multiplied = part.read(sessions) / device.bandwidth.value, part.operations(sessions) / flops.value
    return float(part.ticks) * max(read, multiplied)


def _stages(
    geometry: Geometry, device: Device, assumptions: Assumptions, wanted: Sequence[int]
) -> Sequence[tuple[int, str, Figure]]:
    origin, source = assumptions.steps_origin, assumptions.steps_source
    if assumptions.steps:
        return [
            (sessions, stage, Figure(seconds[sessions], "s", origin, source))
            for sessions in wanted
            for stage, seconds in assumptions.stages.items()
        ]
    why = "at least: its share of the step"
    if len(geometry.stages) < 2:
        return []
    return [
        (sessions, stage, computed(_stage_seconds(geometry, stage, device, sessions), "s", why))
        for sessions in wanted
        for stage in geometry.stages
    ]


def _stage_seconds(geometry: Geometry, stage: str, device: Device, sessions: int) -> float:
    return sum(part_seconds(geometry, part, device, sessions) for part in geometry.parts if part.stage == stage)


def _steps(geometry: Geometry, device: Device, assumptions: Assumptions, fits: int) -> Sequence[tuple[int, Figure]]:
    if assumptions.steps:
        return [
            (sessions, Figure(seconds, "s", assumptions.steps_origin, assumptions.steps_source))
            for sessions, seconds in sorted(assumptions.steps.items())
        ]
    why = "at least: each weight and state read once at the device's bandwidth, or multiplied at its peak"
    wanted = sorted({1, 8, 64, fits} - {0}) if fits else [1]
    return [(sessions, computed(step_seconds(geometry, device, sessions), "s", why)) for sessions in wanted]


def _by_tick(geometry: Geometry, device: Device, assumptions: Assumptions, tick: float) -> Figure:
    if not assumptions.steps:
        most = _largest(lambda sessions: step_seconds(geometry, device, sessions) <= tick)
        return computed(most, "sessions", "at most: the least time of a step still fits in a tick")
    origin = assumptions.steps_origin.value
    points = sorted(assumptions.steps.items())
    if len(points) == 1:
        sessions, seconds = points[0]
        enough = sessions if seconds <= tick else 0
        return computed(enough, "sessions", f"one {origin} step; give two to tell how it grows")
    base, each = _line(points)
    most = math.floor((tick - base) / each) if each > 0 else MOST_SESSIONS
    why = f"a line through {len(points)} {origin} steps: {base * 1000:.3g} ms and {each * 1000:.3g} ms for each session"
    return computed(max(0, min(MOST_SESSIONS, most)), "sessions", why)


def _line(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Least squares: seconds at no session, and for each."""
    count = len(points)
    mean_x, mean_y = (sum(point[axis] for point in points) / count for axis in (0, 1))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    each = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    return mean_y - each * mean_x, each


def _largest(holds: Callable[[int], bool]) -> int:
    if not holds(1):
        return 0
    low, high = 1, 2
    while high < MOST_SESSIONS and holds(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _limit(geometry: Geometry, budget: float, by_memory: Figure, by_tick: Figure | None) -> str:
    if geometry.weights > budget:
        return "memory: the weights alone do not fit"
    if by_memory.value < 1:
        return "memory: beside the weights there is no room for one session"
    if by_tick is None:
        return "memory, as far as it is known: nobody states a tick for this model"
    if by_tick.value < 1:
        return "time: a step of one session takes longer than a tick"
    if by_tick.value < by_memory.value:
        return "time: a step fills the tick before the memory is full"
    return "memory: it is full before a step fills the tick"
