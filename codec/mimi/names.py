"""Mimi's weights under the names of the two published formats, brought to ours.

The native format is that of the `moshi` package (older files have one `in_proj_weight` and `embed_sum`), the other that
of transformers. They differ in two ways beside names: transformers turns opposite halves of a head where the native
format turns neighbours, and it splits query, key and value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from .config import MimiConfig
from .errors import WeightsMissing

_EPSILON = 1e-5
"""Least usage by which a codebook entry's sum is divided."""

_TRANSFORMERS = (
    # Halves of their own in newer releases.
    (r"^(encoder|decoder)\.\1_transformer\.", r"\1_transformer."),
    (r"^(encoder|decoder)\.\1_seanet\.", r"\1."),
    (r"^encoder\.downsample\.", "downsample."),
    (r"^decoder\.upsample\.", "upsample."),
    (r"^(encoder|decoder)\.layers\.", r"\1.model."),
    (r"^(encoder|decoder)_transformer\.layers\.", r"\1_transformer.transformer.layers."),
    (r"\.input_layernorm\.", ".norm1."),
    (r"\.post_attention_layernorm\.", ".norm2."),
    (r"\.mlp\.fc([12])\.", r".linear\1."),
    (r"\.self_attn_layer_scale\.", ".layer_scale_1."),
    (r"\.mlp_layer_scale\.", ".layer_scale_2."),
    (r"\.o_proj\.", ".out_proj."),
    (r"^quantizer\.semantic_residual_vector_quantizer\.", "quantizer.rvq_first."),
    (r"^quantizer\.acoustic_residual_vector_quantizer\.", "quantizer.rvq_rest."),
    (r"\.layers\.(\d+)\.codebook\.", r".vq.layers.\1._codebook."),
)
_ALIASES = (
    (r"\.conv\.conv\.conv\.", ".conv."),
    (r"\.convtr\.convtr\.convtr\.", ".conv."),
    (r"\.conv\.conv\.", ".conv."),
    (r"\.convtr\.convtr\.", ".conv."),
    (r"\.in_proj_weight$", ".in_proj.weight"),
    (r"\.in_projs\.0\.", ".in_proj."),
    (r"\.out_projs\.0\.", ".out_proj."),
    (r"\.embed_(sum|avg)$", ".embedding_sum"),
    (r"\.cluster_size$", ".cluster_usage"),
)
_IGNORED = re.compile(r"\.(_initialized|initialized|inited)$")
_LAYER = re.compile(r"^(encoder|decoder)_transformer\.transformer\.layers\.(\d+)\.(.*)$")
_IN_LAYER = {
    "self_attn.in_proj.weight": "self_attn.in_proj.weight",
    "self_attn.out_proj.weight": "self_attn.out_proj.weight",
    "norm1.weight": "norm1.weight",
    "norm1.bias": "norm1.bias",
    "norm2.weight": "norm2.weight",
    "norm2.bias": "norm2.bias",
    "linear1.weight": "feed.linear1.weight",
    "linear2.weight": "feed.linear2.weight",
    "layer_scale_1.scale": "scale1",
    "layer_scale_2.scale": "scale2",
}


def is_transformers(weights: Mapping[str, Tensor]) -> bool:
    """Whether the names are those of transformers."""
    return any(".q_proj." in name or ".input_layernorm." in name for name in weights)


def translate(weights: Mapping[str, Tensor], config: MimiConfig, codebooks: int, where: str) -> dict[str, Tensor]:
    """`weights` of a published checkpoint for `Mimi(config, codebooks)`.

    Raises WeightsMissing where a tensor's name is known to neither format, or a codebook is not there.
    """
    native = {}
    for name, tensor in weights.items():
        if not _IGNORED.search(name):
            native[_native(name)] = tensor
    _join_projections(native, config)
    seanet = _seanet_names(config)
    ours: dict[str, Tensor] = {}
    unknown = []
    for name, tensor in native.items():
        if name.startswith("quantizer."):
            continue
        layer = _LAYER.match(name)
        if layer is not None and layer[3] in _IN_LAYER:
            ours[f"{layer[1]}_transformer.layers.{layer[2]}.{_IN_LAYER[layer[3]]}"] = tensor
        elif name in seanet:
            ours[seanet[name]] = _matrix(tensor) if seanet[name].endswith("matrix") else tensor
        else:
            unknown.append(name)
    _quantizer(native, ours, config, codebooks, where)
    if unknown:
        raise WeightsMissing(where, (), sorted(unknown))
    return ours


