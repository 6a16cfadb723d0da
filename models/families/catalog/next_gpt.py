"""NExT-GPT: a language model in the middle, encoders with adapters before it, a diffusion decoder per modality after.

Sources: NExT-GPT (arXiv 2309.05519) and its repository, whose configuration names the decoders. Text can be ready long
before an image: output streams are apart, and none waits for another.
"""

from __future__ import annotations

from ...checkpoint import Checkpoint
from ...descriptor import Absent, CapabilityDescriptor, Stated
from ...family import Family, bounded_by, symbols_of, tokenizer_of
from ...graph.clocks import Positions, Steps, Tokens
from ...graph.graph import ModelGraph
from ...graph.parts import REPLAY, Batching, Delivery, Edge, Medium, Node, NodeKind, Readiness, port, recompute
from ...graph.states import Placement, StateKind
from .common import config_of, context, named, transformer

PAPER = "NExT-GPT paper"
_MEDIA = {"image": Medium.IMAGE, "video": Medium.VIDEO, "audio": Medium.AUDIO}


def recognises(checkpoint: Checkpoint) -> bool:
    table = checkpoint.table()
    if table is None:
        return False
    return any(table.at(f"mm_output_{name}_projector_type") is not None for name in ("img", "vid", "aud"))


def describe(checkpoint: Checkpoint) -> CapabilityDescriptor:
    config = config_of(checkpoint)
    tower = named(config, "multimodal_tower" if config.at("multimodal_tower") is not None else "multimodal_input_tower")
    return CapabilityDescriptor(
        family="next-gpt",
        variant=Stated("NExT-GPT", PAPER),
        checkpoint=Stated(checkpoint.version, "its files"),
        tokenizer=tokenizer_of(checkpoint),
        audio_encoder=tower,
        image_encoder=tower,
        video_encoder=tower,
        backbone=transformer(config, ""),
        router=Absent(PAPER),
        talker=Absent(f"{PAPER}: sound comes from a diffusion decoder, there is no talker"),
        speech_decoder=named(config, "audio_decoder"),
        codec=Absent(PAPER),
        image_head=named(config, "image_decoder"),
        video_head=named(config, "video_decoder"),
        context=context(config),
        bounded=bounded_by(context(config)),
        symbols=symbols_of(d=config.integer("hidden_size"), V=config.integer("vocab_size")),
    )


def graph(descriptor: CapabilityDescriptor) -> ModelGraph:
    """Four kinds of edge: features in, tokens and keys and values inside, conditions out, latents in the decoders."""
    tokens = Tokens("llm")
    media = port(StateKind.SESSION, "B,S")
    features = port(StateKind.FEATURE, "B,P,d_m", Positions("media"))
    aligned = port(StateKind.FEATURE, "B,P,d", Positions("media"))
    text, kv = port(StateKind.TOKEN, "B,T", tokens, "V"), port(StateKind.KV, "B,T,d", tokens)
    signal = port(StateKind.FEATURE, "B,T,d", tokens)
    nodes = [
        Node("input", NodeKind.SOURCE, outputs={"media": media, "text": text}),
        Node("encoder", NodeKind.ENCODER, {"media": media}, {"features": features}, (Batching.MEDIA_LENGTH,)),
        Node("input_adapter", NodeKind.PROJECTOR, {"features": features}, {"aligned": aligned}, within="encoder"),
        Node(
            "llm",
            NodeKind.AUTOREGRESSIVE,
            {"media": aligned, "text": text, "past": kv},
            {"text": text, "signal": signal, "kv": kv},
            (Batching.SEQUENCES,),
        ),
    ]
    edges = [
        Edge("input.text", "llm.text", Placement.SAME_HOST, REPLAY),
        Edge("input.media", "encoder.media", Placement.SAME_HOST, REPLAY),
        Edge("encoder.features", "input_adapter.features", Placement.SAME_DEVICE, recompute("encoder")),
        Edge("input_adapter.aligned", "llm.media", Placement.SAME_DEVICE, recompute("encoder")),
        Edge("llm.kv", "llm.past", Placement.SAME_DEVICE, recompute("input"), loop=True),
    ]
    deliveries = [Delivery(Medium.TEXT, "llm.text", Readiness.EACH_TOKEN)]
    for name, medium in _MEDIA.items():
        steps = Steps(name)
        latent = port(StateKind.LATENT, "B,C,H,W", steps)
        condition = port(StateKind.FEATURE, "B,T,d_c")
        nodes += [
            Node(f"{name}_adapter", NodeKind.PROJECTOR, {"signal": signal}, {"condition": condition}, within="llm"),
            Node(
                f"{name}_diffusion",
                NodeKind.DIFFUSION,
                {"condition": condition, "latent": latent},
                {"latent": latent},
                (Batching.LATENT_STEP,),
            ),
            Node(f"{name}_decoder", NodeKind.DECODER, {"latent": latent}, {"out": media}, (Batching.LATENT_STEP,)),
        ]
        edges += [
            Edge("llm.signal", f"{name}_adapter.signal", Placement.SAME_DEVICE, recompute("llm")),
            Edge(f"{name}_adapter.condition", f"{name}_diffusion.condition", Placement.SAME_HOST, recompute("llm")),
            Edge(
                f"{name}_diffusion.latent",
                f"{name}_diffusion.latent",
                Placement.SAME_DEVICE,
                recompute(f"{name}_diffusion"),
                loop=True,
            ),
            Edge(
                f"{name}_diffusion.latent",
                f"{name}_decoder.latent",
                Placement.SAME_DEVICE,
                recompute(f"{name}_diffusion"),
            ),
        ]
        deliveries.append(Delivery(medium, f"{name}_decoder.out", Readiness.WHOLE))
    return ModelGraph(
        "next-gpt",
        tuple(nodes),
        tuple(edges),
        tuple(deliveries),
        descriptor.symbols,
        frozenset({"input_adapter.aligned -> llm.media"}),
    )


FAMILY = Family(
    name="next-gpt",
    about="language model as a hub; adapters to encoders and to diffusion decoders",
    published={
        "next-gpt": CapabilityDescriptor(
            family="next-gpt",
            variant=Stated("NExT-GPT", PAPER),
            audio_encoder=Stated("multimodal encoder and adapter", PAPER),
            image_encoder=Stated("multimodal encoder and adapter", PAPER),
            video_encoder=Stated("multimodal encoder and adapter", PAPER),
            backbone=Stated("language model", PAPER),
            router=Absent(PAPER),
            talker=Absent(f"{PAPER}: sound comes from a diffusion decoder, there is no talker"),
            speech_decoder=Stated("audio diffusion decoder", PAPER),
            codec=Absent(PAPER),
            image_head=Stated("image diffusion decoder", PAPER),
            video_head=Stated("video diffusion decoder", PAPER),
        )
    },
    recognises=recognises,
    describe=describe,
    graph=graph,
    sources=("NExT-GPT, arXiv 2309.05519", "NExT-GPT repository"),
)
