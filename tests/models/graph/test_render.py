"""`models.graph.render`: what is printed is read back and compared with the graph."""

from __future__ import annotations

import re

from models.graph.graph import ModelGraph
from models.graph.parts import NodeKind
from models.graph.render import FORMATS, as_dot, as_mermaid, as_text

from .graphs import speaking

GRAPH = speaking()


def mermaid_parts(text: str) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Labels of the nodes by identifier, and edges; fails on a line that is no statement."""
    head, *lines = text.splitlines()
    assert head == "flowchart LR"
    nodes: dict[str, str] = {}
    arrows: list[tuple[str, str]] = []
    for line in lines:
        if node := re.fullmatch(r'    (\w+)(?:\[|\(\[|\(\()"([^"]*)"(?:\]|\]\)|\)\))', line):
            nodes[node[1]] = node[2]
        else:
            edge = re.fullmatch(r'    (\w+) (?:-->|==>|-\.->)\|"[^"]+"\| (\w+)', line)
            assert edge, line
            arrows.append((edge[1], edge[2]))
    return nodes, arrows


def dot_parts(text: str) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """The same of a digraph."""
    lines = text.splitlines()
    assert re.fullmatch(r'digraph "[^"]+" \{', lines[0])
    assert lines[-1] == "}"
    nodes: dict[str, str] = {}
    arrows: list[tuple[str, str]] = []
    attributes = r'\[(?:\w+=(?:"[^"]*"|\w+)(?:, )?)+\]'
    for line in lines[3:-1]:
        if node := re.fullmatch(rf"    (\w+) {attributes};", line):
            label = re.search(r'label="([^"]*)"', line)
            assert label
            nodes[node[1]] = label[1]
        else:
            edge = re.fullmatch(rf"    (\w+) -> (\w+) {attributes};", line)
            assert edge, line
            arrows.append((edge[1], edge[2]))
    return nodes, arrows


def check_parts(graph: ModelGraph, nodes: dict[str, str], arrows: list[tuple[str, str]], parting: str) -> None:
    """Every node, edge and output stream of `graph` is there, and nothing else."""
    named = {identifier: label.split(parting)[0] for identifier, label in nodes.items()}
    assert sorted(named.values()) == sorted(
        [*(node.name for node in graph.nodes), *(delivery.medium.value for delivery in graph.deliveries)]
    )
    drawn = sorted((named[source], named[target]) for source, target in arrows)
    edges = [(edge.source_node, edge.target_node) for edge in graph.edges]
    outputs = [(delivery.port.partition(".")[0], delivery.medium.value) for delivery in graph.deliveries]
    assert drawn == sorted(edges + outputs)


def test_mermaid_holds_every_node_and_edge() -> None:
    check_parts(GRAPH, *mermaid_parts(as_mermaid(GRAPH)), "<br/>")


def test_dot_holds_every_node_and_edge() -> None:
    check_parts(GRAPH, *dot_parts(as_dot(GRAPH)), "\\n")


def test_what_is_fed_back_and_what_leaves_the_device_looks_different() -> None:
    mermaid = as_mermaid(GRAPH)
    assert "n2 -.->" in mermaid
    assert "n3 ==>" in mermaid
    assert as_dot(GRAPH).count("style=dashed") == 1
    assert as_dot(GRAPH).count("style=bold") == 3


def test_the_text_answers_the_four_questions() -> None:
    text = as_text(GRAPH)
    assert "ear         encoder         media length, resolution, frame window" in text
    assert "talker.codes -> speaker.codes" in text
    assert "code [B,F,8] in 0..1023, in frames of codec" in text
    assert "may serve again on the same content, encoder version, preprocessing, tenant" in text
    assert "used once; after a failure: replay" in text
    assert "audio  speaker.pcm  with each frame, 1 frame later" in text


def test_names_with_quotes_stay_inside_their_quotes() -> None:
    odd = speaking(name='a "b" \\ c')
    assert 'digraph "a \\"b\\" \\\\ c" {' in as_dot(odd)
    assert set(FORMATS) == {"text", "mermaid", "dot"}
    assert NodeKind.SOURCE.value == "source"
