"""Moshi's weights under their published names, brought to ours."""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from codec.mimi.errors import ShapeMismatch, WeightsMissing

from .config import MoshiConfig

_DEPTH_LAYER = re.compile(r"^depformer\.layers\.(\d+)\.(.*)$")
_PER_SET = re.compile(r"^(gating|self_attn\.in_projs|self_attn\.out_projs)\.(\d+)\.(.*)$")


def translate(weights: Mapping[str, Tensor], config: MoshiConfig, where: str) -> dict[str, Tensor]:
    """`weights` of a published checkpoint for `MoshiLM(config)`.

    What only guesses the user's codebooks is left out. Raises WeightsMissing, ShapeMismatch.
    """
    rest = dict(weights)
    ours: dict[str, Tensor] = {}
    _temporal(rest, ours)
    _tables(rest, ours, config, where)
    _depth_layers(rest, ours, config, where)
    _depth_ends(rest, ours, config, where)
    if rest:
        raise WeightsMissing(where, (), sorted(rest))
    return ours


def _temporal(rest: dict[str, Tensor], ours: dict[str, Tensor]) -> None:
    for name in [name for name in rest if name.startswith(("transformer.", "out_norm.", "text_emb.", "text_linear."))]:
        mine = name.replace("in_proj_weight", "in_proj.weight").replace("_projs.0.", "_proj.")
        mine = mine.replace(".gating.", ".feed.")
        tensor = rest.pop(name)
        ours[mine] = tensor.flatten() if mine.endswith("alpha") else tensor


def _tables(rest: dict[str, Tensor], ours: dict[str, Tensor], config: MoshiConfig, where: str) -> None:
    names = [f"emb.{stream}.weight" for stream in range(config.agent + config.user)]
    tables = _take(rest, names, where)
    shape = (config.codebook_size + 1, config.temporal.dimension)
    for name, table in zip(names, tables, strict=True):
        if tuple(table.shape) != shape:
            raise ShapeMismatch(where, name, tuple(table.shape), shape)
    ours["emb.weight"] = torch.cat(tables)


def _depth_layers(rest: dict[str, Tensor], ours: dict[str, Tensor], config: MoshiConfig, where: str) -> None:
    sets = max(config.depth.schedule) + 1
    width = config.depth.dimension
    for name in [name for name in rest if _DEPTH_LAYER.match(name)]:
        match = _DEPTH_LAYER.match(name)
        if match is None:
            continue
        stem, inner = f"depth.layers.{match[1]}", match[2]
        tensor = rest.pop(name)
        if inner in ("norm1.alpha", "norm2.alpha"):
            ours[f"{stem}.{inner}"] = tensor.flatten()
        elif inner in ("self_attn.in_proj_weight", "self_attn.in_proj.weight", "self_attn.out_proj.weight"):
            # All sets of weights below one another.
            rows = width * (1 if "out" in inner else 3)
            if tensor.dim() != 2 or tensor.shape[0] < sets * rows or tensor.shape[0] % rows:
                raise ShapeMismatch(where, name, tuple(tensor.shape), (sets * rows, width))
            kind = "out_projs" if "out" in inner else "in_projs"
            for number, part in enumerate(tensor.view(-1, rows, width)[:sets]):
                ours[f"{stem}.{kind}.{number}.weight"] = part
        elif (of_set := _PER_SET.match(inner)) is not None:
            if int(of_set[2]) < sets:
                ours[f"{stem}.{inner.removeprefix('self_attn.')}"] = tensor
        else:
            rest[name] = tensor


def _depth_ends(rest: dict[str, Tensor], ours: dict[str, Tensor], config: MoshiConfig, where: str) -> None:
    sets = 1 if config.depth.shared_input else max(config.depth.schedule) + 1
    ours["depth.inputs.weight"] = torch.cat(
        _take(rest, [f"depformer_in.{number}.weight" for number in range(sets)], where)
    )
    (ours["depth.text_emb.weight"],) = _take(rest, ["depformer_text_emb.weight"], where)
    kinds = ("weight", "bias") if config.biased else ("weight",)
    for codebook in range(config.agent):
        for kind in kinds:
            (ours[f"depth.linears.{codebook}.{kind}"],) = _take(rest, [f"linears.{codebook}.{kind}"], where)
        if codebook + 1 < config.agent:
            (ours[f"depth.emb.{codebook}.weight"],) = _take(rest, [f"depformer_emb.{codebook}.weight"], where)
    # The user's part of a depth transformer that guesses it.
    for name in list(rest):
        kind, _, tail = name.partition(".")
        number = tail.partition(".")[0]
        last = {"depformer_in": sets, "linears": config.agent, "depformer_emb": config.agent - 1}.get(kind)
        if last is not None and number.isdigit() and last <= int(number) < config.depth_in_checkpoint:
            del rest[name]


def _take(rest: dict[str, Tensor], names: list[str], where: str) -> list[Tensor]:
    missing = [name for name in names if name not in rest]
    if missing:
        raise WeightsMissing(where, missing, ())
    return [rest.pop(name) for name in names]
