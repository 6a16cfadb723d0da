"""Moshi and its descendants: one model hears and speaks all the time, on Mimi's codes, with an inner text stream.

Sources: Moshi (arXiv 2410.00037), the `moshi` package's configuration, the PersonaPlex model card and repository.
Three layouts are read: Kyutai's own config.json ("dim", "n_q", "dep_q"), that of `transformers` ("hidden_size",
"num_codebooks"), and PersonaPlex's, which holds no sizes at all: there they come from the shapes of the weights.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from codec.identity import CodecIdentity

from ...checkpoint import Checkpoint, CheckpointError, Table
from ...descriptor import UNDETERMINED, Absent, CapabilityDescriptor, Fact, Stated, stated
from ...family import Family, symbols_of
from ...graph.clocks import Frames
from ...graph.graph import ModelGraph
from ...graph.parts import LOSE, REPLAY, Batching, Delivery, Edge, Medium, Node, NodeKind, Readiness, port, recompute
from ...graph.shapes import Shape
from ...graph.states import Placement, StateKind
from .common import codec_identity, model_type_of, told

PAPER = "Moshi paper"
PERSONAPLEX = "PersonaPlex repository"
PACKAGE = "moshi package"
ENGINE = "this server's engine"

SAMPLE_RATE, HOP = 24_000, 1920
"""Hz and samples per frame of Mimi, 12.5 Hz; the paper states them, no checkpoint does."""

_NATIVE, _TRANSFORMERS, _PERSONAPLEX = "kyutai", "transformers", "personaplex"


def recognises(checkpoint: Checkpoint) -> bool:
    return _layout(checkpoint) is not None


def _layout(checkpoint: Checkpoint) -> str | None:
    kind = model_type_of(checkpoint)
    if kind == "personaplex":
        return _PERSONAPLEX
    table = checkpoint.table()
    if table is None:
        # Kyutai's first checkpoints have no configuration at all.
        return _NATIVE if {"text_emb.weight", "emb.0.weight"} <= (checkpoint.tensors or {}).keys() else None
    if kind in ("moshi", None) and table.at("dim") is not None and table.at("dep_q") is not None:
        return _NATIVE
    return _TRANSFORMERS if kind == "moshi" else None


def describe(checkpoint: Checkpoint) -> CapabilityDescriptor:
    """Raises CheckpointError where the configuration contradicts itself."""
    layout = _layout(checkpoint)
    table = checkpoint.table()
    if layout == _TRANSFORMERS and table is not None:
        return _transformers(checkpoint, table)
    if table is None or table.at("dim") is None:
        return _from_shapes(checkpoint, personaplex=layout == _PERSONAPLEX)
    return _native(checkpoint, table, personaplex=layout == _PERSONAPLEX)


def _native(checkpoint: Checkpoint, config: Table, *, personaplex: bool) -> CapabilityDescriptor:
    streams, own = config.integer("n_q"), config.integer("dep_q", least=0)
    if streams is not None and own is not None and own > streams:
        raise CheckpointError(config.where("dep_q"), f"{own} codebooks are spoken of {streams} that there are")
    delays = config.integers("delays")
    if delays is not None and streams is not None and len(delays) != streams + 1:
        raise CheckpointError(
            config.where("delays"),
            f"must hold {streams + 1} delays, for text and {streams} codebooks, not {len(delays)}",
        )
    if own and streams == own and (personaplex or (delays and _both_alike(delays))):
        # Its depth transformer also predicts the user's codebooks; half of them are the agent's.
        own = streams // 2
    card = config.integer("card")
    return _described(
        checkpoint,
        personaplex=personaplex,
        backbone=stated(
            told(config, num_layers="{} layers", dim="width {}", num_heads="{} heads"), config.where("num_layers")
        ),
        depth=stated(
            told(config, depformer_num_layers="{} layers", depformer_dim="width {}"), config.where("depformer_dim")
        ),
        tokenizer=stated(config.text("tokenizer_name"), config.where("tokenizer_name")),
        codec=_codec(
            config.text("mimi_name") or _named(checkpoint, "tokenizer-*.safetensors"),
            own,
            card,
            delays,
            "config.json",
            _timing(checkpoint, config),
        ),
        spoken=own,
        context=stated(config.integer("context"), config.where("context")),
        symbols=symbols_of(
            d=config.integer("dim"),
            Q=own or None,
            Q_in=streams,
            K=card,
            V=config.integer("text_card"),
            d_d=config.integer("depformer_dim"),
        ),
    )


def _both_alike(delays: tuple[int, ...]) -> bool:
    """Whether the streams after the text are twice the same pattern: an agent's and a user's."""
    half = len(delays) // 2
    return len(delays) % 2 == 1 and delays[1 : 1 + half] == delays[1 + half :]


def _transformers(checkpoint: Checkpoint, config: Table) -> CapabilityDescriptor:
    own, card = config.integer("num_codebooks"), config.integer("audio_vocab_size")
    card = card or config.integer("audio_encoder_config.codebook_size")
    return _described(
        checkpoint,
        personaplex=False,
        backbone=stated(
            told(config, num_hidden_layers="{} layers", hidden_size="width {}", num_attention_heads="{} heads"),
            config.where("num_hidden_layers"),
        ),
        depth=stated(
            told(config.table("depth_decoder_config"), num_hidden_layers="{} layers", hidden_size="width {}"),
            config.where("depth_decoder_config"),
        ),
        tokenizer=stated(checkpoint.digest_of("tokenizer.json", "tokenizer.model"), "tokenizer files"),
        codec=_codec("mimi-transformers", own, card, None, "config.json"),
        spoken=own,
        context=stated(config.integer("sliding_window"), config.where("sliding_window")),
        symbols=symbols_of(
            d=config.integer("hidden_size"),
            Q=own,
            Q_in=2 * own if own else None,
            K=card,
            V=config.integer("vocab_size"),
            d_d=config.integer("depth_decoder_config.hidden_size"),
        ),
    )


def _from_shapes(checkpoint: Checkpoint, *, personaplex: bool) -> CapabilityDescriptor:
    """A configuration without sizes: the weights' shapes are what the checkpoint says of itself."""
    tensors = checkpoint.tensors or {}
    text, audio = tensors.get("text_emb.weight"), tensors.get("emb.0.weight")
    streams = _count(tensors, r"emb\.(\d+)\.weight")
    own = _count(tensors, r"linears\.(\d+)\.weight")
    if personaplex and streams:
        own = streams // 2
    source = "shapes of the weights"
    layers = _count(tensors, r"transformer\.layers\.(\d+)\..*")
    width = text.shape[1] if text and len(text.shape) == 2 else None
    # The embeddings hold one entry more than there are codes, for "nothing yet".
    card = audio.shape[0] - 1 if audio and len(audio.shape) == 2 else None
    spelled = [f"{layers} layers" if layers else "", f"width {width}" if width else ""]
    return _described(
        checkpoint,
        personaplex=personaplex,
        backbone=stated(", ".join(filter(None, spelled)) or None, source),
        depth=UNDETERMINED,
        tokenizer=stated(_named(checkpoint, "tokenizer*.model"), "files of the checkpoint"),
        codec=_codec(_named(checkpoint, "tokenizer-*.safetensors"), own or None, card, None, source),
        spoken=own or None,
        context=UNDETERMINED,
        symbols=symbols_of(
            d=width, Q=own or None, Q_in=streams or None, K=card, V=text.shape[0] - 1 if text and text.shape else None
        ),
    )


