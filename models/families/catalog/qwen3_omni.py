"""Qwen3-Omni: a thinker, and where the checkpoint has one a talker whose codes a causal decoder plays.

Sources: Qwen3-Omni Technical Report (arXiv 2509.17765), its model cards, and the configuration classes of
`transformers`. Which parts a checkpoint has is said by `enable_audio_output`: thinker-only checkpoints may still carry
a `code2wav_config`. Thinking and Captioner have the same fields, so their files do not say which of the two they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from codec.identity import CodecIdentity

from ...checkpoint import Checkpoint, CheckpointError, Table
from ...descriptor import UNDETERMINED, Absent, CapabilityDescriptor, Fact, Stated, stated
from ...family import Family, bounded_by, input_rate_of, symbols_of, tokenizer_of
from ...graph.clocks import Frames, Positions, Tokens
from ...graph.graph import ModelGraph
from ...graph.parts import REPLAY, Batching, Delivery, Edge, Medium, Node, NodeKind, Readiness, port, recompute
from ...graph.shapes import Shape
from ...graph.states import Placement, StateKind
from .common import codec_identity, config_of, context, experts, model_type_of, part, transformer

REPORT = "Qwen3-Omni technical report"
CARD = "Qwen3-Omni model card"
OUTPUT_RATE = 24_000
"""Hz; the configuration does not hold it, the model card does."""

BOTH, THINKER = "thinker and talker", "thinker only"


def recognises(checkpoint: Checkpoint) -> bool:
    return model_type_of(checkpoint) == "qwen3_omni_moe"


def describe(checkpoint: Checkpoint) -> CapabilityDescriptor:
    """Raises CheckpointError where the configuration contradicts itself."""
    config = config_of(checkpoint)
    speaks = config.truth("enable_audio_output")
    thinker, vision = "thinker_config.text_config", "thinker_config.vision_config"
    eye = part(config, vision, depth="{} layers", out_hidden_size="width {}")
    descriptor = CapabilityDescriptor(
        family="qwen3-omni",
        variant=stated(None if speaks is None else _VARIANTS[speaks], config.where("enable_audio_output")),
        checkpoint=Stated(checkpoint.version, "its files"),
        tokenizer=tokenizer_of(checkpoint),
        audio_encoder=part(config, "thinker_config.audio_config", encoder_layers="{} layers", output_dim="width {}"),
        image_encoder=eye,
        video_encoder=eye,
        backbone=transformer(config, thinker),
        router=experts(config, thinker),
        image_head=Absent(REPORT),
        video_head=Absent(REPORT),
        input_rate=input_rate_of(checkpoint),
        context=context(config, f"{thinker}.max_position_embeddings"),
        bounded=bounded_by(context(config, f"{thinker}.max_position_embeddings")),
        symbols=symbols_of(d=config.integer(f"{thinker}.hidden_size"), V=config.integer(f"{thinker}.vocab_size")),
    )
    if speaks is None:
        return descriptor
    if not speaks:
        silent = Absent(f"{config.where('enable_audio_output')} is false")
        return replace(descriptor, talker=silent, speech_decoder=silent, codec=silent, output_rate=silent)
    return _with_talker(descriptor, config)


_VARIANTS = {True: BOTH, False: THINKER}


def _with_talker(descriptor: CapabilityDescriptor, config: Table) -> CapabilityDescriptor:
    talker, decoder = config.table("talker_config"), config.table("code2wav_config")
    if talker is None or decoder is None:
        lost = "talker_config" if talker is None else "code2wav_config"
        raise CheckpointError(
            config.where(lost), "is missing although enable_audio_output is true; the configuration is not whole"
        )
    made, played = talker.integer("num_code_groups"), decoder.integer("num_quantizers")
    if made is not None and played is not None and made != played:
        raise CheckpointError(
            talker.where("num_code_groups"),
            f"the talker makes {made} codes a frame and the decoder plays {played}; they do not belong together",
        )
    return replace(
        descriptor,
        talker=transformer(config, "talker_config.text_config"),
        speech_decoder=part(config, "code2wav_config", num_hidden_layers="{} layers", hidden_size="width {}"),
        codec=_codec(decoder),
        output_rate=Stated(OUTPUT_RATE, CARD),
        symbols={
            **descriptor.symbols,
            **symbols_of(
                d_t=talker.integer("text_config.hidden_size"),
                V_t=talker.integer("text_config.vocab_size"),
                Q=played,
                K=decoder.integer("codebook_size"),
                d_c=decoder.integer("hidden_size"),
            ),
        },
    )


def _codec(decoder: Table) -> Fact[CodecIdentity]:
    rates, ratios = decoder.integers("upsample_rates", least=1), decoder.integers("upsampling_ratios", least=1)
    codebooks, entries = decoder.integer("num_quantizers"), decoder.integer("codebook_size")
    if rates is None or ratios is None or codebooks is None or entries is None:
        return UNDETERMINED
    # The configuration has no version, so that of the codec is what its configuration says.
    place = decoder.where("").rstrip(".")
    hop = math.prod(rates) * math.prod(ratios)
    identity = codec_identity(place, "code2wav", decoder.digest(), OUTPUT_RATE, hop, codebooks, entries, ())
    return Stated(identity, f"{place}; rate: {CARD}")


def tensors(checkpoint: Checkpoint, descriptor: CapabilityDescriptor) -> Mapping[str, Shape]:
    """Embeddings, heads and codebooks, named as `transformers` saves them."""
    expected = {"thinker.model.embed_tokens.weight": "V,d"}
    if descriptor.speaks:
        expected |= {
            "talker.model.codec_embedding.weight": "V_t,d_t",
            "talker.codec_head.weight": "V_t,d_t",
            "code2wav.code_embedding.weight": "K*Q,d_c",
        }
    return {name: Shape.parse(shape) for name, shape in expected.items()}


def graph(descriptor: CapabilityDescriptor) -> ModelGraph:
    """Three caches that never mix: the thinker's keys and values, the talker's, and the codec decoder's context."""
    thinks, talks, frames = Tokens("thinker"), Frames("talker"), Frames("code2wav")
    pcm, pictures = port(StateKind.SESSION, "B,S"), port(StateKind.SESSION, "B,N,H,W")
    audio = port(StateKind.FEATURE, "B,F,d", Positions("audio"))
    video = port(StateKind.FEATURE, "B,N*P,d", Positions("pictures"))
    text = port(StateKind.TOKEN, "B,T", thinks, "V")
    hidden = port(StateKind.FEATURE, "B,T,d", thinks)
    kv, talker_kv = port(StateKind.KV, "B,T,d", thinks), port(StateKind.KV, "B,F,d_t", talks)
    codes = port(StateKind.CODE, "B,F,Q", frames, "K")
    played = port(StateKind.SESSION, "B,F,Q", frames)
    whole = ModelGraph(
        "qwen3-omni",
        (
            Node("input", NodeKind.SOURCE, outputs={"audio": pcm, "pictures": pictures, "text": text}),
            Node("audio_encoder", NodeKind.ENCODER, {"audio": pcm}, {"features": audio}, (Batching.MEDIA_LENGTH,)),
            Node("vision_encoder", NodeKind.ENCODER, {"in": pictures}, {"features": video}, (Batching.MEDIA_LENGTH,)),
            Node(
                "thinker",
                NodeKind.AUTOREGRESSIVE,
                {"text": text, "audio": audio, "video": video, "past": kv},
                {"text": text, "hidden": hidden, "kv": kv},
                (Batching.SEQUENCES,),
            ),
            Node(
                "talker",
                NodeKind.AUTOREGRESSIVE,
                {"text": text, "hidden": hidden, "past": talker_kv, "said": codes},
                {"codes": codes, "kv": talker_kv},
                (Batching.SEQUENCES,),
            ),
            Node(
                "code2wav",
                NodeKind.CODEC_DECODER,
                {"codes": codes, "played": played},
                {"pcm": pcm, "played": played},
                (Batching.CHUNK_DEADLINE,),
            ),
        ),
        (
            Edge("input.text", "thinker.text", Placement.SAME_HOST, REPLAY),
            Edge("input.audio", "audio_encoder.audio", Placement.SAME_HOST, REPLAY),
            Edge("input.pictures", "vision_encoder.in", Placement.SAME_HOST, REPLAY),
            Edge("audio_encoder.features", "thinker.audio", Placement.SAME_DEVICE, recompute("audio_encoder")),
            Edge("vision_encoder.features", "thinker.video", Placement.SAME_DEVICE, recompute("vision_encoder")),
            Edge("thinker.kv", "thinker.past", Placement.SAME_DEVICE, recompute("input"), loop=True),
            Edge("thinker.text", "talker.text", Placement.SAME_HOST, REPLAY),
            Edge("thinker.hidden", "talker.hidden", Placement.SAME_HOST, recompute("thinker")),
            Edge("talker.kv", "talker.past", Placement.SAME_DEVICE, recompute("thinker"), loop=True),
            Edge("talker.codes", "talker.said", Placement.SAME_DEVICE, REPLAY, loop=True),
            Edge("talker.codes", "code2wav.codes", Placement.SAME_HOST, REPLAY),
            Edge("code2wav.played", "code2wav.played", Placement.SAME_DEVICE, REPLAY, loop=True),
        ),
        (
            Delivery(Medium.TEXT, "thinker.text", Readiness.EACH_TOKEN),
            Delivery(Medium.AUDIO, "code2wav.pcm", Readiness.EACH_FRAME),
        ),
        descriptor.symbols,
        frozenset({"audio_encoder.features -> thinker.audio", "vision_encoder.features -> thinker.video"}),
    )
    gone = ["talker", "code2wav"] if isinstance(descriptor.talker, Absent) else []
    return whole.without([*gone, "vision_encoder"] if isinstance(descriptor.image_encoder, Absent) else gone)


