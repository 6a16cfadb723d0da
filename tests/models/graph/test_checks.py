"""`models.graph.checks`: a graph that cannot be is refused by the node or edge that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from models.graph.clocks import Frames
from models.graph.graph import ModelGraph
from models.graph.parts import LOSE, REPLAY, Batching, Delivery, Edge, GraphError, Medium, Node, Readiness, recompute
from models.graph.shapes import Shape
from models.graph.states import Placement, StateKind

from .graphs import CODES, DELIVERIES, EDGES, FEATURES, NODES, TEXT, speaking


def edges(number: int, **changes: Any) -> tuple[Edge, ...]:
    return (*EDGES[:number], replace(EDGES[number], **changes), *EDGES[number + 1 :])


def nodes(number: int, **changes: Any) -> tuple[Node, ...]:
    return (*NODES[:number], replace(NODES[number], **changes), *NODES[number + 1 :])


TALKER, SPEAKER = 3, 4
WRONG: dict[str, tuple[Callable[[], ModelGraph], str, str]] = {
    "dangling source": (
        lambda: speaking(edges=edges(4, source="talker.pcm")),
        "talker.pcm",
        "no such output; it has codes",
    ),
    "dangling target": (lambda: speaking(edges=edges(4, target="mouth.codes")), "mouth", "no such node"),
    "open input": (lambda: speaking(edges=EDGES[:-1]), "speaker.codes", "no edge feeds"),
    "twice": (lambda: speaking(edges=(*EDGES, EDGES[0])), "microphone.audio -> ear.audio", "twice"),
    "same name": (lambda: speaking(nodes=(*NODES, NODES[0])), "microphone", "a name of its own"),
    "no nodes": (lambda: speaking(nodes=()), "speaking", "needs nodes"),
    "state": (
        lambda: speaking(nodes=nodes(TALKER, inputs={"text": FEATURES})),
        "thinker.text -> talker.text",
        "carries token, but talker.text takes feature",
    ),
    "clock": (
        lambda: speaking(nodes=nodes(SPEAKER, inputs={"codes": replace(CODES, clock=Frames("another"))})),
        "talker.codes -> speaker.codes",
        "ticks in frames of codec, but speaker.codes takes frames of another",
    ),
    "shape": (
        lambda: speaking(nodes=nodes(SPEAKER, inputs={"codes": replace(CODES, shape=Shape.parse("B,F,16"))})),
        "talker.codes -> speaker.codes",
        "axis 2: Q = 8 is not 16",
    ),
    "order of axes": (
        lambda: speaking(nodes=nodes(SPEAKER, inputs={"codes": replace(CODES, shape=Shape.parse("B,Q,F"))})),
        "talker.codes -> speaker.codes",
        "does not fit",
    ),
    "range": (
        lambda: speaking(nodes=nodes(SPEAKER, inputs={"codes": replace(CODES, entries=2048)})),
        "talker.codes -> speaker.codes",
        "values are 0..1024-1, but speaker.codes takes 0..2048-1",
    ),
    "placement": (
        lambda: speaking(edges=edges(2, placement=Placement.SAME_HOST)),
        "thinker.kv -> thinker.past",
        "kv may not go by 'same host'; it may by recompute, same device",
    ),
    "no recovery": (lambda: speaking(edges=edges(4, recovery=None)), "talker.codes -> speaker.codes", "recovery"),
    "recovery from nowhere": (lambda: speaking(edges=edges(1, recovery=recompute("mouth"))), "mouth", "no such node"),
    "recovery from behind": (
        lambda: speaking(edges=edges(1, recovery=recompute("talker"))),
        "ear.features -> thinker.heard",
        "does not depend on it",
    ),
    "recomputed but replayed": (
        lambda: speaking(edges=edges(1, placement=Placement.RECOMPUTE, recovery=REPLAY)),
        "ear.features -> thinker.heard",
        "recovers the same way",
    ),
    "undeclared cycle": (
        lambda: speaking(edges=edges(2, loop=False)),
        "thinker -> talker -> speaker",
        "wait for each other",
    ),
    "feedback that goes forward": (
        lambda: speaking(edges=edges(4, loop=True)),
        "talker.codes -> speaker.codes",
        "no feedback",
    ),
    "shared but random": (
        lambda: speaking(shared=frozenset({"microphone.audio -> ear.audio"})),
        "microphone.audio -> ear.audio",
        "never serves a second request",
    ),
    "shared but no edge": (lambda: speaking(shared=frozenset({"a -> b"})), "a -> b", "is no edge"),
    "no batches": (lambda: speaking(nodes=nodes(SPEAKER, batching=())), "speaker", "by what it makes batches"),
    "batches of a source": (
        lambda: speaking(nodes=nodes(0, batching=(Batching.SLOTS,))),
        "microphone",
        "makes no batches",
    ),
    "within and of its own": (lambda: speaking(nodes=nodes(SPEAKER, within="talker")), "speaker", "runs within talker"),
    "within a source": (
        lambda: speaking(nodes=nodes(SPEAKER, within="microphone", batching=())),
        "speaker",
        "makes no batches either",
    ),
    "nothing delivered": (lambda: speaking(deliveries=()), "speaking", "nothing leaves"),
    "delivered by nobody": (
        lambda: speaking(deliveries=(Delivery(Medium.AUDIO, "talker.pcm", Readiness.WHOLE),)),
        "talker.pcm",
        "no such output",
    ),
    "delivered before it is made": (
        lambda: speaking(deliveries=(replace(DELIVERIES[1], delay_frames=-1),)),
        "speaker.pcm",
        "at least 0",
    ),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_graph_that_cannot_be_is_refused(fault: str) -> None:
    make, where, message = WRONG[fault]
    with pytest.raises(GraphError) as caught:
        make()
    assert caught.value.where == where
    assert message in str(caught.value)


def test_what_may_be_lost_may_say_so() -> None:
    assert speaking(edges=edges(4, recovery=LOSE)).edge("talker.codes -> speaker.codes").recovery == LOSE


def test_the_same_values_in_another_spelling_fit() -> None:
    codes = replace(CODES, shape=Shape.parse("B,F,8"), entries=1024)
    assert speaking(nodes=nodes(SPEAKER, inputs={"codes": codes}))
    assert TEXT.state is StateKind.TOKEN
