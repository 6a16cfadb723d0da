"""A plan: a model, a device, and what follows from both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..graph.graph import ModelGraph
from . import measure
from .capacity import Assumptions, Capacity, capacity
from .devices import Device, device
from .edges import EdgePlan, edges
from .families import Planned, planned, with_symbols
from .figures import Figure, Origin, PlanError, declared
from .geometry import Geometry
from .measure import Measurement, Tell


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is to be planned, as it was asked for. `links`: bytes per second by kind of link, besides the device's own.

    `steps`: seconds of a step by sessions, as somebody measured them elsewhere; `stages`: the same by stage of a model
    whose stages step apart.
    """

    family: str
    device: str
    checkpoint: Path | None = None
    tiny: bool = False
    dtype: str | None = None
    context: int | None = None
    usable: float = 0.9
    steps: Mapping[int, float] | None = None
    stages: Mapping[str, Mapping[int, float]] | None = None
    links: Mapping[str, float] | None = None
    measure: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """See the fields; every figure says where it comes from."""

    model: str
    geometry: Geometry
    graph: ModelGraph
    device: Device
    capacity: Capacity
    edges: Sequence[EdgePlan]
    measured: Measurement | None


def make_plan(asked: Asked, tell: Tell) -> Plan:
    """`tell` hears what is being done. Raises PlanError, and what is wrong with a checkpoint."""
    if asked.measure and (asked.steps or asked.stages):
        raise PlanError("--measure", "a step's time is given by --step-ms already; drop one of the two")
    where = _device(asked)
    tell("laying out the model")
    found = planned(
        asked.family, checkpoint=asked.checkpoint, tiny=asked.tiny, dtype=asked.dtype, context=asked.context
    )
    taken = measure.measure(_make(asked, found), tell, spare=found.geometry.spare_sessions) if asked.measure else None
    graph = with_symbols(found).graph
    return Plan(
        model=found.model.name,
        geometry=found.geometry,
        graph=graph,
        device=where,
        capacity=capacity(found.geometry, where, _assumptions(asked, found.geometry, taken)),
        edges=edges(graph, found.geometry, where),
        measured=taken,
    )


def _device(asked: Asked) -> Device:
    found = device(asked.device)
    for kind, rate in (asked.links or {}).items():
        if kind not in ("peer", "host", "network"):
            raise PlanError("--link", f"{kind!r} must be peer, host or network")
        if rate <= 0:
            raise PlanError("--link", f"{kind}={rate:g} must be above 0 bytes per second")
    links: dict[str, Figure] = dict(found.links)
    links |= {kind: declared(rate, "bytes/s", "--link") for kind, rate in (asked.links or {}).items()}
    return replace(found, links=links)


def _assumptions(asked: Asked, geometry: Geometry, taken: Measurement | None) -> Assumptions:
    if taken is not None and taken.steps:
        return Assumptions(
            usable=asked.usable,
            steps=taken.steps,
            stages=taken.stages,
            steps_origin=Origin.MEASURED,
            steps_source=taken.how,
        )
    steps, stages = asked.steps or {}, asked.stages or {}
    if stages:
        if steps:
            raise PlanError("--step-ms", "is given for whole steps and for stages; give one of the two")
        steps = _together(geometry, stages)
    return Assumptions(usable=asked.usable, steps=steps, stages=stages, steps_source="--step-ms")


def _together(geometry: Geometry, stages: Mapping[str, Mapping[int, float]]) -> Mapping[int, float]:
    """Whole steps of what was said of each stage. Raises PlanError."""
    names = geometry.stages
    for stage in stages:
        if stage not in names:
            raise PlanError("--step-ms", f"{geometry.model} has no stage {stage!r}; its stages are {', '.join(names)}")
    counts = {count for seconds in stages.values() for count in seconds}
    for name in names:
        lacking = sorted(counts - set(stages.get(name, {})))
        if lacking:
            raise PlanError("--step-ms", f"{name} is not given for {lacking[0]} sessions; a tick needs every stage")
    return {count: sum(seconds[count] for seconds in stages.values()) for count in counts}


def _make(asked: Asked, found: Planned) -> measure.Maker:
    """What is made to be measured. Raises PlanError."""
    family = found.model.family.name
    if asked.context is not None or (asked.dtype not in (None, found.geometry.dtype)):
        raise PlanError("--measure", "a model is measured as it is served; drop --context and --dtype")
    if family == "moshi" and (asked.tiny or asked.checkpoint is not None):
        return lambda sessions: measure.moshi(sessions, asked.checkpoint)
    if family == "qwen3-omni" and asked.tiny:
        return measure.qwen3_omni
    raise PlanError(
        "--measure", "is for what can be made here: --random-weights tiny, or --family moshi with --checkpoint"
    )
