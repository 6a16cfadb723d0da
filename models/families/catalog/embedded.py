"""The embedded cascade: detector, recognizer, thinker and talker, each a model of its own, on a CPU.

Its parts are pinned files (`models/assets.toml`), so their fingerprints are what binds them together.
"""

from __future__ import annotations

import re

from ...assets import catalogue
from ...checkpoint import Checkpoint, CheckpointError
from ...descriptor import Absent, CapabilityDescriptor, Stated
from ...family import Family
from ...graph.clocks import Positions, Samples, Tokens
from ...graph.graph import ModelGraph
from ...graph.parts import LOSE, REPLAY, Batching, Delivery, Edge, Medium, Node, NodeKind, Readiness, port, recompute
from ...graph.states import Placement, StateKind

PINS = "models/assets.toml"
ENGINE = "models/families/embedded"
INPUT_RATE, OUTPUT_RATE = 16_000, 24_000
"""Hz that the recognizer hears and that the talker speaks."""
POSITIONS = 2048
"""Of SmolLM2; history beyond its share of them is left out, so no session has to end."""


def recognises(checkpoint: Checkpoint) -> bool:
    """Its parts lie in folders of their own, none of which is the cascade."""
    return False


def describe(checkpoint: Checkpoint) -> CapabilityDescriptor:
    raise CheckpointError(
        str(checkpoint.folder), "the cascade is no single checkpoint; see `talkover models show embedded`"
    )


def _pinned(name: str) -> str:
    asset = catalogue()[name]
    called = re.split("[:,(]", asset.about)[0].strip()
    return f"{called}, {asset.fingerprint}"


def _published() -> CapabilityDescriptor:
    return CapabilityDescriptor(
        family="embedded",
        variant=Stated("cascade: listen, think, speak", ENGINE),
        checkpoint=Stated(catalogue()["smollm2"].fingerprint, f"{PINS}: smollm2"),
        tokenizer=Stated(f"tokenizer of {_pinned('smollm2')}", PINS),
        audio_encoder=Stated(_pinned("whisper-base"), PINS),
        image_encoder=Absent(ENGINE),
        video_encoder=Absent(ENGINE),
        backbone=Stated(_pinned("smollm2"), PINS),
        router=Absent(ENGINE),
        talker=Stated(_pinned("hibari"), PINS),
        speech_decoder=Stated("the talker's own spectrum and inverse transform", ENGINE),
        codec=Absent(f"{ENGINE}: PCM between talker and carrier"),
        image_head=Absent(ENGINE),
        video_head=Absent(ENGINE),
        input_rate=Stated(INPUT_RATE, ENGINE),
        output_rate=Stated(OUTPUT_RATE, ENGINE),
        interruptible=Stated(True, ENGINE),
        rewindable=Stated(True, f"{ENGINE}: the context is the core's, cut at what was heard"),
        context=Stated(POSITIONS, ENGINE),
        bounded=Stated(False, f"{ENGINE}: the oldest turns are left out"),
    )


def graph(descriptor: CapabilityDescriptor) -> ModelGraph:
    """Everything on one host: text between the models, and only the preamble's keys and values kept for later."""
    heard, words = Samples("input track"), Tokens("thinker")
    live = port(StateKind.SESSION, "B,S", heard)
    mel = port(StateKind.FEATURE, "B,F,d_a", Positions("audio"))
    text, kv = port(StateKind.TOKEN, "B,T", words), port(StateKind.KV, "B,T,d", words)
    pcm = port(StateKind.SESSION, "B,S", Samples("output track"))
    decision = port(StateKind.SESSION, "B")
    return ModelGraph(
        "embedded",
        (
            Node("input", NodeKind.SOURCE, outputs={"pcm": live, "text": text}),
            Node("speech_detector", NodeKind.ENCODER, {"pcm": live}, {"speech": decision}, (Batching.CHUNK_DEADLINE,)),
            Node("turn_detector", NodeKind.ENCODER, {"pcm": live}, {"turn_end": decision}, (Batching.ONE_BY_ONE,)),
            Node("whisper_encoder", NodeKind.ENCODER, {"pcm": live}, {"features": mel}, (Batching.ONE_BY_ONE,)),
            Node(
                "whisper_decoder", NodeKind.AUTOREGRESSIVE, {"features": mel}, {"text": text}, within="whisper_encoder"
            ),
            Node(
                "session",
                NodeKind.CONTROL,
                {"speech": decision, "turn_end": decision, "words": text, "written": text},
                {"context": text},
            ),
            Node(
                "thinker",
                NodeKind.AUTOREGRESSIVE,
                {"context": text, "past": kv},
                {"text": text, "kv": kv},
                (Batching.ONE_BY_ONE,),
            ),
            Node("talker", NodeKind.SYNTHESIS, {"clauses": text}, {"pcm": pcm}, (Batching.ONE_BY_ONE,)),
        ),
        (
            Edge("input.pcm", "speech_detector.pcm", Placement.SAME_DEVICE, LOSE),
            Edge("input.pcm", "turn_detector.pcm", Placement.SAME_DEVICE, REPLAY),
            Edge("input.pcm", "whisper_encoder.pcm", Placement.SAME_DEVICE, REPLAY),
            Edge("whisper_encoder.features", "whisper_decoder.features", Placement.SAME_DEVICE, recompute("input")),
            Edge("speech_detector.speech", "session.speech", Placement.SAME_DEVICE, LOSE),
            Edge("turn_detector.turn_end", "session.turn_end", Placement.SAME_DEVICE, LOSE),
            Edge("whisper_decoder.text", "session.words", Placement.SAME_DEVICE, recompute("input")),
            Edge("input.text", "session.written", Placement.SAME_DEVICE, REPLAY),
            Edge("session.context", "thinker.context", Placement.SAME_DEVICE, REPLAY),
            Edge("thinker.kv", "thinker.past", Placement.SAME_DEVICE, recompute("session"), loop=True),
            Edge("thinker.text", "talker.clauses", Placement.SAME_DEVICE, recompute("session")),
        ),
        (
            Delivery(Medium.TEXT, "thinker.text", Readiness.EACH_TOKEN),
            Delivery(Medium.AUDIO, "talker.pcm", Readiness.EACH_CLAUSE),
        ),
        descriptor.symbols,
        frozenset({"thinker.kv -> thinker.past"}),
    )


FAMILY = Family(
    name="embedded",
    about="the default: recognizer, small language model and voice, on a CPU",
    published={"embedded": _published()},
    recognises=recognises,
    describe=describe,
    graph=graph,
    served=True,
    sources=("models/assets.toml",),
)
