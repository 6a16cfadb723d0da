"""The embedded cascade: detector, recognizer, thinker and talker, each a model of its own, on a CPU.

Its parts are pinned files (`models/assets.toml`), so their fingerprints are what binds them together.
"""

from __future__ import annotations

import re

from codec.identity import CodecIdentity
from codec.rvq.shipped import identity_of

from ...assets import catalogue
from ...checkpoint import Checkpoint, CheckpointError
from ...descriptor import UNDETERMINED, Absent, CapabilityDescriptor, Fact, Stated
from ...family import Family, symbols_of
from ...graph.clocks import Frames, Positions, Samples, Tokens
from ...graph.graph import ModelGraph
from ...graph.parts import LOSE, REPLAY, Batching, Delivery, Edge, Medium, Node, NodeKind, Readiness, port, recompute
from ...graph.states import Placement, StateKind

PINS = "models/assets.toml"
ENGINE = "models/families/embedded"
WEIGHTS = "codec/rvq/weights"
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


def _codec() -> Fact[CodecIdentity]:
    identity = identity_of()
    return Stated(identity, WEIGHTS) if identity else UNDETERMINED


def _published() -> CapabilityDescriptor:
    codec = _codec()
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
        speech_decoder=Stated("RVQ codec, frame by frame; for other voices and without torch the talker's PCM", ENGINE),
        codec=codec,
        image_head=Absent(ENGINE),
        video_head=Absent(ENGINE),
        input_rate=Stated(INPUT_RATE, ENGINE),
        output_rate=Stated(OUTPUT_RATE, ENGINE),
        interruptible=Stated(True, ENGINE),
        rewindable=Stated(True, f"{ENGINE}: the context is the core's, cut at what was heard"),
        context=Stated(POSITIONS, ENGINE),
        bounded=Stated(False, f"{ENGINE}: the oldest turns are left out"),
        symbols=symbols_of(
            Q=codec.value.codebooks if isinstance(codec, Stated) else None,
            K=codec.value.codebook_size if isinstance(codec, Stated) else None,
        ),
    )


def graph(descriptor: CapabilityDescriptor) -> ModelGraph:
    """Everything on one host: text between the models, codes from the voice to what sounds, and only the preamble's
    keys and values kept for later."""
    heard, words = Samples("input track"), Tokens("thinker")
    live = port(StateKind.SESSION, "B,S", heard)
    mel = port(StateKind.FEATURE, "B,F,d_a", Positions("audio"))
    text, kv = port(StateKind.TOKEN, "B,T", words), port(StateKind.KV, "B,T,d", words)
    pcm = port(StateKind.SESSION, "B,S", Samples("output track"))
    frames = Frames("rvq")
    codes, past = port(StateKind.CODE, "B,F,Q", frames, "K"), port(StateKind.SESSION, "B,F", frames)
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
            Node(
                "rvq_encoder",
                NodeKind.CODEC_ENCODER,
                {"pcm": pcm, "past": past},
                {"codes": codes, "past": past},
                (Batching.CHUNK_DEADLINE,),
            ),
            Node(
                "rvq_decoder",
                NodeKind.CODEC_DECODER,
                {"codes": codes, "past": past},
                {"pcm": pcm, "past": past},
                (Batching.CHUNK_DEADLINE,),
            ),
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
            Edge("talker.pcm", "rvq_encoder.pcm", Placement.SAME_DEVICE, recompute("talker")),
            Edge("rvq_encoder.past", "rvq_encoder.past", Placement.SAME_DEVICE, recompute("talker"), loop=True),
            Edge("rvq_encoder.codes", "rvq_decoder.codes", Placement.SAME_DEVICE, recompute("talker")),
            Edge("rvq_decoder.past", "rvq_decoder.past", Placement.SAME_DEVICE, recompute("talker"), loop=True),
        ),
        (
            Delivery(Medium.TEXT, "thinker.text", Readiness.EACH_TOKEN),
            Delivery(Medium.AUDIO, "rvq_decoder.pcm", Readiness.EACH_CHUNK),
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
