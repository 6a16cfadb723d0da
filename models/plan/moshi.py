"""Geometry of the Moshi family, from its configuration; the modules are laid out without memory ("meta")."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import torch

from codec.mimi.config import MimiConfig
from codec.mimi.model import Mimi
from codec.mimi.streams import Streams
from codec.mimi.transformer import TransformerConfig, ring_cells
from codec.mimi.weights import read_json

from ..families.moshi.config import MoshiConfig
from ..families.moshi.engine import MARGIN
from ..families.moshi.language import MoshiLM
from .figures import PlanError
from .geometry import Attention, Geometry, Part

TICK = Fraction(1920, 24_000)


def geometry(
    config: MoshiConfig,
    codec: MimiConfig,
    dtype: torch.dtype,
    source: str,
    *,
    context: int | None,
    margin: int = MARGIN,
) -> Geometry:
    """`context`: frames of the window, in place of the configuration's. Raises PlanError."""
    if context is not None:
        if context < 1:
            raise PlanError("--context", f"{context} must be at least 1 frame of 80 ms")
        config = replace(config, temporal=replace(config.temporal, context=context))
    item = dtype.itemsize
    codebooks = max(config.agent, config.user)
    with torch.device("meta"):
        lm, mimi = MoshiLM(config).to(dtype), Mimi(codec, codebooks).to(dtype)
        listening = Streams(mimi.encoding, 1).bytes
        speaking = Streams(mimi.decoding, 1, margin=margin).bytes
    temporal = _ring("temporal", config.temporal, margin, item)
    heard, said = (
        _ring("mimi encoder", codec.transformer, 0, item),
        _ring("mimi decoder", codec.transformer, margin, item),
    )
    depth = _size(lm.depth)
    embeddings = item * (lm.emb.weight.numel() + lm.text_emb.weight.numel())
    # Tokens of all streams, int64, as long as the delays and a rewind reach.
    tokens = config.streams * (config.longest_delay + 2 + margin) * 8
    parts = (
        Part("temporal transformer", _size(lm) - depth, item, Fraction(1), (temporal,), tokens, embeddings),
        Part("depth transformer", depth, item),
        Part("mimi encoder", _size(mimi.encoding), item, Fraction(1), (heard,), listening - heard.bytes),
        Part("mimi decoder", _size(mimi.decoding), item, Fraction(1), (said,), speaking - said.bytes),
        Part("mimi codebooks", _size(mimi.quantizer), item),
    )
    return Geometry(
        model="moshi",
        dtype=str(dtype).removeprefix("torch."),
        parts=parts,
        tick=TICK,
        source=source,
        context=config.temporal.context,
        symbols={
            "d": config.temporal.dimension,
            "Q": config.agent,
            "Q_in": config.agent + config.user,
            "K": config.codebook_size,
            "V": config.text_tokens,
            "d_d": config.depth.dimension,
        },
    )


def from_folder(folder: Path, dtype: torch.dtype, *, context: int | None) -> Geometry:
    """By a checkpoint's own config.json. Raises CheckpointError."""
    config = MoshiConfig.read(read_json(folder / "config.json"))
    return geometry(config, MimiConfig(), dtype, f"{folder.name}/config.json; Mimi as published", context=context)


def _ring(name: str, config: TransformerConfig, margin: int, item: int) -> Attention:
    heads = config.heads
    cells = ring_cells(config, margin)
    return Attention(name, config.layers, heads, config.dimension // heads, cells, item, moves=True)


def _size(module: torch.nn.Module) -> int:
    held = {id(weight): weight for weight in (*module.parameters(), *module.buffers())}
    return sum(weight.numel() * weight.element_size() for weight in held.values())
