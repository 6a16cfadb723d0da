"""MiniCPM-o: online encoders and a speech decoder joined to the language model by hidden states, on one time axis.

Sources: the MiniCPM-o model cards and repository, and its configuration. Streams in and out are cut into small groups
in the order of their time (time-division multiplexing). That it streams does not say that it can be interrupted
anywhere without loss: nobody states that, so it stays undetermined.
"""

from __future__ import annotations

from dataclasses import replace

from ...checkpoint import Checkpoint, Table
from ...descriptor import Absent, CapabilityDescriptor, Fact, Stated, stated
from ...family import Family, bounded_by, input_rate_of, symbols_of, tokenizer_of
from ...graph.clocks import Chunks, Frames, Positions, Tokens
from ...graph.graph import ModelGraph
from ...graph.parts import LOSE, REPLAY, Batching, Delivery, Edge, Medium, Node, NodeKind, Readiness, port, recompute
from ...graph.shapes import Shape
from ...graph.states import Placement, StateKind
from .common import config_of, context, model_type_of, part, transformer

CARD = "MiniCPM-o model card"


def recognises(checkpoint: Checkpoint) -> bool:
    return model_type_of(checkpoint) == "minicpmo"


def describe(checkpoint: Checkpoint) -> CapabilityDescriptor:
    config = config_of(checkpoint)
    version = config.at("version")
    eye = _part(config, "init_vision", "vision_config", num_hidden_layers="{} layers", hidden_size="width {}")
    descriptor = CapabilityDescriptor(
        family="minicpm-o",
        variant=stated(f"MiniCPM-o {version}" if isinstance(version, str | float) else None, config.where("version")),
        checkpoint=Stated(checkpoint.version, "its files"),
        tokenizer=tokenizer_of(checkpoint),
        audio_encoder=_part(config, "init_audio", "audio_config", encoder_layers="{} layers", d_model="width {}"),
        image_encoder=eye,
        video_encoder=eye,
        backbone=transformer(config, ""),
        router=Absent(CARD),
        talker=_part(config, "init_tts", "tts_config", num_hidden_layers="{} layers", hidden_size="width {}"),
        image_head=Absent(CARD),
        video_head=Absent(CARD),
        input_rate=input_rate_of(checkpoint),
        context=context(config),
        bounded=bounded_by(context(config)),
        symbols=symbols_of(
            d=config.integer("hidden_size"),
            V=config.integer("vocab_size"),
            Q=config.integer("tts_config.num_vq"),
            K=config.integer("tts_config.num_audio_tokens"),
            d_t=config.integer("tts_config.hidden_size"),
        ),
    )
    if isinstance(descriptor.talker, Absent):
        return replace(
            descriptor, speech_decoder=descriptor.talker, codec=descriptor.talker, output_rate=descriptor.talker
        )
    # The configuration names the speech tokenizer, but neither its frame rate nor the rate of the sound.
    tokenizer = config.text("tts_config.audio_tokenizer_type")
    return replace(
        descriptor,
        speech_decoder=stated(
            f"decoder of {tokenizer} tokens" if tokenizer else None, config.where("tts_config.audio_tokenizer_type")
        ),
    )


def _part(config: Table, switch: str, path: str, **texts: str) -> Fact[str]:
    """A part that `switch` turns off. Raises CheckpointError."""
    if config.truth(switch) is False:
        return Absent(f"{config.where(switch)} is false")
    return part(config, path, **texts)


def tensors(checkpoint: Checkpoint, descriptor: CapabilityDescriptor) -> dict[str, Shape]:
    """The language model's embeddings, under its prefix in the whole."""
    return {"llm.model.embed_tokens.weight": Shape.parse("V,d")}