def _described(
    checkpoint: Checkpoint,
    *,
    personaplex: bool,
    backbone: Fact[str],
    depth: Fact[str],
    tokenizer: Fact[str],
    codec: Fact[CodecIdentity],
    spoken: int | None,
    context: Fact[int],
    symbols: Mapping[str, int],
) -> CapabilityDescriptor:
    published = PUBLISHED["personaplex" if personaplex else "moshi"]
    described = replace(
        published,
        checkpoint=Stated(checkpoint.version, "its files"),
        tokenizer=tokenizer,
        backbone=backbone,
        codec=codec,
        context=context,
        symbols=symbols,
    )
    if spoken == 0:
        mute = Absent("config.json: dep_q is 0, so no codes are generated")
        return replace(described, talker=mute, speech_decoder=mute, codec=mute, output_rate=mute)
    if spoken is None:
        return replace(described, talker=UNDETERMINED)
    return replace(described, talker=depth if isinstance(depth, Stated) else published.talker)


def _codec(
    name: str | None,
    codebooks: int | None,
    entries: int | None,
    delays: tuple[int, ...] | None,
    source: str,
    timing: tuple[int, int, str] = (SAMPLE_RATE, HOP, PAPER),
) -> Fact[CodecIdentity]:
    if not (name and codebooks and entries):
        return UNDETERMINED
    own = delays[1 : 1 + codebooks] if delays else ()
    version = re.sub(r"[^a-z0-9._-]+", "-", name.lower().removesuffix(".safetensors"))[:64].lstrip("._-") or "unnamed"
    rate, hop, who = timing
    identity = codec_identity(source, "mimi", version, rate, hop, codebooks, entries, own)
    return Stated(identity, f"{source}; rate and hop: {who}")


