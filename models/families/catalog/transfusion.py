"""Transfusion: one transformer predicts the next text token and denoises continuous image patches.

Source: Transfusion (arXiv 2408.11039). No checkpoint is published, so none is recognised. One set of weights is not
one loop: text and images are two classes of workload, with different shapes, steps and ends.
"""

from __future__ import annotations

from ...checkpoint import Checkpoint, CheckpointError
from ...descriptor import Absent, CapabilityDescriptor, Stated
from ...family import Family
from ...graph.clocks import Positions, Steps, Tokens
from ...graph.graph import ModelGraph
from ...graph.parts import REPLAY, Batching, Delivery, Edge, Medium, Node, NodeKind, Readiness, port, recompute
from ...graph.states import Placement, StateKind

PAPER = "Transfusion paper"


def recognises(checkpoint: Checkpoint) -> bool:
    return False


def describe(checkpoint: Checkpoint) -> CapabilityDescriptor:
    raise CheckpointError(str(checkpoint.folder), "no checkpoint of Transfusion is published, so none can be read")


def graph(descriptor: CapabilityDescriptor) -> ModelGraph:
    """The transformer stands once, with two workloads; the image's latent goes round in it, step by step."""
    tokens, steps = Tokens("transformer"), Steps("image")
    pictures = port(StateKind.SESSION, "B,C,H,W")
    text, kv = port(StateKind.TOKEN, "B,T", tokens, "V"), port(StateKind.KV, "B,T,d", tokens)
    patches = port(StateKind.FEATURE, "B,P,d", Positions("image"))
    latent = port(StateKind.LATENT, "B,P,d", steps)
    return ModelGraph(
        "transfusion",
        (
            Node("input", NodeKind.SOURCE, outputs={"text": text, "image": pictures}),
            Node(
                "image_encoder", NodeKind.ENCODER, {"image": pictures}, {"patches": patches}, (Batching.MEDIA_LENGTH,)
            ),
            Node(
                "transformer",
                NodeKind.AUTOREGRESSIVE,
                {"text": text, "patches": patches, "past": kv, "latent": latent},
                {"text": text, "kv": kv, "latent": latent},
                (Batching.SEQUENCES, Batching.LATENT_STEP),
            ),
            Node("image_decoder", NodeKind.DECODER, {"latent": latent}, {"image": pictures}, (Batching.LATENT_STEP,)),
        ),
        (
            Edge("input.text", "transformer.text", Placement.SAME_HOST, REPLAY),
            Edge("input.image", "image_encoder.image", Placement.SAME_HOST, REPLAY),
            Edge("image_encoder.patches", "transformer.patches", Placement.SAME_DEVICE, recompute("image_encoder")),
            Edge("transformer.kv", "transformer.past", Placement.SAME_DEVICE, recompute("input"), loop=True),
            Edge(
                "transformer.latent", "transformer.latent", Placement.SAME_DEVICE, recompute("transformer"), loop=True
            ),
            Edge("transformer.latent", "image_decoder.latent", Placement.SAME_DEVICE, recompute("transformer")),
        ),
        (
            Delivery(Medium.TEXT, "transformer.text", Readiness.EACH_TOKEN),
            Delivery(Medium.IMAGE, "image_decoder.image", Readiness.WHOLE),
        ),
        descriptor.symbols,
        frozenset({"image_encoder.patches -> transformer.patches"}),
    )


FAMILY = Family(
    name="transfusion",
    about="next token for text, diffusion for images, in one transformer",
    published={
        "transfusion": CapabilityDescriptor(
            family="transfusion",
            variant=Stated("Transfusion", PAPER),
            checkpoint=Absent("none is published"),
            audio_encoder=Absent(PAPER),
            image_encoder=Stated("continuous patches of a VAE", PAPER),
            video_encoder=Absent(PAPER),
            backbone=Stated("one transformer", PAPER),
            router=Absent(PAPER),
            talker=Absent(PAPER),
            speech_decoder=Absent(PAPER),
            codec=Absent(PAPER),
            image_head=Stated("diffusion in the same transformer", PAPER),
            video_head=Absent(PAPER),
            input_rate=Absent(PAPER),
            output_rate=Absent(PAPER),
        )
    },
    recognises=recognises,
    describe=describe,
    graph=graph,
    sources=("Transfusion, arXiv 2408.11039",),
)
