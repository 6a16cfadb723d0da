"""Checkpoint folders for tests: configurations with the fields and values that are published, and weights that have
a header but hold zeros."""

from __future__ import annotations

import copy
import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Config = dict[str, Any]

QWEN: Config = {
    "architectures": ["Qwen3OmniMoeForConditionalGeneration"],
    "model_type": "qwen3_omni_moe",
    "enable_audio_output": True,
    "thinker_config": {
        "audio_config": {"encoder_layers": 32, "output_dim": 2048, "num_mel_bins": 128},
        "vision_config": {"depth": 27, "out_hidden_size": 2048},
        "text_config": {
            "hidden_size": 2048,
            "num_hidden_layers": 48,
            "num_attention_heads": 32,
            "num_key_value_heads": 4,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "vocab_size": 152064,
            "max_position_embeddings": 65536,
        },
    },
    "talker_config": {
        "num_code_groups": 16,
        "text_config": {"hidden_size": 1024, "num_hidden_layers": 20, "vocab_size": 3072},
    },
    "code2wav_config": {
        "codebook_size": 2048,
        "num_quantizers": 16,
        "hidden_size": 1024,
        "num_hidden_layers": 8,
        "upsample_rates": [8, 5, 4, 3],
        "upsampling_ratios": [2, 2],
    },
}
MOSHI: Config = {
    "model_type": "moshi",
    "mimi_name": "tokenizer-e351c8d8-checkpoint125.safetensors",
    "moshi_name": "model.safetensors",
    "tokenizer_name": "tokenizer_spm_32k_3.model",
    "dim": 4096,
    "num_layers": 32,
    "num_heads": 32,
    "text_card": 32000,
    "n_q": 16,
    "dep_q": 8,
    "card": 2048,
    "context": 3000,
    "delays": [0, 0, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1],
    "depformer_dim": 1024,
    "depformer_num_layers": 6,
}
MOSHI_TRANSFORMERS: Config = {
    "model_type": "moshi",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_codebooks": 8,
    "audio_vocab_size": 2048,
    "vocab_size": 32000,
    "sliding_window": 3000,
    "audio_encoder_config": {"model_type": "mimi", "codebook_size": 2048},
    "depth_decoder_config": {"num_hidden_layers": 6, "hidden_size": 1024},
}
PERSONAPLEX: Config = {"model_type": "personaplex", "version": "7b-v1"}
MINICPM: Config = {
    "architectures": ["MiniCPMO"],
    "model_type": "minicpmo",
    "version": "4.5",
    "hidden_size": 4096,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 151748,
    "max_position_embeddings": 40960,
    "init_vision": True,
    "init_audio": True,
    "init_tts": True,
    "audio_chunk_length": 1.0,
    "vision_config": {"num_hidden_layers": 27, "hidden_size": 1152},
    "audio_config": {"encoder_layers": 24, "d_model": 1024},
    "tts_config": {
        "model_type": "minicpmtts",
        "hidden_size": 768,
        "num_hidden_layers": 20,
        "num_audio_tokens": 6562,
        "num_vq": 1,
        "audio_tokenizer_type": "s3tokenizer",
    },
}
MING: Config = {
    "architectures": ["BailingMMNativeForConditionalGeneration"],
    "model_type": "bailingmm",
    "vision_config": {"depth": 32, "hidden_size": 1280, "patch_size": 14},
    "whisper_config": {"whisper_encoder_config": {"n_layer": 32, "n_state": 1280}},
    "llm_config": {
        "hidden_size": 2048,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "num_experts": 64,
        "num_experts_per_tok": 6,
        "multi_gate": True,
        "vocab_size": 126464,
        "max_position_embeddings": 32768,
    },
    "talker_config": {"audio_vocab_size": 32768, "qa_model_hidden_size": 2048},
}
MING_FLASH: Config = {
    "architectures": ["BailingMM2NativeForConditionalGeneration"],
    "model_type": "bailingmm_moe_v2_lite",
    "vision_config": {"depth": 32, "hidden_size": 1280, "patch_size": 14},
    "audio_config": {"whisper_encoder_config": {"n_layer": 32, "n_state": 1280}},
    "llm_config": {
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "num_experts": 256,
        "num_experts_per_tok": 8,
        "router_type": "MultiRouter",
        "vocab_size": 157184,
        "max_position_embeddings": 32768,
    },
}
MING_FLASH_TALKER: Config = {
    "steps": 10,
    "patch_size": 4,
    "latent_dim": 64,
    "flowmodel": {"depth": 8},
    "aggregator": {},
}
NEXT_GPT: Config = {
    "model_type": "llava_llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 32036,
    "max_position_embeddings": 4096,
    "multimodal_tower": "imagebind",
    "mm_output_img_projector_type": "transformer",
    "mm_output_vid_projector_type": "transformer",
    "mm_output_aud_projector_type": "transformer",
    "image_decoder": "stable-diffusion-2",
    "video_decoder": "zeroscope",
    "audio_decoder": "audioldm",
}
ANYGPT: Config = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 49419,
    "max_position_embeddings": 4096,
}
ANYGPT_TOKENS: Config = {
    **{mark: 32000 + n for n, mark in enumerate(["<sosp>", "<eosp>", "<soim>", "<eoim>", "<somu>", "<eomu>"])},
    **{f"<\U0001f5e3\ufe0f{n}>": 33000 + n for n in range(1024)},
}
BAGEL: Config = {
    "model_type": "bagel",
    "visual_gen": True,
    "visual_und": True,
    "latent_patch_size": 2,
    "max_latent_size": 64,
    "vae_config": {"z_channels": 16, "downsample": 8},
    "llm_config": {
        "hidden_size": 3584,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
        "max_position_embeddings": 32768,
    },
    "vit_config": {"num_hidden_layers": 27, "hidden_size": 1152, "patch_size": 14},
}


def changed(config: Config, path: str, value: object) -> Config:
    """A copy with one field changed; "..." as the value removes it."""
    copied = copy.deepcopy(config)
    *tables, last = path.split(".")
    table = copied
    for name in tables:
        table = table[name]
    if value is ...:
        del table[last]
    else:
        table[last] = value
    return copied


def write(folder: Path, files: Mapping[str, object]) -> Path:
    """A checkpoint folder with these JSON files; text is written as it is."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return folder


def weights(path: Path, shapes: Mapping[str, tuple[int, ...]], *, dtype: str = "BF16", size: int = 2) -> Path:
    """A safetensors file with these tensors. Its data is a hole in the file, so that large shapes cost no disk."""
    header: Config = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        begin, end = end, end + size * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
    encoded = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(encoded)) + encoded)
        file.truncate(8 + len(encoded) + end)
    return path
