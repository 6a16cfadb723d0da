"""Both published formats load, and what is wrong with a file is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from codec.mimi.config import MimiConfig
from codec.mimi.errors import CheckpointMissing, CheckpointTruncated, ConfigInvalid, ShapeMismatch, WeightsMissing
from codec.mimi.model import Mimi
from tests.codec.mimi import published

CONFIG = MimiConfig.tiny()

NATIVE = {
    "sample_rate": 24_000,
    "channels": 1,
    "frame_rate": 12.5,
    "seanet": {
        "dimension": 32,
        "causal": True,
        "n_filters": 4,
        "n_residual_layers": 1,
        "activation": "ELU",
        "compress": 2,
        "dilation_base": 2,
        "kernel_size": 7,
        "residual_kernel_size": 3,
        "last_kernel_size": 3,
        "norm": "none",
        "pad_mode": "constant",
        "ratios": [8, 6, 5, 4],
        "true_skip": True,
    },
    "transformer": {
        "d_model": 32,
        "num_heads": 2,
        "num_layers": 2,
        "causal": True,
        "context": 24,
        "max_period": 10_000,
        "gating": "none",
        "norm": "layer_norm",
        "positional_embedding": "rope",
        "dim_feedforward": 64,
        "input_dimension": 32,
    },
    "quantizer": {"dimension": 16, "n_q": 8, "bins": 64},
}
TRANSFORMERS = {
    "model_type": "mimi",
    "sampling_rate": 24_000,
    "upsampling_ratios": [8, 6, 5, 4],
    "num_filters": 4,
    "hidden_size": 32,
    "kernel_size": 7,
    "residual_kernel_size": 3,
    "last_kernel_size": 3,
    "num_residual_layers": 1,
    "dilation_growth_rate": 2,
    "compress": 2,
    "use_causal_conv": True,
    "use_conv_shortcut": False,
    "pad_mode": "constant",
    "hidden_act": "gelu",
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "intermediate_size": 64,
    "sliding_window": 24,
    "rope_theta": 10_000.0,
    "codebook_size": 64,
    "codebook_dim": 16,
    "num_quantizers": 8,
    "num_semantic_quantizers": 1,
    "upsample_groups": 32,
}


@pytest.fixture(scope="module")
def mimi() -> Mimi:
    return Mimi.random(CONFIG, seed=3)


def formats(mimi: Mimi) -> dict[str, dict[str, Tensor]]:
    return {
        "native": published.native(mimi, old=False),
        "native, as in the published file": published.native(mimi),
        "transformers": published.transformers(mimi),
        "transformers, newer": published.transformers(mimi, halves=True),
    }


@pytest.mark.parametrize("name", ["native", "native, as in the published file", "transformers", "transformers, newer"])
def test_every_published_format_gives_the_same_codec(mimi: Mimi, name: str) -> None:
    loaded = Mimi.from_weights(formats(mimi)[name], CONFIG)
    pcm = 0.2 * torch.randn(1, CONFIG.hop * 5, generator=torch.Generator().manual_seed(2))
    codes = mimi.encode(pcm)
    assert torch.equal(loaded.encode(pcm), codes)
    torch.testing.assert_close(loaded.decode(codes), mimi.decode(codes), atol=1e-6, rtol=0)


def test_a_file_with_its_configuration_loads(mimi: Mimi, tmp_path: Path) -> None:
    for name, weights, config in (
        ("native", published.native(mimi), NATIVE),
        ("transformers", published.transformers(mimi), TRANSFORMERS),
    ):
        path, beside = tmp_path / f"{name}.safetensors", tmp_path / f"{name}.json"
        save_file({key: tensor.contiguous() for key, tensor in weights.items()}, path)
        beside.write_text(json.dumps(config))
        assert Mimi.load(path, config=beside).config == CONFIG


def test_both_configurations_are_the_tiny_one() -> None:
    assert MimiConfig.from_native(NATIVE) == CONFIG
    assert MimiConfig.from_transformers(TRANSFORMERS) == CONFIG


@pytest.mark.parametrize(
    ("section", "field", "value"),
    [
        ("seanet", "causal", False),
        ("seanet", "norm", "weight_norm"),
        ("seanet", "n_filters", "4"),
        ("seanet", "ratios", 8),
        ("transformer", "gating", "silu"),
        ("transformer", "num_heads", 3),
        ("quantizer", "bins", True),
        ("quantizer", "n_q", 1),
    ],
)
def test_a_native_configuration_that_is_not_mimis_is_refused_by_its_field(
    section: str, field: str, value: object
) -> None:
    changed = {**NATIVE, section: {**NATIVE[section], field: value}}  # type: ignore[dict-item]
    with pytest.raises(ConfigInvalid, match=r"mimi config"):
        MimiConfig.from_native(changed)


@pytest.mark.parametrize("field", ["model_type", "num_key_value_heads", "use_conv_shortcut", "hidden_act"])
def test_a_transformers_configuration_that_is_not_mimis_is_refused_by_its_field(field: str) -> None:
    with pytest.raises(ConfigInvalid, match=field):
        MimiConfig.from_transformers({**TRANSFORMERS, field: "else"})


def test_a_section_that_is_missing_is_named() -> None:
    with pytest.raises(ConfigInvalid, match="quantizer"):
        MimiConfig.from_native({key: value for key, value in NATIVE.items() if key != "quantizer"})


def test_a_truncated_file_is_said_to_be_one(mimi: Mimi, tmp_path: Path) -> None:
    path = tmp_path / "codec.safetensors"
    save_file({key: tensor.contiguous() for key, tensor in published.native(mimi).items()}, path)
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(CheckpointTruncated, match="download it again"):
        Mimi.load(path)
    path.write_bytes(b"")
    with pytest.raises(CheckpointTruncated, match="0 bytes"):
        Mimi.load(path)
    with pytest.raises(CheckpointMissing, match="no such file"):
        Mimi.load(tmp_path / "elsewhere.safetensors")


def test_a_tensor_of_another_shape_is_named(mimi: Mimi) -> None:
    weights = published.native(mimi)
    weights["encoder.model.0.conv.conv.weight"] = torch.zeros(4, 1, 9)
    with pytest.raises(ShapeMismatch, match=r"encoder\.first\.weight has shape \[4, 1, 9\]"):
        Mimi.from_weights(weights, CONFIG)


def test_tensors_that_lack_or_are_unknown_are_named(mimi: Mimi) -> None:
    weights = published.native(mimi)
    del weights["decoder_transformer.transformer.layers.1.linear2.weight"]
    with pytest.raises(WeightsMissing, match=r"lacks .*layers.1.feed.linear2"):
        Mimi.from_weights(weights, CONFIG)
    with pytest.raises(WeightsMissing, match="does not know mask_token"):
        Mimi.from_weights({**published.native(mimi), "mask_token": torch.zeros(1)}, CONFIG)
    weights = {name: tensor for name, tensor in published.native(mimi).items() if "layers.6._codebook" not in name}
    with pytest.raises(WeightsMissing, match=r"rvq_rest\.vq\.layers\.6"):
        Mimi.from_weights(weights, CONFIG)
