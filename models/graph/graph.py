"""The model graph: nodes with ports, typed edges, and where outputs leave.

It is an input of the runtime. Four questions are answered here and nowhere else:

1. which node makes batches of its own, and by what (`batching`);
2. which edge leaves a device or a process (`crossings`);
3. whether an edge carries state that may serve again, or a one-shot result (`reuse`);
4. when an output may be delivered (`delivery`).

A graph is valid once it is made: `checks.check` runs in the constructor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from .checks import check
from .parts import Batching, Delivery, Edge, GraphError, Medium, Node, NodeKind, Port
from .shapes import Shape
from .states import RULES, Placement, StateKind, StateRule


@dataclass(frozen=True, slots=True)
class Reuse:
    """What an edge carries. `rule` is None for a one-shot result."""

    rule: StateRule | None

    @property
    def once(self) -> bool:
        """Whether it is a one-shot result."""
        return self.rule is None


ONCE = Reuse(None)


@dataclass(frozen=True, slots=True)
class ModelGraph:
    """Nodes, edges and output streams of one model; `known` are the values of symbols that its checkpoint states.

    Raises GraphError for anything that `checks.check` finds.
    """

    name: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    deliveries: tuple[Delivery, ...]
    known: Mapping[str, int] = field(default_factory=dict)
    shared: frozenset[str] = frozenset()
    """Names of edges whose payload is kept for later requests; all others are consumed once."""

    def __post_init__(self) -> None:
        check(self)

    def node(self, name: str) -> Node:
        """Raises GraphError for a name that it does not have."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise GraphError(name, f"{self.name} has no such node; it has {', '.join(node.name for node in self.nodes)}")

    def edge(self, name: str) -> Edge:
        """By "node.port -> node.port". Raises GraphError."""
        for edge in self.edges:
            if edge.name == name:
                return edge
        raise GraphError(name, f"{self.name} has no such edge")

    def source_port(self, edge: Edge) -> Port:
        return self._port(edge.source, outputs=True)

    def target_port(self, edge: Edge) -> Port:
        return self._port(edge.target, outputs=False)

    def state(self, edge: Edge) -> StateKind:
        return self.source_port(edge).state

    def shape(self, edge: Edge) -> Shape:
        """With what the checkpoint states put in."""
        return self.source_port(edge).shape.given(self.known)

    @property
    def takes_text(self) -> bool:
        """Whether text may enter it."""
        ports = [port for node in self.nodes if node.kind is NodeKind.SOURCE for port in node.outputs.values()]
        return any(port.state is StateKind.TOKEN for port in ports)

    # --- the four questions --------------------------------------------------------------------------------------

    def batching(self, node: str) -> tuple[Batching, ...]:
        """By what `node` makes batches; empty where it does not make its own."""
        return self.node(node).batching

    def crossings(self, *, beyond: Placement = Placement.SAME_DEVICE) -> tuple[Edge, ...]:
        """Edges that leave the device (or, with SAME_HOST, the machine)."""
        near = {Placement.SAME_DEVICE, Placement.RECOMPUTE}
        if beyond is Placement.SAME_HOST:
            near.add(Placement.SAME_HOST)
        return tuple(edge for edge in self.edges if edge.placement not in near)

    def reuse(self, edge: Edge) -> Reuse:
        """Under which rule `edge`'s payload may serve again, or `ONCE`."""
        return Reuse(RULES[self.state(edge)]) if edge.name in self.shared else ONCE

    def delivery(self, medium: Medium) -> tuple[Delivery, ...]:
        """The streams of `medium`; empty where the model makes none."""
        return tuple(delivery for delivery in self.deliveries if delivery.medium is medium)

    # --- variations ----------------------------------------------------------------------------------------------

    def placed(self, placements: Mapping[str, Placement]) -> ModelGraph:
        """The same model deployed otherwise: edge names to placements. Raises GraphError."""
        for name in placements:
            self.edge(name)
        edges = tuple(replace(edge, placement=placements.get(edge.name, edge.placement)) for edge in self.edges)
        return replace(self, edges=edges)

    def without(self, gone: Iterable[str]) -> ModelGraph:
        """The part that is left once the nodes `gone` are not there, nor what only they feed. Raises GraphError."""
        dropped = set(gone)
        for name in dropped:
            self.node(name)
        edges = tuple(e for e in self.edges if e.source_node not in dropped and e.target_node not in dropped)
        fed, left = {edge.target for edge in self.edges}, {edge.target for edge in edges}
        nodes = tuple(
            replace(node, inputs={p: at for p, at in node.inputs.items() if f"{node.name}.{p}" not in fed - left})
            for node in self.nodes
            if node.name not in dropped
        )
        return replace(
            self,
            nodes=nodes,
            edges=edges,
            deliveries=tuple(d for d in self.deliveries if d.port.partition(".")[0] not in dropped),
            shared=self.shared & {edge.name for edge in edges},
        )

    def _port(self, name: str, *, outputs: bool) -> Port:
        node, _, port = name.partition(".")
        ports = self.node(node).outputs if outputs else self.node(node).inputs
        if port not in ports:
            side = "output" if outputs else "input"
            raise GraphError(name, f"{node} has no such {side}; it has {', '.join(ports) or 'none'}")
        return ports[port]
