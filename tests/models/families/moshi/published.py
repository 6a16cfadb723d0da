"""A language model's weights as the published file names them: the way back from `models.families.moshi.names`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from codec.mimi.model import Mimi
from models.families.moshi.checkpoint import CODEC_FILE, CONFIG_FILE, WEIGHTS_FILE
from models.families.moshi.language import MoshiLM
from tests.codec.mimi import published
from tests.codec.mimi.test_names import NATIVE

CODEC_CONFIG = "mimi.json"


def native(lm: MoshiLM) -> dict[str, Tensor]:
    """As the `moshi` package's published file: the depth transformer's weights of all codebooks below one another."""
    config = lm.config
    out: dict[str, Tensor] = {}
    for name, tensor in lm.state_dict().items():
        if name == "emb.weight":
            for stream, table in enumerate(tensor.split(config.codebook_size + 1)):
                out[f"emb.{stream}.weight"] = table
        elif name == "depth.inputs.weight":
            for number, part in enumerate(tensor.split(config.depth.dimension)):
                out[f"depformer_in.{number}.weight"] = part
        elif name.startswith("depth."):
            _depth(out, name.removeprefix("depth."), tensor)
        else:
            theirs = name.replace("self_attn.in_proj.weight", "self_attn.in_proj_weight").replace(".feed.", ".gating.")
            out[theirs] = tensor[None, None] if theirs.endswith("alpha") else tensor
    for layer in range(config.depth.layers):
        stem = f"depformer.layers.{layer}.self_attn"
        sets = max(config.depth.schedule) + 1
        for kind, joined in (("in_projs", "in_proj_weight"), ("out_projs", "out_proj.weight")):
            out[f"{stem}.{joined}"] = torch.cat([out.pop(f"{stem}.{kind}.{number}") for number in range(sets)])
    return out


def _depth(out: dict[str, Tensor], name: str, tensor: Tensor) -> None:
    if name == "text_emb.weight":
        out["depformer_text_emb.weight"] = tensor
    elif name.startswith("emb."):
        out[f"depformer_{name}"] = tensor
    elif name.startswith("linears."):
        out[name] = tensor
    else:
        _, layer, rest = name.split(".", 2)
        rest = rest.removesuffix(".weight") if "_projs." in rest else rest
        stem = f"depformer.layers.{layer}."
        inner = f"self_attn.{rest}" if "_projs." in rest else rest
        out[stem + inner] = tensor[None, None] if inner.endswith("alpha") else tensor


def guessing(weights: Mapping[str, Tensor], agent: int) -> dict[str, Tensor]:
    """The same with a depth transformer that says the user's codebooks too, as PersonaPlex's does."""
    out = dict(weights)
    for name, tensor in weights.items():
        if "self_attn" in name and name.startswith("depformer."):
            out[name] = torch.cat([tensor, torch.randn_like(tensor)])
            continue
        for kind in ("depformer_in", "linears"):
            if name.startswith(f"{kind}."):
                number, rest = name.removeprefix(f"{kind}.").split(".", 1)
                out[f"{kind}.{int(number) + agent}.{rest}"] = torch.randn_like(tensor)
        if name.startswith("depformer_emb.0."):
            for codebook in range(agent - 1, 2 * agent - 1):
                out[f"depformer_emb.{codebook}.weight"] = torch.randn_like(tensor)
        if ".gating." in name and name.startswith("depformer."):
            stem, _, rest = name.partition(".gating.")
            number, _, kind = rest.partition(".")
            out[f"{stem}.gating.{int(number) + agent}.{kind}"] = torch.randn_like(tensor)
    return out


def write(folder: Path, lm: MoshiLM, mimi: Mimi, fields: Mapping[str, object]) -> Path:
    """A whole checkpoint, without a tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {CODEC_FILE: published.native(mimi), WEIGHTS_FILE: native(lm)}
    for name, weights in files.items():
        save(folder / name, weights)
    (folder / CODEC_CONFIG).write_text(json.dumps(NATIVE))
    (folder / CONFIG_FILE).write_text(json.dumps({**fields, "mimi_config_name": CODEC_CONFIG}))
    return folder


def save(path: Path, weights: Mapping[str, Tensor]) -> None:
    save_file({name: tensor.clone().contiguous() for name, tensor in weights.items()}, path)
