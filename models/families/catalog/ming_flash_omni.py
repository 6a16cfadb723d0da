"""Ming-flash-omni 2.0 (2026): another mixture of experts, and speech as continuous latents from a DiT head.

Sources: the Ming repository and the configuration of its checkpoint, whose talker and image head lie in folders of
their own (`talker/`, `transformer/`, `vae/`). Its main configuration says nothing about speech.
"""

from __future__ import annotations

from ...checkpoint import Checkpoint
from ...descriptor import UNDETERMINED, Absent, CapabilityDescriptor, Fact, Stated, stated
from ...family import Family, bounded_by, input_rate_of, symbols_of, tokenizer_of
from ...graph.clocks import Positions, Steps, Tokens
from ...graph.graph import ModelGraph
from ...graph.parts import REPLAY, Batching, Delivery, Edge, Medium, Node, NodeKind, Readiness, port, recompute
from ...graph.states import Placement, StateKind
from .common import config_of, context, experts, model_type_of, part, told, transformer

REPOSITORY = "Ming repository"
_TALKER = "talker/config.json"


def recognises(checkpoint: Checkpoint) -> bool:
    return model_type_of(checkpoint) == "bailingmm_moe_v2_lite"


def describe(checkpoint: Checkpoint) -> CapabilityDescriptor:
    config = config_of(checkpoint)
    eye = part(config, "vision_config", depth="{} layers", hidden_size="width {}", patch_size="patches of {}")
    routing = experts(config, "llm_config")
    router = config.text("llm_config.router_type")
    if router is not None and isinstance(routing, Stated):
        routing = Stated(f"{routing.value}, {router}", config.where("llm_config.router_type"))
    talker = checkpoint.table(_TALKER)
    return CapabilityDescriptor(
        family="ming-flash-omni",
        variant=_variant(checkpoint),
        checkpoint=Stated(checkpoint.version, "its files"),
        tokenizer=tokenizer_of(checkpoint),
        audio_encoder=part(config, "audio_config.whisper_encoder_config", n_layer="{} layers", n_state="width {}"),
        image_encoder=eye,
        video_encoder=eye,
        backbone=transformer(config, "llm_config"),
        router=routing,
        talker=_talker(checkpoint),
        speech_decoder=stated(
            f"audio VAE, latents of {width}" if talker and (width := talker.integer("latent_dim")) else None,
            f"{_TALKER}: latent_dim",
        ),
        codec=Absent(f"{_TALKER}: its head makes continuous latents, no codes")
        if _is_flow(checkpoint)
        else UNDETERMINED,
        image_head=stated(
            told(checkpoint.table("transformer/config.json"), num_layers="{} layers", in_channels="{} channels"),
            "transformer/config.json",
        ),
        video_head=Absent(REPOSITORY),
        input_rate=input_rate_of(checkpoint),
        context=context(config, "llm_config.max_position_embeddings"),
        bounded=bounded_by(context(config, "llm_config.max_position_embeddings")),
        symbols=symbols_of(
            d=config.integer("llm_config.hidden_size"),
            V=config.integer("llm_config.vocab_size"),
            Z=talker.integer("latent_dim") if talker else None,
        ),
    )


def _is_flow(checkpoint: Checkpoint) -> bool:
    talker = checkpoint.table(_TALKER)
    return talker is not None and talker.table("flowmodel") is not None


def _variant(checkpoint: Checkpoint) -> Fact[str]:
    """The earlier preview has the same main configuration; what tells them apart is the talker's head."""
    return Stated("Ming-flash-omni 2.0", f"{_TALKER}: flowmodel") if _is_flow(checkpoint) else UNDETERMINED


def _talker(checkpoint: Checkpoint) -> Fact[str]:
    talker = checkpoint.table(_TALKER)
    if talker is None or not _is_flow(checkpoint):
        return UNDETERMINED
    sizes = told(talker, steps="{} steps", patch_size="patches of {}", latent_dim="latents of {}")
    return Stated("continuous autoregression with a DiT head" + (f", {sizes}" if sizes else ""), _TALKER)


