"""What makes a model graph valid. The first fault found is raised, named after the node or edge that has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .parts import Edge, GraphError, NodeKind
from .shapes import ShapeMismatch
from .states import RULES, Placement

if TYPE_CHECKING:
    from .graph import ModelGraph


def check(graph: ModelGraph) -> None:
    """Raises GraphError for: a name that is used twice or holds a dot, a dangling edge, an input fed twice or never, a
    mismatch of state, shape, clock or range, a placement that the kind of state does not allow, a missing or circular
    recovery, a cycle that no declared feedback opens, and an output that nobody makes."""
    _names(graph)
    known = dict(graph.known)
    for edge in graph.edges:
        known = _edge(graph, edge, known)
    _inputs(graph)
    _within(graph)
    _recoveries(graph, _ancestors(graph))
    _deliveries(graph)


def _names(graph: ModelGraph) -> None:
    seen: set[str] = set()
    for node in graph.nodes:
        if not node.name or "." in node.name or node.name in seen:
            raise GraphError(node.name or "node", "a node needs a name of its own, without a dot")
        seen.add(node.name)
    if not seen:
        raise GraphError(graph.name, "a graph needs nodes")
    edges = [edge.name for edge in graph.edges]
    for name in edges:
        if edges.count(name) > 1:
            raise GraphError(name, "the edge is there twice")
    for name in graph.shared - set(edges):
        raise GraphError(name, "is named as shared but is no edge")


def _edge(graph: ModelGraph, edge: Edge, known: dict[str, int]) -> dict[str, int]:
    """`known`, and what the shapes at both ends of `edge` say besides."""
    name = edge.name
    source, target = graph.source_port(edge), graph.target_port(edge)
    if source.state is not target.state:
        raise GraphError(name, f"carries {source.state.value}, but {edge.target} takes {target.state.value}")
    if source.clock != target.clock:
        ours = source.clock.name if source.clock else "no clock"
        theirs = target.clock.name if target.clock else "no clock"
        raise GraphError(name, f"ticks in {ours}, but {edge.target} takes {theirs}")
    try:
        known = source.shape.unify(target.shape, known)
    except ShapeMismatch as mismatch:
        raise GraphError(name, f"[{source.shape}] does not fit [{target.shape}]: {mismatch}") from None
    ours_, theirs_ = (known.get(e, e) if isinstance(e, str) else e for e in (source.entries, target.entries))
    if ours_ != theirs_:
        raise GraphError(name, f"values are 0..{ours_}-1, but {edge.target} takes 0..{theirs_}-1")
    rule = RULES[source.state]
    if edge.placement not in rule.placements:
        allowed = ", ".join(sorted(placement.value for placement in rule.placements))
        raise GraphError(name, f"{source.state.value} may not go by '{edge.placement.value}'; it may by {allowed}")
    if name in graph.shared and not rule.reusable:
        raise GraphError(name, f"{source.state.value} never serves a second request; do not name it as shared")
    if edge.recovery is None:
        raise GraphError(name, "says nothing about recovery; give recompute(NODE), REPLAY or LOSE")
    if edge.placement is Placement.RECOMPUTE and edge.recovery.since is None:
        raise GraphError(name, "what is recomputed instead of moved recovers the same way; give recompute(NODE)")
    return known


def _inputs(graph: ModelGraph) -> None:
    fed = [edge.target for edge in graph.edges]
    for node in graph.nodes:
        if not node.inputs and node.kind is not NodeKind.SOURCE:
            raise GraphError(node.name, "has no input, so there is nothing that it could compute from")
        for port in node.inputs:
            if f"{node.name}.{port}" not in fed:
                raise GraphError(f"{node.name}.{port}", "no edge feeds this input")


def _within(graph: ModelGraph) -> None:
    for node in graph.nodes:
        idle = node.kind in (NodeKind.SOURCE, NodeKind.CONTROL)
        if node.within is not None:
            graph.node(node.within)
            if node.batching:
                raise GraphError(node.name, f"runs within {node.within}, so it makes no batches of its own")
            if not graph.node(node.within).batching:
                raise GraphError(node.name, f"runs within {node.within}, which makes no batches either")
        elif not node.batching and not idle:
            raise GraphError(node.name, "say by what it makes batches, or within which node it runs")
        elif node.batching and idle:
            raise GraphError(node.name, "computes nothing, so it makes no batches")


def _ancestors(graph: ModelGraph) -> dict[str, set[str]]:
    """For each node itself and all that it depends on within one step. Raises GraphError for a cycle."""
    waits = {
        node.name: {e.source_node for e in graph.edges if e.target_node == node.name and not e.loop}
        for node in graph.nodes
    }
    found: dict[str, set[str]] = {}
    while len(found) < len(waits):
        ready = [name for name, before in waits.items() if name not in found and before <= found.keys()]
        if not ready:
            stuck = " -> ".join(name for name in waits if name not in found)
            raise GraphError(
                stuck, "these nodes wait for each other; mark the edge that a later step reads as loop=True"
            )
        for name in ready:
            found[name] = {name}.union(*(found[before] for before in waits[name]))
    return found


def _recoveries(graph: ModelGraph, ancestors: Mapping[str, set[str]]) -> None:
    for edge in graph.edges:
        if edge.loop and edge.target_node not in ancestors[edge.source_node]:
            raise GraphError(edge.name, "goes forward, so it is no feedback; leave loop=True away")
        since = edge.recovery.since if edge.recovery else None
        if since is None:
            continue
        graph.node(since)
        if since not in ancestors[edge.source_node]:
            raise GraphError(edge.name, f"cannot be recomputed from {since}: {edge.source_node} does not depend on it")


def _deliveries(graph: ModelGraph) -> None:
    if not graph.deliveries:
        raise GraphError(graph.name, "nothing leaves this graph; name what is delivered")
    for delivery in graph.deliveries:
        node, _, port = delivery.port.partition(".")
        if port not in graph.node(node).outputs:
            raise GraphError(delivery.port, f"{node} has no such output to deliver")
        if delivery.delay_frames < 0:
            raise GraphError(delivery.port, "delay_frames must be at least 0")