def graph(descriptor: CapabilityDescriptor) -> ModelGraph:
    """Input and output meet in chunks on a millisecond axis; what was heard and said so far is the session's state."""
    axis, tokens, frames = Chunks("time axis"), Tokens("llm"), Frames("speech tokens")
    live = port(StateKind.SESSION, "B,S", axis)
    heard = port(StateKind.FEATURE, "B,F,d", Positions("audio"))
    seen = port(StateKind.FEATURE, "B,N*P,d", Positions("video"))
    text, kv = port(StateKind.TOKEN, "B,T", tokens, "V"), port(StateKind.KV, "B,T,d", tokens)
    hidden = port(StateKind.FEATURE, "B,T,d", tokens)
    codes = port(StateKind.CODE, "B,F,Q", frames, "K")
    past = port(StateKind.SESSION, "B,F", frames)
    whole = ModelGraph(
        "minicpm-o",
        (
            Node("live_input", NodeKind.SOURCE, outputs={"audio": live, "video": live, "text": text}),
            Node("audio_encoder", NodeKind.ENCODER, {"audio": live}, {"features": heard}, (Batching.CHUNK_DEADLINE,)),
            Node("vision_encoder", NodeKind.ENCODER, {"video": live}, {"features": seen}, (Batching.CHUNK_DEADLINE,)),
            Node(
                "llm",
                NodeKind.AUTOREGRESSIVE,
                {"text": text, "audio": heard, "video": seen, "past": kv},
                {"text": text, "hidden": hidden, "kv": kv},
                (Batching.SEQUENCES,),
            ),
            Node(
                "talker",
                NodeKind.AUTOREGRESSIVE,
                {"text": text, "hidden": hidden, "said": codes},
                {"codes": codes},
                (Batching.SEQUENCES,),
            ),
            Node(
                "token2wav",
                NodeKind.CODEC_DECODER,
                {"codes": codes, "past": past},
                {"pcm": live, "past": past},
                (Batching.CHUNK_DEADLINE,),
            ),
        ),
        (
            Edge("live_input.text", "llm.text", Placement.SAME_HOST, REPLAY),
            Edge("live_input.audio", "audio_encoder.audio", Placement.SAME_HOST, REPLAY),
            # A picture that came too late is of no use to a live conversation.
            Edge("live_input.video", "vision_encoder.video", Placement.SAME_HOST, LOSE),
            Edge("audio_encoder.features", "llm.audio", Placement.SAME_DEVICE, recompute("audio_encoder")),
            Edge("vision_encoder.features", "llm.video", Placement.SAME_DEVICE, recompute("vision_encoder")),
            Edge("llm.kv", "llm.past", Placement.SAME_DEVICE, recompute("live_input"), loop=True),
            Edge("llm.text", "talker.text", Placement.SAME_HOST, REPLAY),
            Edge("llm.hidden", "talker.hidden", Placement.SAME_HOST, recompute("llm")),
            Edge("talker.codes", "talker.said", Placement.SAME_DEVICE, REPLAY, loop=True),
            Edge("talker.codes", "token2wav.codes", Placement.SAME_HOST, REPLAY),
            Edge("token2wav.past", "token2wav.past", Placement.SAME_DEVICE, REPLAY, loop=True),
        ),
        (
            Delivery(Medium.TEXT, "llm.text", Readiness.EACH_TOKEN),
            Delivery(Medium.AUDIO, "token2wav.pcm", Readiness.EACH_CHUNK),
        ),
        descriptor.symbols,
    )
    gone = ["talker", "token2wav"] if isinstance(descriptor.talker, Absent) else []
    gone += ["vision_encoder"] if isinstance(descriptor.image_encoder, Absent) else []
    gone += ["audio_encoder"] if isinstance(descriptor.audio_encoder, Absent) else []
    return whole.without(gone)


FAMILY = Family(
    name="minicpm-o",
    about="live audio and video in, interleaved text and speech tokens out",
    published={
        "minicpm-o-4.5": CapabilityDescriptor(
            family="minicpm-o",
            variant=Stated("MiniCPM-o 4.5", CARD),
            audio_encoder=Stated("Whisper encoder, made online", CARD),
            image_encoder=Stated("SigLIP encoder", CARD),
            video_encoder=Stated("SigLIP encoder", CARD),
            backbone=Stated("Qwen3 language model", CARD),
            router=Absent(CARD),
            talker=Stated("speech token decoder on hidden states", CARD),
            speech_decoder=Stated("decoder of speech tokens", CARD),
            image_head=Absent(CARD),
            video_head=Absent(CARD),
        )
    },
    recognises=recognises,
    describe=describe,
    graph=graph,
    tensors=tensors,
    sources=("MiniCPM-o 4.5 model card", "MiniCPM-o repository"),
)
