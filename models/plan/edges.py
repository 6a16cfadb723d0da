"""What flows along each edge of a model's graph: its clock, its size, and the least that moving it takes.

T >= M / W: a payload of M bytes over a link of W bytes per second, without waiting and without what the link costs
besides. A lower bound, so it says what cannot be, never what will be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..graph.clocks import Clock, Frames
from ..graph.graph import ModelGraph
from ..graph.parts import Edge
from ..graph.shapes import Shape
from ..graph.states import Placement, StateKind
from .devices import Device
from .figures import Figure, computed, declared
from .geometry import ITEM, Geometry

HOP = 1920
"""Samples of one frame at 24 kHz: as much PCM is handed over at once."""
_ONE: Mapping[str, int] = {"B": 1, "T": 1, "F": 1, "N": 1, "S": HOP}
"""One unit of an edge: one position, frame or picture of one session."""
_LINK: Mapping[Placement, str] = {Placement.SAME_HOST: "host", Placement.REMOTE: "network"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgePlan:
    """`payload`: one unit of it; None: a size is in it that no source states. `transfers`: by link."""

    name: str
    state: StateKind
    shape: str
    clock: str
    rate: Figure | None
    payload: Figure | None
    unit: str
    placement: Placement
    crosses: bool
    recovery: str
    transfers: Mapping[str, Figure]


def edges(graph: ModelGraph, geometry: Geometry, device: Device) -> Sequence[EdgePlan]:
    """All edges of the graph, in its order."""
    return [_plan(graph, edge, geometry, device) for edge in graph.edges]


def _plan(graph: ModelGraph, edge: Edge, geometry: Geometry, device: Device) -> EdgePlan:
    port = graph.source_port(edge)
    shape = graph.shape(edge).given(geometry.symbols)
    payload, unit = _payload(edge, port.state, shape.given(_ONE).symbols, _elements(shape, _ONE), geometry)
    crosses = edge.placement not in (Placement.SAME_DEVICE, Placement.RECOMPUTE)
    return EdgePlan(
        name=edge.name,
        state=port.state,
        shape=str(shape),
        clock="none: it comes once" if port.clock is None else port.clock.name,
        rate=_rate(port.clock, geometry),
        payload=payload,
        unit=unit,
        placement=edge.placement,
        crosses=crosses,
        recovery=str(edge.recovery) if edge.recovery is not None else "not stated",
        transfers={} if payload is None else _transfers(payload, device),
    )


def _elements(shape: Shape, known: Mapping[str, int]) -> int:
    return math.prod(dim.given(known).factor for dim in shape.dims)


def _payload(
    edge: Edge, state: StateKind, unknown: frozenset[str], elements: int, geometry: Geometry
) -> tuple[Figure | None, str]:
    if state is StateKind.KV:
        held = next((a for part in geometry.parts for a in part.attention if a.name == edge.source_node), None)
        if held is None:
            return None, "undetermined: no source states its layers and heads"
        return computed(held.bytes, "bytes", "L · n_layers · 2 · n_kv_heads · d_head · b"), "all of one session"
    if unknown:
        return None, f"undetermined: no source states {', '.join(sorted(unknown))}"
    if state is StateKind.SESSION and edge.loop:
        return None, "counted in the session's state"
    item, spelled = _item(state, geometry)
    return computed(elements * item, "bytes", f"elements · {item} ({spelled})"), "one position, frame or picture"


def _item(state: StateKind, geometry: Geometry) -> tuple[int, str]:
    if state in (StateKind.TOKEN, StateKind.CODE):
        return 8, "int64"
    if state is StateKind.SESSION:
        return 2, "int16 samples"
    return ITEM[geometry.dtype], geometry.dtype


def _rate(clock: Clock | None, geometry: Geometry) -> Figure | None:
    """Frames follow the codec; tokens and positions follow nobody's clock, so no rate is made up for them."""
    if isinstance(clock, Frames) and geometry.tick is not None:
        return declared(float(1 / geometry.tick), "/s", "frames of the codec: rate / hop")
    return None


def _transfers(payload: Figure, device: Device) -> Mapping[str, Figure]:
    return {
        kind: computed(payload.value / link.value, "s", f"payload / {link} ({link.origin.value})")
        for kind, link in device.links.items()
    }


def link_of(edge: EdgePlan) -> str | None:
    """The link that the edge takes as it is placed; None where it stays."""
    return _LINK.get(edge.placement)
