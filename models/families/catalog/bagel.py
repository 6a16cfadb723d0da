"""BAGEL: interleaved text and images in, and either understanding text or a generated or edited image out.

Sources: BAGEL (arXiv 2505.14683) and its repository. Latent shape, VAE and number of steps come from the checkpoint's
own files, or stay undetermined: common ones of other models would be a wrong contract.
"""

from __future__ import annotations

from ...checkpoint import Checkpoint, CheckpointError, Table
from ...descriptor import UNDETERMINED, Absent, CapabilityDescriptor, Fact, Stated, stated
from ...family import Family, bounded_by, symbols_of, tokenizer_of
from ...graph.clocks import Positions, Steps, Tokens
from ...graph.graph import ModelGraph
from ...graph.parts import REPLAY, Batching, Delivery, Edge, Medium, Node, NodeKind, Readiness, port, recompute
from ...graph.shapes import Shape
from ...graph.states import Placement, StateKind
from .common import context, told, transformer

PAPER = "BAGEL paper"
_LLM, _VIT = "llm_config.json", "vit_config.json"


def _config(checkpoint: Checkpoint) -> Table | None:
    """Its config.json, where it is one: the published folder also carries the parts' own files."""
    try:
        return checkpoint.table()
    except CheckpointError:
        if checkpoint.has(_LLM) and checkpoint.has(_VIT):
            return None
        raise


def recognises(checkpoint: Checkpoint) -> bool:
    table = _config(checkpoint)
    if table is not None:
        return table.at("model_type") == "bagel"
    return checkpoint.has(_LLM) and checkpoint.has(_VIT)


def describe(checkpoint: Checkpoint) -> CapabilityDescriptor:
    config = _config(checkpoint)
    llm = checkpoint.table(_LLM) or (config.table("llm_config") if config else None)
    vit = checkpoint.table(_VIT) or (config.table("vit_config") if config else None)
    return CapabilityDescriptor(
        family="bagel",
        variant=Stated("BAGEL", PAPER),
        checkpoint=Stated(checkpoint.version, "its files"),
        tokenizer=tokenizer_of(checkpoint),
        audio_encoder=Absent(PAPER),
        image_encoder=_told(vit, num_hidden_layers="{} layers", hidden_size="width {}", patch_size="patches of {}"),
        video_encoder=Absent(PAPER),
        backbone=transformer(llm, "") if llm else UNDETERMINED,
        router=Stated("two experts: understanding and generation (mixture of transformers)", PAPER),
        talker=Absent(PAPER),
        speech_decoder=Absent(PAPER),
        codec=Absent(PAPER),
        image_head=_image_head(config),
        video_head=Absent(PAPER),
        input_rate=Absent(PAPER),
        output_rate=Absent(PAPER),
        context=_context(llm),
        bounded=bounded_by(_context(llm)),
        symbols=symbols_of(
            d=llm.integer("hidden_size") if llm else None,
            V=llm.integer("vocab_size") if llm else None,
            Z=config.integer("vae_config.z_channels") if config else None,
        ),
    )


def _context(llm: Table | None) -> Fact[int]:
    return context(llm) if llm else UNDETERMINED


def _told(table: Table | None, **texts: str) -> Fact[str]:
    return stated(told(table, **texts), table.file if table else "")


def _image_head(config: Table | None) -> Fact[str]:
    if config is None:
        return UNDETERMINED
    if config.truth("visual_gen") is False:
        return Absent(f"{config.where('visual_gen')} is false")
    latent = told(config, latent_patch_size="latent patches of {}", max_latent_size="up to {} on a side")
    vae = told(config.table("vae_config"), z_channels="{} channels", downsample="1/{} of the image")
    return stated(", ".join(part for part in (vae, latent) if part) or None, config.where("vae_config"))


def tensors(checkpoint: Checkpoint, descriptor: CapabilityDescriptor) -> dict[str, Shape]:
    """The weights lie in `ema.safetensors`, beside the VAE's own file."""
    return {"language_model.model.embed_tokens.weight": Shape.parse("V,d")}


def graph(descriptor: CapabilityDescriptor) -> ModelGraph:
    """Two ends behind one backbone: a request goes to text or to an image."""
    tokens, steps = Tokens("backbone"), Steps("image")
    pictures = port(StateKind.SESSION, "B,N,H,W")
    text, kv = port(StateKind.TOKEN, "B,T", tokens, "V"), port(StateKind.KV, "B,T,d", tokens)
    seen = port(StateKind.FEATURE, "B,N*P,d", Positions("image"))
    latent = port(StateKind.LATENT, "B,Z,H,W", steps)
    whole = ModelGraph(
        "bagel",
        (
            Node("input", NodeKind.SOURCE, outputs={"text": text, "image": pictures}),
            Node("vit", NodeKind.ENCODER, {"image": pictures}, {"features": seen}, (Batching.MEDIA_LENGTH,)),
            Node(
                "backbone",
                NodeKind.AUTOREGRESSIVE,
                {"text": text, "image": seen, "past": kv},
                {"text": text, "kv": kv},
                (Batching.SEQUENCES,),
            ),
            Node(
                "generation",
                NodeKind.DIFFUSION,
                {"context": kv, "latent": latent},
                {"latent": latent},
                (Batching.LATENT_STEP,),
            ),
            Node("vae", NodeKind.DECODER, {"latent": latent}, {"image": pictures}, (Batching.LATENT_STEP,)),
        ),
        (
            Edge("input.text", "backbone.text", Placement.SAME_HOST, REPLAY),
            Edge("input.image", "vit.image", Placement.SAME_HOST, REPLAY),
            Edge("vit.features", "backbone.image", Placement.SAME_DEVICE, recompute("vit")),
            Edge("backbone.kv", "backbone.past", Placement.SAME_DEVICE, recompute("input"), loop=True),
            Edge("backbone.kv", "generation.context", Placement.SAME_DEVICE, recompute("backbone")),
            Edge("generation.latent", "generation.latent", Placement.SAME_DEVICE, recompute("generation"), loop=True),
            Edge("generation.latent", "vae.latent", Placement.SAME_DEVICE, recompute("generation")),
        ),
        (
            Delivery(Medium.TEXT, "backbone.text", Readiness.EACH_TOKEN),
            Delivery(Medium.IMAGE, "vae.image", Readiness.WHOLE),
        ),
        descriptor.symbols,
        frozenset({"vit.features -> backbone.image"}),
    )
    return whole.without(["generation", "vae"]) if isinstance(descriptor.image_head, Absent) else whole


FAMILY = Family(
    name="bagel",
    about="understands interleaved text and images, generates and edits images",
    published={
        "bagel": CapabilityDescriptor(
            family="bagel",
            variant=Stated("BAGEL", PAPER),
            audio_encoder=Absent(PAPER),
            image_encoder=Stated("ViT for understanding, VAE for generation", PAPER),
            video_encoder=Absent(PAPER),
            backbone=Stated("mixture of transformers, 14B parameters, 7B active", PAPER),
            router=Stated("two experts: understanding and generation (mixture of transformers)", PAPER),
            talker=Absent(PAPER),
            speech_decoder=Absent(PAPER),
            codec=Absent(PAPER),
            image_head=Stated("generation and editing branch", PAPER),
            video_head=Absent(PAPER),
            input_rate=Absent(PAPER),
            output_rate=Absent(PAPER),
        )
    },
    recognises=recognises,
    describe=describe,
    graph=graph,
    tensors=tensors,
    sources=("BAGEL, arXiv 2505.14683", "BAGEL repository and model card"),
)