def _timing(checkpoint: Checkpoint, config: Table) -> tuple[int, int, str]:
    """Rate, hop, and who states them: the codec's own configuration where the checkpoint brings one."""
    name = config.text("mimi_config_name")
    table = checkpoint.table(name) if name and Path(name).name == name else None
    rate = table.integer("sample_rate") if table else None
    frames = table.at("frame_rate") if table else None
    if table is None or rate is None or not isinstance(frames, int | float) or not 0 < frames < math.inf:
        return SAMPLE_RATE, HOP, PAPER
    hop = round(rate / frames)
    if abs(hop * frames - rate) > 1e-6 * rate:
        raise CheckpointError(table.where("frame_rate"), f"{frames} frames a second do not divide {rate} Hz")
    return rate, hop, f"{name}: frame_rate"


def _count(tensors: Mapping[str, object], pattern: str) -> int:
    """One more than the largest number in the names that match."""
    return max((int(found[1]) + 1 for name in tensors if (found := re.fullmatch(pattern, name))), default=0)


def _named(checkpoint: Checkpoint, pattern: str) -> str | None:
    return next((path.name for path in sorted(checkpoint.folder.glob(pattern))), None)


def tensors(checkpoint: Checkpoint, descriptor: CapabilityDescriptor) -> Mapping[str, Shape]:
    """Embeddings and heads of Kyutai's layout; "no code yet" and "no text yet" have an entry each."""
    table = checkpoint.table()
    if table is None or table.at("dim") is None or _layout(checkpoint) == _TRANSFORMERS:
        return {}
    sizes = descriptor.symbols
    expected: dict[str, Shape] = {}
    if {"V", "d"} <= sizes.keys():
        expected["text_emb.weight"] = Shape.parse(f"{sizes['V'] + 1},d")
        expected["text_linear.weight"] = Shape.parse("V,d")
    if {"Q_in", "K", "d"} <= sizes.keys():
        for stream in range(sizes["Q_in"]):
            expected[f"emb.{stream}.weight"] = Shape.parse(f"{sizes['K'] + 1},d")
    if {"Q", "K", "d_d"} <= sizes.keys():
        for codebook in range(sizes["Q"]):
            expected[f"linears.{codebook}.weight"] = Shape.parse("K,d_d")
    return expected