_COMMON = CapabilityDescriptor(
    family="qwen3-omni",
    audio_encoder=Stated("AuT encoder", REPORT),
    image_encoder=Stated("vision encoder", REPORT),
    video_encoder=Stated("vision encoder", REPORT),
    backbone=Stated("Thinker, mixture of experts", REPORT),
    router=Stated("mixture of experts", REPORT),
    image_head=Absent(REPORT),
    video_head=Absent(REPORT),
)
_SILENT = replace(
    _COMMON, talker=Absent(CARD), speech_decoder=Absent(CARD), codec=Absent(CARD), output_rate=Absent(CARD)
)

FAMILY = Family(
    name="qwen3-omni",
    about="thinker and talker; multi-codebook speech from the first frame",
    published={
        "qwen3-omni-instruct": replace(
            _COMMON,
            variant=Stated("Instruct", CARD),
            talker=Stated("Talker, mixture of experts, multi-codebook", REPORT),
            speech_decoder=Stated("causal ConvNet over codes", REPORT),
            output_rate=Stated(OUTPUT_RATE, CARD),
        ),
        "qwen3-omni-thinking": replace(_SILENT, variant=Stated("Thinking", CARD)),
        "qwen3-omni-captioner": replace(
            _SILENT,
            variant=Stated("Captioner", CARD),
            image_encoder=Absent(f"{CARD}: audio in, text out"),
            video_encoder=Absent(f"{CARD}: audio in, text out"),
        ),
    },
    recognises=recognises,
    describe=describe,
    graph=graph,
    tensors=tensors,
    served=True,
    sources=("Qwen3-Omni Technical Report, arXiv 2509.17765", "Qwen3-Omni model cards", "transformers: qwen3_omni_moe"),
)
