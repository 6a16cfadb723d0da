"""A codec's weights as the two published formats would name them: the way back from `codec.mimi.names`."""

from __future__ import annotations

import torch
from torch import Tensor

from codec.mimi.model import Mimi

_FEED = {"feed.linear1": "linear1", "feed.linear2": "linear2"}


def native(mimi: Mimi, *, old: bool = True) -> dict[str, Tensor]:
    """As the `moshi` package names them; `old`: with the names that its published file still has."""
    out: dict[str, Tensor] = {}
    for full, tensor in mimi.state_dict().items():
        name = full.removeprefix("encoding.").removeprefix("decoding.")
        if name.startswith("quantizer."):
            _quantizer(out, name, tensor, old)
        elif "_transformer." in name:
            _transformer(out, name, tensor, old)
        else:
            _convolution(out, mimi, name, tensor)
    return out


def _quantizer(out: dict[str, Tensor], name: str, tensor: Tensor, old: bool) -> None:
    _, part, rest = name.split(".", 2)
    stem = f"quantizer.{'rvq_first' if part == 'semantic' else 'rvq_rest'}"
    if rest != "codebooks":
        out[f"{stem}.{rest}"] = tensor[..., None]
        return
    for level, table in enumerate(tensor):
        usage = torch.arange(1, len(table) + 1).float()
        layer = f"{stem}.vq.layers.{level}._codebook"
        out[f"{layer}.{'embed_sum' if old else 'embedding_sum'}"] = table * usage[:, None]
        out[f"{layer}.{'cluster_size' if old else 'cluster_usage'}"] = usage
        out[f"{layer}.{'inited' if old else '_initialized'}"] = torch.ones(1)


def _transformer(out: dict[str, Tensor], name: str, tensor: Tensor, old: bool) -> None:
    side, _, layer, rest = name.split(".", 3)
    stem = f"{side}.transformer.layers.{layer}"
    if rest in ("scale1", "scale2"):
        out[f"{stem}.layer_scale_{rest[-1]}.scale"] = tensor
        return
    for ours, theirs in _FEED.items():
        rest = rest.replace(ours, theirs)
    if not old:
        rest = rest.replace("in_proj.weight", "in_projs.0.weight").replace("out_proj.", "out_projs.0.")
    out[f"{stem}.{rest.replace('in_proj.weight', 'in_proj_weight')}"] = tensor


def _convolution(out: dict[str, Tensor], mimi: Mimi, name: str, tensor: Tensor) -> None:
    config = mimi.config
    if name == "downsample.weight":
        out["downsample.conv.conv.conv.weight"] = tensor
        return
    if name == "upsample.matrix":
        out["upsample.convtr.convtr.convtr.weight"] = tensor[:, None]
        return
    side, *path, kind = name.split(".")
    span = 2 + config.residual_layers
    kernel = "conv.conv"
    if path == ["first"]:
        place = "0"
    elif path == ["last"]:
        place = str(span * len(config.ratios) + 2)
    else:
        stage = int(path[1])
        start = span * stage
        if path[2] == "blocks":
            block = start + int(path[3]) + (1 if side == "encoder" else 3)
            place = f"{block}.block.{1 if path[4] == 'first' else 3}"
        else:
            place = str(start + config.residual_layers + 2 if side == "encoder" else start + 2)
            kernel = "conv.conv" if side == "encoder" else "convtr.convtr"
    if kind == "matrix":
        ratio = config.ratios[int(path[1])]
        inputs = tensor.shape[1]
        tensor = tensor.view(-1, 2 * ratio, inputs).permute(2, 0, 1)
    out[f"{side}.model.{place}.{kernel}.{'bias' if kind == 'bias' else 'weight'}"] = tensor


def transformers(mimi: Mimi, *, halves: bool = False) -> dict[str, Tensor]:
    """As transformers names them; `halves`: with the names of its newer releases."""
    heads = mimi.config.heads
    out: dict[str, Tensor] = {}
    for full, tensor in native(mimi, old=False).items():
        name = full
        for theirs, ours in _RENAMED:
            name = name.replace(theirs, ours)
        if name.endswith("in_projs.0.weight"):
            for one, part in zip("qkv", tensor.chunk(3), strict=True):
                halves_apart = part.view(heads, -1, 2, part.shape[1]).transpose(1, 2).reshape(part.shape)
                out[name.replace("in_projs.0.", f"{one}_proj.")] = part if one == "v" else halves_apart
            continue
        out[name] = tensor
    if not halves:
        return out
    return {_in_halves(name): tensor for name, tensor in out.items()}


_RENAMED = (
    ("conv.conv.conv.", "conv."),
    ("convtr.convtr.convtr.", "conv."),
    ("conv.conv.", "conv."),
    ("convtr.convtr.", "conv."),
    (".model.", ".layers."),
    ("_transformer.transformer.", "_transformer."),
    (".norm1.", ".input_layernorm."),
    (".norm2.", ".post_attention_layernorm."),
    (".linear1.", ".mlp.fc1."),
    (".linear2.", ".mlp.fc2."),
    (".layer_scale_1.", ".self_attn_layer_scale."),
    (".layer_scale_2.", ".mlp_layer_scale."),
    ("out_projs.0.", "o_proj."),
    ("quantizer.rvq_first.", "quantizer.semantic_residual_vector_quantizer."),
    ("quantizer.rvq_rest.", "quantizer.acoustic_residual_vector_quantizer."),
    (".vq.layers.", ".layers."),
    ("._codebook._initialized", ".codebook.initialized"),
    ("._codebook.embedding_sum", ".codebook.embed_sum"),
    ("._codebook.", ".codebook."),
)


def _in_halves(name: str) -> str:
    for side, change in (("encoder", "downsample"), ("decoder", "upsample")):
        if name.startswith(f"{side}."):
            return name.replace(f"{side}.", f"{side}.{side}_seanet.", 1)
        if name.startswith((f"{side}_transformer.", f"{change}.")):
            return f"{side}.{name}"
    return name
