"""Ming-Omni (2025): dedicated encoders, Ling MoE with routers per modality, a talker over discrete speech tokens.

Sources: Ming-Omni (arXiv 2506.09344) and its repository. Not to be mixed with Ming-flash-omni 2.0, which has a file of
its own here: another backbone, other routers, and a continuous speech head.
"""

from __future__ import annotations

from ...checkpoint import Checkpoint
from ...descriptor import Absent, CapabilityDescriptor, Stated, stated
from ...family import Family, bounded_by, input_rate_of, symbols_of, tokenizer_of
from ...graph.clocks import Frames, Positions, Steps, Tokens
from ...graph.graph import ModelGraph
from ...graph.parts import REPLAY, Batching, Delivery, Edge, Medium, Node, NodeKind, Readiness, port, recompute
from ...graph.states import Placement, StateKind
from .common import config_of, context, experts, model_type_of, part, told, transformer

PAPER = "Ming-Omni paper"


def recognises(checkpoint: Checkpoint) -> bool:
    table = checkpoint.table()
    return model_type_of(checkpoint) == "bailingmm" and table is not None and table.at("llm_config") is not None


def describe(checkpoint: Checkpoint) -> CapabilityDescriptor:
    config = config_of(checkpoint)
    eye = part(config, "vision_config", depth="{} layers", hidden_size="width {}", patch_size="patches of {}")
    ear = "whisper_config.whisper_encoder_config"
    routing = experts(config, "llm_config")
    if config.truth("llm_config.multi_gate") and isinstance(routing, Stated):
        routing = Stated(f"{routing.value}, a router per modality", config.where("llm_config.multi_gate"))
    talker = config.table("talker_config")
    entries = talker.integer("audio_vocab_size", least=0) if talker else None
    return CapabilityDescriptor(
        family="ming-omni",
        variant=Stated("Ming-Omni", f"{config.where('model_type')}"),
        checkpoint=Stated(checkpoint.version, "its files"),
        tokenizer=tokenizer_of(checkpoint),
        audio_encoder=part(config, ear, n_layer="{} layers", n_state="width {}"),
        image_encoder=eye,
        video_encoder=eye,
        backbone=transformer(config, "llm_config"),
        router=routing,
        talker=stated(f"{entries} speech tokens" if entries else None, config.where("talker_config.audio_vocab_size")),
        # Neither the codec behind the speech tokens nor the rate of the sound stands in these files.
        image_head=stated(
            told(checkpoint.table("transformer/config.json"), num_layers="{} layers", in_channels="{} channels"),
            "transformer/config.json",
        ),
        video_head=Absent(PAPER),
        input_rate=input_rate_of(checkpoint),
        context=context(config, "llm_config.max_position_embeddings"),
        bounded=bounded_by(context(config, "llm_config.max_position_embeddings")),
        symbols=symbols_of(
            d=config.integer("llm_config.hidden_size"),
            V=config.integer("llm_config.vocab_size"),
            K=entries or None,
        ),
    )


