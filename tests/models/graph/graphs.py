"""A small speaking model for the tests of graphs: encoder, thinker, talker, codec decoder."""

from __future__ import annotations

from models.graph.clocks import Frames, Positions, Tokens
from models.graph.graph import ModelGraph
from models.graph.parts import (
    REPLAY,
    Batching,
    Delivery,
    Edge,
    Medium,
    Node,
    NodeKind,
    Port,
    Readiness,
    recompute,
)
from models.graph.shapes import Shape
from models.graph.states import Placement, StateKind

TOKENS, FRAMES, POSITIONS = Tokens("thinker"), Frames("codec"), Positions("audio")
SAMPLES = Port(StateKind.SESSION, Shape.parse("B,S"))
FEATURES = Port(StateKind.FEATURE, Shape.parse("B,F,d"), POSITIONS)
TEXT = Port(StateKind.TOKEN, Shape.parse("B,T"), TOKENS, "V")
KV = Port(StateKind.KV, Shape.parse("B,T,d"), TOKENS)
CODES = Port(StateKind.CODE, Shape.parse("B,F,Q"), FRAMES, "K")

NODES = (
    Node("microphone", NodeKind.SOURCE, outputs={"audio": SAMPLES}),
    Node("ear", NodeKind.ENCODER, {"audio": SAMPLES}, {"features": FEATURES}, (Batching.MEDIA_LENGTH,)),
    Node(
        "thinker",
        NodeKind.AUTOREGRESSIVE,
        {"heard": FEATURES, "past": KV},
        {"text": TEXT, "kv": KV},
        (Batching.SEQUENCES,),
    ),
    Node("talker", NodeKind.AUTOREGRESSIVE, {"text": TEXT}, {"codes": CODES}, (Batching.SEQUENCES,)),
    Node("speaker", NodeKind.CODEC_DECODER, {"codes": CODES}, {"pcm": SAMPLES}, (Batching.CHUNK_DEADLINE,)),
)
EDGES = (
    Edge("microphone.audio", "ear.audio", Placement.SAME_HOST, REPLAY),
    Edge("ear.features", "thinker.heard", Placement.SAME_DEVICE, recompute("ear")),
    Edge("thinker.kv", "thinker.past", Placement.SAME_DEVICE, recompute("thinker"), loop=True),
    Edge("thinker.text", "talker.text", Placement.SAME_HOST, REPLAY),
    Edge("talker.codes", "speaker.codes", Placement.REMOTE, REPLAY),
)
DELIVERIES = (
    Delivery(Medium.TEXT, "thinker.text", Readiness.EACH_TOKEN),
    Delivery(Medium.AUDIO, "speaker.pcm", Readiness.EACH_FRAME, delay_frames=1),
)
SHARED = frozenset({"ear.features -> thinker.heard"})


def speaking(**changes: object) -> ModelGraph:
    parts: dict[str, object] = {
        "name": "speaking",
        "nodes": NODES,
        "edges": EDGES,
        "deliveries": DELIVERIES,
        "known": {"d": 64, "Q": 8, "K": 1024},
        "shared": SHARED,
    }
    return ModelGraph(**{**parts, **changes})  # type: ignore[arg-type]