def _native(name: str) -> str:
    for pattern, put in (*_TRANSFORMERS, *_ALIASES):
        name = re.sub(pattern, put, name)
    return name


def _matrix(weight: Tensor) -> Tensor:
    """A transposed convolution's weight [inputs, outputs, kernel] as `CausalConvTranspose1d` keeps it."""
    if weight.dim() == 3 and weight.shape[1] == 1:
        return weight[:, 0].contiguous()
    return weight.permute(1, 2, 0).reshape(-1, weight.shape[0]).contiguous() if weight.dim() == 3 else weight


def _join_projections(native: dict[str, Tensor], config: MimiConfig) -> None:
    """One `in_proj` from transformers' three, with the pairs that are turned together put side by side."""
    for name in [name for name in native if name.endswith(".q_proj.weight")]:
        stem = name.removesuffix("q_proj.weight")
        try:
            query, key, value = (native.pop(f"{stem}{one}_proj.weight") for one in "qkv")
        except KeyError as missing:
            raise WeightsMissing("mimi", [str(missing.args[0])], ()) from None
        native[f"{stem}in_proj.weight"] = torch.cat([_side_by_side(query, config), _side_by_side(key, config), value])


def _side_by_side(weight: Tensor, config: MimiConfig) -> Tensor:
    """Rows of each head from (reals, imaginaries) to (real, imaginary) pairs."""
    rows, columns = weight.shape
    return weight.view(config.heads, 2, -1, columns).transpose(1, 2).reshape(rows, columns)


def _seanet_names(config: MimiConfig) -> dict[str, str]:
    """Published names of the convolutions, whose numbers count activations too, with ours."""
    names: dict[str, str] = {}

    def put(theirs: str, ours: str, kind: str = "weight") -> None:
        names[f"{theirs}.conv.weight"] = f"{ours}.{kind}"
        names[f"{theirs}.conv.bias"] = f"{ours}.bias"

    for side, blocks_first in (("encoder", True), ("decoder", False)):
        place = 0
        put(f"{side}.model.{place}", f"{side}.first")
        for stage in range(len(config.ratios)):
            for part in ("blocks", "change") if blocks_first else ("change", "blocks"):
                if part == "change":
                    place += 2
                    kind = "weight" if blocks_first else "matrix"
                    put(f"{side}.model.{place}", f"{side}.stages.{stage}.change", kind)
                    continue
                for block in range(config.residual_layers):
                    place += 1
                    for theirs, ours in ((1, "first"), (3, "second")):
                        put(f"{side}.model.{place}.block.{theirs}", f"{side}.stages.{stage}.blocks.{block}.{ours}")
        put(f"{side}.model.{place + 2}", f"{side}.last")
    names["downsample.conv.weight"] = "downsample.weight"
    names["upsample.conv.weight"] = "upsample.matrix"
    return names


def _quantizer(
    native: Mapping[str, Tensor], ours: dict[str, Tensor], config: MimiConfig, codebooks: int, where: str
) -> None:
    for theirs, mine, count in (
        ("rvq_first", "semantic", config.semantic),
        ("rvq_rest", "acoustic", codebooks - config.semantic),
    ):
        tables = []
        for level in range(count):
            stem = f"quantizer.{theirs}.vq.layers.{level}._codebook."
            try:
                total, usage = native[f"{stem}embedding_sum"], native[f"{stem}cluster_usage"]
            except KeyError as missing:
                raise WeightsMissing(where, [str(missing.args[0])], ()) from None
            tables.append(total.float() / usage.float().clamp(min=_EPSILON)[:, None])
        ours[f"quantizer.{mine}.codebooks"] = torch.stack(tables)
        for projection in ("input_proj", "output_proj"):
            name = f"quantizer.{theirs}.{projection}.weight"
            if name not in native:
                raise WeightsMissing(where, [name], ())
            ours[f"quantizer.{mine}.{projection}.weight"] = native[name].flatten(1)
