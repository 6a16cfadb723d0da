"""Geometry of Qwen3-Omni, from its configuration; transformers' modules are laid out without memory ("meta")."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import Qwen3OmniMoeConfig, Qwen3OmniMoeForConditionalGeneration

from ..families.qwen3_omni import tiny as tiny_model
from ..families.qwen3_omni.engine import SPARE, WIDEST
from ..families.qwen3_omni.omni import Shape
from .figures import PlanError
from .geometry import Attention, Experts, Geometry, Part

TICK = Fraction(1920, 24_000)
"""One frame of speech; the talker takes one text token and makes one frame in it."""
_ATTENTION = {"num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128}
PUBLISHED: dict[str, Any] = {
    "enable_audio_output": True,
    "thinker_config": {
        "text_config": {
            "vocab_size": 152_064,
            "hidden_size": 2048,
            "intermediate_size": 768,
            "moe_intermediate_size": 768,
            "num_hidden_layers": 48,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "max_position_embeddings": 65_536,
            **_ATTENTION,
        },
        "audio_config": {"output_dim": 2048},
        "vision_config": {"out_hidden_size": 2048},
    },
    "talker_config": {
        "text_config": {
            "vocab_size": 3072,
            "hidden_size": 1024,
            "intermediate_size": 2048,
            "moe_intermediate_size": 384,
            "shared_expert_intermediate_size": 768,
            "num_hidden_layers": 20,
            "num_attention_heads": 16,
            "num_key_value_heads": 2,
            "head_dim": 128,
            "num_experts": 128,
            "num_experts_per_tok": 6,
        },
        "code_predictor_config": {"num_code_groups": 16},
        "num_code_groups": 16,
        "thinker_hidden_size": 2048,
        "spatial_merge_size": 2,
    },
}
"""What the published 30B-A3B Instruct model states and transformers' defaults do not have."""
TINY_SHAPE = Shape(cells=2048, talker_cells=1536, left=16)
"""What the tiny model is given."""
SOURCE = "Qwen3-Omni-30B-A3B-Instruct: technical report and configuration; code2wav as in transformers' defaults"


def published(*, speaks: bool = True) -> Qwen3OmniMoeConfig:
    """The published model's configuration; `speaks` False: of a variant without a talker."""
    return Qwen3OmniMoeConfig(**{**PUBLISHED, "enable_audio_output": speaks})


def tiny(dtype: torch.dtype, *, context: int | None = None) -> Geometry:
    """The configuration with random weights, and the shape that it is served with."""
    source = "the tiny configuration of this project"
    return geometry(tiny_model.config(), dtype, source, context=context, shape=TINY_SHAPE)


def of_folder(folder: Path) -> Qwen3OmniMoeConfig:
    """A checkpoint's. Raises PlanError."""
    try:
        return Qwen3OmniMoeConfig(**json.loads((folder / "config.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise PlanError("--checkpoint", f"{folder}/config.json cannot be read ({error})") from None


def geometry(
    config: Qwen3OmniMoeConfig,
    dtype: torch.dtype,
    source: str,
    *,
    context: int | None = None,
    shape: Shape | None = None,
) -> Geometry:
    """`context`: positions of the thinker in place of those of `shape`, which is the engine's own. Raises PlanError."""
    shape = shape or Shape()
    cells = shape.cells if context is None else context
    if cells < 1:
        raise PlanError("--context", f"{cells} must be at least 1 position")
    item = dtype.itemsize
    # transformers declares its parts as anything.
    sections: Any = config
    with torch.device("meta"):
        net: Any = Qwen3OmniMoeForConditionalGeneration(config)
        net.to(dtype)
    thinker, thinks = net.thinker, sections.thinker_config.text_config
    encoders = _size(thinker.model) - _size(thinker.model.language_model)
    # The widest step of reading a prompt may write behind the last cell.
    held = cells + WIDEST
    parts = [
        Part("encoders", encoders, item, Fraction(0)),
        Part(
            "thinker",
            _size(thinker) - encoders,
            item,
            Fraction(1),
            (_attention("thinker", thinks, held, item),),
            # Of each position the hidden state that the talker is given.
            item * held * thinks.hidden_size,
            _size(thinker.get_input_embeddings()),
            _experts(thinker.model, thinks),
        ),
    ]
    symbols = {"d": thinks.hidden_size, "V": thinks.vocab_size}
    if sections.enable_audio_output:
        parts += _speech(net, sections, item, shape)
        talks, decoder = sections.talker_config.text_config, sections.code2wav_config
        symbols |= {
            "d_t": talks.hidden_size,
            "V_t": talks.vocab_size,
            "Q": decoder.num_quantizers,
            "K": decoder.codebook_size,
            "d_c": decoder.hidden_size,
        }
    return Geometry(
        model="qwen3-omni",
        dtype=str(dtype).removeprefix("torch."),
        parts=parts,
        tick=TICK,
        source=source,
        context=cells,
        symbols=symbols,
        spare_sessions=SPARE,
        missing=("what the encoders and code2wav compute with in between",),
    )


def _speech(net: Any, sections: Any, item: int, shape: Shape) -> list[Part]:
    """Talker, code predictor and code2wav."""
    talker, talks = net.talker, sections.talker_config.text_config
    predictor, decoder = talker.code_predictor, sections.code2wav_config
    return [
        Part(
            "talker",
            _size(talker) - _size(predictor),
            item,
            Fraction(1),
            (_attention("talker", talks, shape.talker_cells + 1, item),),
            # The last hidden state, and which codes it has used.
            item * talks.hidden_size + talks.vocab_size,
            0,
            _experts(talker.model, talks),
        ),
        Part(
            "code predictor",
            _size(predictor),
            item,
            Fraction(max(1, sections.talker_config.num_code_groups - 1)),
            within="talker",
        ),
        Part("code2wav", _size(net.code2wav), item, Fraction(1), (), (shape.left or 0) * decoder.num_quantizers * 8),
    ]


def _attention(name: str, text: Any, cells: int, item: int) -> Attention:
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return Attention(name, text.num_hidden_layers, text.num_key_value_heads, width, cells, item)


def _experts(model: nn.Module, text: Any) -> Experts | None:
    held = sum(_size(module) for name, module in model.named_modules() if name.endswith(".experts"))
    count = getattr(text, "num_experts", None) or getattr(text, "num_local_experts", 0)
    return Experts(count, text.num_experts_per_tok, held) if held and count else None


def _size(module: nn.Module) -> int:
    held = {id(weight): weight for weight in module.parameters()}
    return sum(weight.numel() * weight.element_size() for weight in held.values())
