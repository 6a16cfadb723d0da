"""AnyGPT: every modality becomes discrete tokens of one vocabulary, one autoregressive model reads and writes them all.

Sources: AnyGPT (arXiv 2402.12226) and its repository. Its config.json is that of a Llama; what makes it AnyGPT are the
tokens that its tokenizer adds: `<sosp>` for speech, `<soim>` for images, `<somu>` for music. A token is not yet sound:
the detokenizers are checkpoints of their own.
"""

from __future__ import annotations

import re

from ...checkpoint import Checkpoint
from ...descriptor import UNDETERMINED, Absent, CapabilityDescriptor, Fact, Stated
from ...family import Family, bounded_by, symbols_of, tokenizer_of
from ...graph.clocks import Tokens
from ...graph.graph import ModelGraph
from ...graph.parts import REPLAY, Batching, Delivery, Edge, Medium, Node, NodeKind, Readiness, port, recompute
from ...graph.shapes import Shape
from ...graph.states import Placement, StateKind
from .common import config_of, context, model_type_of, transformer

PAPER = "AnyGPT paper"
REPOSITORY = "AnyGPT repository: a checkpoint of its own"
_SPEECH, _IMAGE, _MUSIC = "<sosp>", "<soim>", "<somu>"
_SPEECH_CODE = re.compile("<\U0001f5e3\ufe0f\\d+>")


def _added(checkpoint: Checkpoint) -> frozenset[str]:
    """Tokens that its tokenizer adds to the text vocabulary. Raises CheckpointError."""
    tokens: set[str] = set()
    if (table := checkpoint.table("added_tokens.json")) is not None:
        tokens |= table.names()
    if (table := checkpoint.table("tokenizer_config.json")) is not None:
        decoder = table.at("added_tokens_decoder")
        for entry in decoder.values() if isinstance(decoder, dict) else ():
            if isinstance(entry, dict) and isinstance(content := entry.get("content"), str):
                tokens.add(content)
    return frozenset(tokens)


def recognises(checkpoint: Checkpoint) -> bool:
    return model_type_of(checkpoint) == "llama" and {_SPEECH, _IMAGE} <= _added(checkpoint)


def describe(checkpoint: Checkpoint) -> CapabilityDescriptor:
    config, added = config_of(checkpoint), _added(checkpoint)
    source = "added tokens of its tokenizer"
    codes = sum(1 for token in added if _SPEECH_CODE.fullmatch(token))

    def tokens(mark: str, what: str) -> Fact[str]:
        return Stated(what, source) if mark in added else Absent(source)

    return CapabilityDescriptor(
        family="anygpt",
        variant=Stated("AnyGPT", source),
        checkpoint=Stated(checkpoint.version, "its files"),
        tokenizer=tokenizer_of(checkpoint),
        audio_encoder=tokens(_SPEECH, "speech tokens"),
        image_encoder=tokens(_IMAGE, "image tokens"),
        video_encoder=Absent(PAPER),
        backbone=transformer(config, ""),
        router=Absent(PAPER),
        talker=Stated(f"{codes} speech tokens of the one vocabulary", source)
        if codes
        else tokens(_SPEECH, "speech tokens"),
        # The repository names what turns tokens into sound; no file says which one belongs to this checkpoint.
        speech_decoder=UNDETERMINED,
        image_head=tokens(_IMAGE, "image tokens; the image decoder is a checkpoint of its own"),
        video_head=Absent(PAPER),
        context=context(config),
        bounded=bounded_by(context(config)),
        symbols=symbols_of(d=config.integer("hidden_size"), V=config.integer("vocab_size"), K=codes or None),
    )


def tensors(checkpoint: Checkpoint, descriptor: CapabilityDescriptor) -> dict[str, Shape]:
    """The one vocabulary, as `transformers` saves a Llama."""
    return {"model.embed_tokens.weight": Shape.parse("V,d"), "lm_head.weight": Shape.parse("V,d")}


def graph(descriptor: CapabilityDescriptor) -> ModelGraph:
    """All edges into and out of the model are tokens of one vocabulary; sound and pictures are made behind it."""
    tokens = Tokens("llm")
    media = port(StateKind.SESSION, "B,S")
    text, kv = port(StateKind.TOKEN, "B,T", tokens, "V"), port(StateKind.KV, "B,T,d", tokens)
    nodes = [
        Node("input", NodeKind.SOURCE, outputs={"speech": media, "image": media, "music": media, "text": text}),
        Node(
            "llm",
            NodeKind.AUTOREGRESSIVE,
            {"text": text, "speech": text, "image": text, "music": text, "past": kv},
            {"tokens": text, "kv": kv},
            (Batching.SEQUENCES,),
        ),
    ]
    edges = [
        Edge("input.text", "llm.text", Placement.SAME_HOST, REPLAY),
        Edge("llm.kv", "llm.past", Placement.SAME_DEVICE, recompute("input"), loop=True),
    ]
    deliveries = [Delivery(Medium.TEXT, "llm.tokens", Readiness.EACH_TOKEN)]
    shared: set[str] = set()
    for name, medium in (("speech", Medium.AUDIO), ("image", Medium.IMAGE), ("music", Medium.AUDIO)):
        nodes += [
            Node(f"{name}_tokenizer", NodeKind.TOKENIZER, {"in": media}, {"tokens": text}, (Batching.MEDIA_LENGTH,)),
            Node(
                f"{name}_detokenizer", NodeKind.DETOKENIZER, {"tokens": text}, {"out": media}, (Batching.MEDIA_LENGTH,)
            ),
        ]
        edges += [
            Edge(f"input.{name}", f"{name}_tokenizer.in", Placement.SAME_HOST, REPLAY),
            Edge(f"{name}_tokenizer.tokens", f"llm.{name}", Placement.SAME_HOST, recompute(f"{name}_tokenizer")),
            Edge("llm.tokens", f"{name}_detokenizer.tokens", Placement.SAME_HOST, REPLAY),
        ]
        shared.add(f"{name}_tokenizer.tokens -> llm.{name}")
        deliveries.append(Delivery(medium, f"{name}_detokenizer.out", Readiness.WHOLE))
    return ModelGraph("anygpt", tuple(nodes), tuple(edges), tuple(deliveries), descriptor.symbols, frozenset(shared))


FAMILY = Family(
    name="anygpt",
    about="every modality as discrete tokens of one vocabulary",
    published={
        "anygpt": CapabilityDescriptor(
            family="anygpt",
            variant=Stated("AnyGPT", PAPER),
            audio_encoder=Stated("speech and music tokenizers", PAPER),
            image_encoder=Stated("image tokenizer", PAPER),
            video_encoder=Absent(PAPER),
            backbone=Stated("one language model over all tokens", PAPER),
            router=Absent(PAPER),
            talker=Stated("speech tokens of the one vocabulary", PAPER),
            speech_decoder=Stated("detokenizer", REPOSITORY),
            image_head=Stated("image tokens and a detokenizer", REPOSITORY),
            video_head=Absent(PAPER),
        )
    },
    recognises=recognises,
    describe=describe,
    graph=graph,
    tensors=tensors,
    sources=("AnyGPT, arXiv 2402.12226", "AnyGPT repository"),
)