def graph(descriptor: CapabilityDescriptor) -> ModelGraph:
    """Speech is a latent here: patch by patch an autoregressive model, and within each patch steps of a DiT."""
    tokens, patches, steps, pictures = Tokens("ling"), Tokens("talker"), Steps("speech patch"), Steps("image")
    media = port(StateKind.SESSION, "B,S")
    heard = port(StateKind.FEATURE, "B,F,d", Positions("audio"))
    seen = port(StateKind.FEATURE, "B,N*P,d", Positions("pictures"))
    text, kv = port(StateKind.TOKEN, "B,T", tokens, "V"), port(StateKind.KV, "B,T,d", tokens)
    hidden = port(StateKind.FEATURE, "B,T,d", tokens)
    condition, past = port(StateKind.FEATURE, "B,F,d_t", patches), port(StateKind.KV, "B,F,d_t", patches)
    sound = port(StateKind.LATENT, "B,F,Z", steps)
    image = port(StateKind.LATENT, "B,C,H,W", pictures)
    return ModelGraph(
        "ming-flash-omni",
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
                {"text": text, "said": sound, "past": past},
                {"condition": condition, "kv": past},
                (Batching.SEQUENCES,),
            ),
            Node(
                "dit_head",
                NodeKind.DIFFUSION,
                {"condition": condition, "latent": sound},
                {"latent": sound},
                (Batching.LATENT_STEP,),
            ),
            Node("audio_vae", NodeKind.CODEC_DECODER, {"latent": sound}, {"pcm": media}, (Batching.CHUNK_DEADLINE,)),
            Node(
                "image_diffusion",
                NodeKind.DIFFUSION,
                {"condition": hidden, "latent": image},
                {"latent": image},
                (Batching.LATENT_STEP,),
            ),
            Node("vae", NodeKind.DECODER, {"latent": image}, {"image": media}, (Batching.LATENT_STEP,)),
        ),
        (
            Edge("input.text", "ling.text", Placement.SAME_HOST, REPLAY),
            Edge("input.audio", "audio_encoder.audio", Placement.SAME_HOST, REPLAY),
            Edge("input.pictures", "vision_encoder.in", Placement.SAME_HOST, REPLAY),
            Edge("audio_encoder.features", "ling.audio", Placement.SAME_DEVICE, recompute("audio_encoder")),
            Edge("vision_encoder.features", "ling.video", Placement.SAME_DEVICE, recompute("vision_encoder")),
            Edge("ling.kv", "ling.past", Placement.SAME_DEVICE, recompute("input"), loop=True),
            Edge("ling.text", "talker.text", Placement.SAME_HOST, REPLAY),
            Edge("talker.kv", "talker.past", Placement.SAME_DEVICE, recompute("ling"), loop=True),
            Edge("talker.condition", "dit_head.condition", Placement.SAME_DEVICE, recompute("talker")),
            Edge("dit_head.latent", "dit_head.latent", Placement.SAME_DEVICE, recompute("dit_head"), loop=True),
            Edge("dit_head.latent", "talker.said", Placement.SAME_DEVICE, recompute("dit_head"), loop=True),
            Edge("dit_head.latent", "audio_vae.latent", Placement.SAME_DEVICE, recompute("dit_head")),
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
            Delivery(Medium.AUDIO, "audio_vae.pcm", Readiness.EACH_CHUNK),
            Delivery(Medium.IMAGE, "vae.image", Readiness.WHOLE),
        ),
        descriptor.symbols,
        frozenset({"audio_encoder.features -> ling.audio", "vision_encoder.features -> ling.video"}),
    )


FAMILY = Family(
    name="ming-flash-omni",
    about="mixture of experts; speech as continuous latents from a DiT head",
    published={
        "ming-flash-omni-2.0": CapabilityDescriptor(
            family="ming-flash-omni",
            variant=Stated("Ming-flash-omni 2.0", REPOSITORY),
            audio_encoder=Stated("Whisper encoder", REPOSITORY),
            image_encoder=Stated("vision encoder", REPOSITORY),
            video_encoder=Stated("vision encoder", REPOSITORY),
            backbone=Stated("Ling 2.0, mixture of experts", REPOSITORY),
            router=Stated("a router per modality", REPOSITORY),
            talker=Stated("continuous autoregression with a DiT head", REPOSITORY),
            speech_decoder=Stated("audio VAE", REPOSITORY),
            codec=Absent(f"{REPOSITORY}: continuous latents, no codes"),
            image_head=Stated("diffusion on the model's conditions", REPOSITORY),
            video_head=Absent(REPOSITORY),
        )
    },
    recognises=recognises,
    describe=describe,
    graph=graph,
    sources=("Ming repository, Ming-flash-omni 2.0",),
)