def graph(descriptor: CapabilityDescriptor) -> ModelGraph:
    """One clock for everything: a frame of 80 ms in, a frame out, and a text token beside it."""
    frames = Frames("mimi")
    pcm = port(StateKind.SESSION, "B,S")
    theirs, ours = port(StateKind.CODE, "B,F,Q", frames, "K"), port(StateKind.CODE, "B,F,Q", frames, "K")
    text = port(StateKind.TOKEN, "B,F", frames, "V")
    hidden = port(StateKind.FEATURE, "B,F,d", frames)
    kv = port(StateKind.KV, "B,F,d", frames)
    convolution = port(StateKind.SESSION, "B,F", frames)
    whole = ModelGraph(
        "moshi",
        (
            Node("microphone", NodeKind.SOURCE, outputs={"pcm": pcm}),
            Node(
                "mimi_encoder",
                NodeKind.CODEC_ENCODER,
                {"pcm": pcm, "past": convolution},
                {"codes": theirs, "past": convolution},
                (Batching.SLOTS,),
            ),
            Node(
                "temporal",
                NodeKind.AUTOREGRESSIVE,
                {"heard": theirs, "said": ours, "thought": text, "past": kv},
                {"hidden": hidden, "text": text, "kv": kv},
                (Batching.SLOTS,),
            ),
            Node(
                "depth",
                NodeKind.AUTOREGRESSIVE,
                {"hidden": hidden, "text": text},
                {"codes": ours},
                within="temporal",
            ),
            Node(
                "mimi_decoder",
                NodeKind.CODEC_DECODER,
                {"codes": ours, "past": convolution},
                {"pcm": pcm, "past": convolution},
                (Batching.CHUNK_DEADLINE,),
            ),
        ),
        (
            Edge("microphone.pcm", "mimi_encoder.pcm", Placement.SAME_HOST, REPLAY),
            Edge("mimi_encoder.past", "mimi_encoder.past", Placement.SAME_DEVICE, REPLAY, loop=True),
            Edge("mimi_encoder.codes", "temporal.heard", Placement.SAME_DEVICE, recompute("microphone")),
            Edge("temporal.kv", "temporal.past", Placement.SAME_DEVICE, recompute("microphone"), loop=True),
            Edge("temporal.text", "temporal.thought", Placement.SAME_DEVICE, REPLAY, loop=True),
            Edge("temporal.hidden", "depth.hidden", Placement.SAME_DEVICE, recompute("temporal")),
            Edge("temporal.text", "depth.text", Placement.SAME_DEVICE, recompute("temporal")),
            Edge("depth.codes", "temporal.said", Placement.SAME_DEVICE, REPLAY, loop=True),
            # A frame that missed its playout has no use any more.
            Edge("depth.codes", "mimi_decoder.codes", Placement.SAME_HOST, LOSE),
            Edge("mimi_decoder.past", "mimi_decoder.past", Placement.SAME_DEVICE, LOSE, loop=True),
        ),
        (
            Delivery(Medium.TEXT, "temporal.text", Readiness.EACH_FRAME),
            Delivery(Medium.AUDIO, "mimi_decoder.pcm", Readiness.EACH_FRAME, _delay(descriptor)),
        ),
        descriptor.symbols,
    )
    return whole.without(["depth", "mimi_decoder"]) if isinstance(descriptor.talker, Absent) else whole


def _delay(descriptor: CapabilityDescriptor) -> int:
    """Frames until all codes of one are there; the paper's one where the checkpoint does not say."""
    return descriptor.codec.value.longest_delay if isinstance(descriptor.codec, Stated) else 1


_MOSHI = CapabilityDescriptor(
    family="moshi",
    variant=Stated("Moshi", PAPER),
    audio_encoder=Stated("Mimi, streaming", PAPER),
    image_encoder=Absent(PAPER),
    video_encoder=Absent(PAPER),
    backbone=Stated("temporal transformer", PAPER),
    router=Absent(PAPER),
    talker=Stated("depth transformer", PAPER),
    speech_decoder=Stated("Mimi, streaming", PAPER),
    image_head=Absent(PAPER),
    video_head=Absent(PAPER),
    input_rate=Stated(SAMPLE_RATE, PAPER),
    output_rate=Stated(SAMPLE_RATE, PAPER),
    interruptible=Stated(True, ENGINE),
    rewindable=Stated(True, ENGINE),
    prompt=Absent(PAPER),
    bounded=Stated(False, f"{PACKAGE}: attention over a moving window"),
)

PUBLISHED: Mapping[str, CapabilityDescriptor] = {
    "moshi": _MOSHI,
    "personaplex": replace(
        _MOSHI, variant=Stated("PersonaPlex", PERSONAPLEX), prompt=Stated("role as text, voice as audio", PERSONAPLEX)
    ),
}

FAMILY = Family(
    name="moshi",
    about="full duplex on Mimi's codes, with an inner text stream",
    published=PUBLISHED,
    recognises=recognises,
    describe=describe,
    graph=graph,
    tensors=tensors,
    served=True,
    sources=("Moshi, arXiv 2410.00037", "moshi package 0.2.13", "NVIDIA PersonaPlex repository and model card"),
)
