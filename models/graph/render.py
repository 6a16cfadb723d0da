"""A model graph as text, as a Mermaid flow chart and as a Graphviz DOT digraph."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .graph import ModelGraph
from .parts import Delivery, Edge, Node, NodeKind, Readiness
from .states import StateKind

STATE_COLOURS: Mapping[StateKind, str] = {
    StateKind.TOKEN: "#1f77b4",
    StateKind.KV: "#9467bd",
    StateKind.FEATURE: "#2ca02c",
    StateKind.LATENT: "#d62728",
    StateKind.CODE: "#ff7f0e",
    StateKind.SESSION: "#7f7f7f",
}


def as_text(graph: ModelGraph) -> str:
    """The four questions and their answers, for a terminal."""
    lines = [graph.name, "", "nodes, and by what each makes batches"]
    width = max(len(node.name) for node in graph.nodes)
    kinds = max(len(node.kind.value) for node in graph.nodes)
    for node in graph.nodes:
        lines.append(f"  {node.name:<{width}}  {node.kind.value:<{kinds}}  {_batching(node)}".rstrip())
    lines += ["", "edges"]
    for edge in graph.edges:
        port = graph.source_port(edge)
        carried = f"{port.state.value} [{graph.shape(edge)}]{_entries(graph, port.entries)}"
        clock = f", in {port.clock.name}" if port.clock else ""
        loop = " (feedback)" if edge.loop else ""
        lines.append(f"  {edge.name}{loop}")
        lines.append(f"      {carried}{clock}")
        lines.append(f"      {edge.placement.value}; {_reuse(graph, edge)}; after a failure: {edge.recovery}")
    lines += ["", "delivered"]
    for delivery in graph.deliveries:
        lines.append(f"  {delivery.medium.value:<5}  {delivery.port}  {_ready(delivery)}")
    return "\n".join(lines) + "\n"


def as_mermaid(graph: ModelGraph) -> str:
    """A Mermaid flow chart: `flowchart LR` with one statement a line."""
    names = _identifiers(graph)
    lines = ["flowchart LR"]
    for node in graph.nodes:
        label = f"{node.name}<br/><small>{node.kind.value}</small>".replace('"', "#quot;")
        left, right = ("([", "])") if node.kind is NodeKind.SOURCE else ("[", "]")
        lines.append(f'    {names[node.name]}{left}"{label}"{right}')
    for number, delivery in enumerate(graph.deliveries):
        lines.append(f'    out{number}(("{delivery.medium.value}"))')
    for edge in graph.edges:
        arrow = "-.->" if edge.loop else "-->" if edge.placement.value == "same device" else "==>"
        label = f"{graph.state(edge).value} [{graph.shape(edge)}]"
        lines.append(f'    {names[edge.source_node]} {arrow}|"{label}"| {names[edge.target_node]}')
    for number, delivery in enumerate(graph.deliveries):
        source = names[delivery.port.partition(".")[0]]
        lines.append(f'    {source} -->|"{_ready(delivery)}"| out{number}')
    return "\n".join(lines) + "\n"


def as_dot(graph: ModelGraph) -> str:
    """A Graphviz digraph: edges coloured by state, dashed where fed back, bold where they leave the device."""
    names = _identifiers(graph)
    lines = [f"digraph {_string(graph.name)} {{", "    rankdir=LR;", "    node [shape=box];"]
    for node in graph.nodes:
        shape = ", shape=ellipse" if node.kind is NodeKind.SOURCE else ""
        lines.append(f"    {names[node.name]} [label={_string(f'{node.name}{chr(10)}{node.kind.value}')}{shape}];")
    for number, delivery in enumerate(graph.deliveries):
        lines.append(f"    out{number} [label={_string(delivery.medium.value)}, shape=doublecircle];")
    crossing = graph.crossings()
    for edge in graph.edges:
        state = graph.state(edge)
        style = "dashed" if edge.loop else "bold" if edge in crossing else "solid"
        label = _string(f"{state.value} [{graph.shape(edge)}]")
        lines.append(
            f"    {names[edge.source_node]} -> {names[edge.target_node]} "
            f'[label={label}, color="{STATE_COLOURS[state]}", style={style}];'
        )
    for number, delivery in enumerate(graph.deliveries):
        source = names[delivery.port.partition(".")[0]]
        lines.append(f"    {source} -> out{number} [label={_string(_ready(delivery))}];")
    return "\n".join([*lines, "}"]) + "\n"


FORMATS: Mapping[str, Callable[[ModelGraph], str]] = {"text": as_text, "mermaid": as_mermaid, "dot": as_dot}


def _batching(node: Node) -> str:
    if node.within:
        return f"within {node.within}"
    return " | ".join(batching.value for batching in node.batching)


def _entries(graph: ModelGraph, entries: str | int | None) -> str:
    if entries is None:
        return ""
    known = graph.known.get(entries, entries) if isinstance(entries, str) else entries
    return f" in 0..{known - 1}" if isinstance(known, int) else f" in 0..{known}-1"


def _reuse(graph: ModelGraph, edge: Edge) -> str:
    reuse = graph.reuse(edge)
    if reuse.rule is not None:
        needs = ", ".join(sorted(agreement.value for agreement in reuse.rule.agreements or ()))
        return f"may serve again on the same {needs}"
    return "used once"


def _ready(delivery: Delivery) -> str:
    if delivery.ready is Readiness.UNDETERMINED:
        return "when: undetermined"
    late = delivery.delay_frames
    after = f", {late} frame{'s' if late > 1 else ''} later" if late else ""
    return f"{delivery.ready.value}{after}"


def _identifiers(graph: ModelGraph) -> dict[str, str]:
    return {node.name: f"n{number}" for number, node in enumerate(graph.nodes)}


def _string(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