def graph(descriptor: CapabilityDescriptor) -> ModelGraph:
    """Two ways out of one mixture of experts: speech by tokens and a codec, images by diffusion."""
    tokens, frames, steps = Tokens("ling"), Frames("speech tokens"), Steps("image")
    media = port(StateKind.SESSION, "B,S")
    heard = port(StateKind.FEATURE, "B,F,d", Positions("audio"))
    seen = port(StateKind.FEATURE, "B,N*P,d", Positions("pictures"))
    text, kv = port(StateKind.TOKEN, "B,T", tokens, "V"), port(StateKind.KV, "B,T,d", tokens)
    hidden = port(StateKind.FEATURE, "B,T,d", tokens)
    codes = port(StateKind.CODE, "B,F,Q", frames, "K")
    latent = port(StateKind.LATENT, "B,C,H,W", steps)
    return ModelGraph(
        "ming-omni",
        (
            Node("input", NodeKind.SOURCE, outputs={"audio": media, "pictures": media, "text": text}),
            Node("audio_encoder", NodeKind.ENCODER, {"audio": media}, {"features": heard}, (Batching.MEDIA_LENGTH,)),
            Node("vision_encoder", NodeKind.ENCODER, {"in": media}, {"features": seen}, (Batching.MEDIA_LENGTH,)),
            Node(
                "ling",
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
                "speech_decoder", NodeKind.CODEC_DECODER, {"codes": codes}, {"pcm": media}, (Batching.CHUNK_DEADLINE,)
            ),
            Node(
                "image_diffusion",
                NodeKind.DIFFUSION,
                {"condition": hidden, "latent": latent},
                {"latent": latent},
                (Batching.LATENT_STEP,),
            ),
            Node("vae", NodeKind.DECODER, {"latent": latent}, {"image": media}, (Batching.LATENT_STEP,)),
        ),
        (
            Edge("input.text", "ling.text", Placement.SAME_HOST, REPLAY),
            Edge("input.audio", "audio_encoder.audio", Placement.SAME_HOST, REPLAY),
            Edge("input.pictures", "vision_encoder.in", Placement.SAME_HOST, REPLAY),
            Edge("audio_encoder.features", "ling.audio", Placement.SAME_DEVICE, recompute("audio_encoder")),
            Edge("vision_encoder.features", "ling.video", Placement.SAME_DEVICE, recompute("vision_encoder")),
            Edge("ling.kv", "ling.past", Placement.SAME_DEVICE, recompute("input"), loop=True),
            Edge("ling.text", "talker.text", Placement.SAME_HOST, REPLAY),
            Edge("ling.hidden", "talker.hidden", Placement.SAME_HOST, recompute("ling")),
            Edge("talker.codes", "talker.said", Placement.SAME_DEVICE, REPLAY, loop=True),
            Edge("talker.codes", "speech_decoder.codes", Placement.SAME_HOST, REPLAY),
            Edge("ling.hidden", "image_diffusion.condition", Placement.SAME_HOST, recompute("ling")),
            Edge(
                "image_diffusion.latent",
                "image_diffusion.latent",
                Placement.SAME_DEVICE,
                recompute("image_diffusion"),
                loop=True,
            ),
            Edge("image_diffusion.latent", "vae.latent", Placement.SAME_DEVICE, recompute("image_diffusion")),
        ),
        (
            Delivery(Medium.TEXT, "ling.text", Readiness.EACH_TOKEN),
            Delivery(Medium.AUDIO, "speech_decoder.pcm", Readiness.UNDETERMINED),
            Delivery(Medium.IMAGE, "vae.image", Readiness.WHOLE),
        ),
        descriptor.symbols,
        frozenset({"audio_encoder.features -> ling.audio", "vision_encoder.features -> ling.video"}),
    )


_PUBLISHED = CapabilityDescriptor(
    family="ming-omni",
    variant=Stated("Ming-Omni", PAPER),
    audio_encoder=Stated("Whisper encoder", PAPER),
    image_encoder=Stated("vision encoder", PAPER),
    video_encoder=Stated("vision encoder", PAPER),
    backbone=Stated("Ling, mixture of experts", PAPER),
    router=Stated("a router per modality", PAPER),
    talker=Stated("autoregressive audio decoder over discrete tokens", PAPER),
    speech_decoder=Stated("audio decoder", PAPER),
    image_head=Stated("diffusion on the model's conditions", PAPER),
    video_head=Absent(PAPER),
)

FAMILY = Family(
    name="ming-omni",
    about="dedicated encoders, mixture of experts with routers per modality",
    published={"ming-omni": _PUBLISHED},
    recognises=recognises,
    describe=describe,
    graph=graph,
    sources=("Ming-Omni, arXiv 2506.09344", "Ming repository"),
)
