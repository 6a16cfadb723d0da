"""The true architecture, tiny, with random weights: what it says is noise, in time and in order."""

from __future__ import annotations

import math
import string

import torch
from torch import Tensor, nn
from transformers import Qwen3OmniMoeConfig, Qwen3OmniMoeForConditionalGeneration

from .omni import ControlTokens, Omni, Rules, Shape
from .talker import CONTROL_CODES
from .words import ByteWords

CODEBOOKS, ENTRIES = 4, 64
_BYTES = 256
_NAMED = (
    *("im_start", "im_end", "system", "user", "assistant", "audio_start", "audio_end", "audio"),
    *("vision_start", "vision_end", "image", "video", "tts_bos", "tts_eos", "tts_pad"),
)
_IDS = {name: _BYTES + index for index, name in enumerate(_NAMED)}
_STEERING = {
    name: ENTRIES + 4 + index
    for index, name in enumerate(("eos", "nothink", "think_bos", "think_eos", "pad", "bos", "ember", "birch"))
}
LOUDNESS = 0.1
"""Standard deviation of its sound."""


def config(*, speaks: bool = True) -> Qwen3OmniMoeConfig:
    """Its configuration; the sizes are what is small about it."""
    rope = {
        "rope_type": "default",
        "rope_theta": 1e6,
        "mrope_section": [2, 3, 3],
        "interleaved": True,
        "mrope_interleaved": True,
    }
    attention = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    media = {
        "audio_token_id": _IDS["audio"],
        "image_token_id": _IDS["image"],
        "video_token_id": _IDS["video"],
        "audio_start_token_id": _IDS["audio_start"],
        "vision_start_token_id": _IDS["vision_start"],
        "user_token_id": _IDS["user"],
    }
    width, narrow = 64, 48
    return Qwen3OmniMoeConfig(
        enable_audio_output=speaks,
        thinker_config={
            "text_config": {
                "vocab_size": _BYTES + len(_NAMED) + 1,
                "hidden_size": width,
                "intermediate_size": 64,
                "num_hidden_layers": 3,
                "max_position_embeddings": 4096,
                "rope_parameters": rope,
                **attention,
                **experts,
            },
            "audio_config": {
                "num_mel_bins": 128,
                "encoder_layers": 1,
                "encoder_attention_heads": 4,
                "encoder_ffn_dim": 64,
                "d_model": 32,
                "output_dim": width,
                "n_window": 50,
                "n_window_infer": 400,
                "conv_chunksize": 500,
                "downsample_hidden_size": 8,
            },
            "vision_config": {
                "depth": 2,
                "hidden_size": 32,
                "intermediate_size": 64,
                "num_heads": 4,
                "out_hidden_size": width,
                "deepstack_visual_indexes": [0],
                "num_position_embeddings": 64,
            },
            "audio_end_token_id": _IDS["audio_end"],
            "vision_end_token_id": _IDS["vision_end"],
            **media,
        },
        talker_config={
            "text_config": {
                "vocab_size": ENTRIES + CONTROL_CODES,
                "hidden_size": narrow,
                "intermediate_size": 64,
                "num_hidden_layers": 2,
                "shared_expert_intermediate_size": 32,
                "max_position_embeddings": 4096,
                "rope_parameters": rope,
                **attention,
                **experts,
            },
            "code_predictor_config": {
                "vocab_size": ENTRIES,
                "hidden_size": narrow,
                "intermediate_size": 64,
                "num_hidden_layers": 1,
                "num_code_groups": CODEBOOKS,
                "max_position_embeddings": 64,
                **attention,
            },
            "num_code_groups": CODEBOOKS,
            "thinker_hidden_size": width,
            "accept_hidden_layer": 2,
            "spatial_merge_size": 2,
            "codec_eos_token_id": _STEERING["eos"],
            "codec_nothink_id": _STEERING["nothink"],
            "codec_think_bos_id": _STEERING["think_bos"],
            "codec_think_eos_id": _STEERING["think_eos"],
            "codec_pad_id": _STEERING["pad"],
            "codec_bos_id": _STEERING["bos"],
            "speaker_id": {"ember": _STEERING["ember"], "birch": _STEERING["birch"]},
            **media,
        },
        code2wav_config={
            "codebook_size": ENTRIES,
            "hidden_size": 32,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_quantizers": CODEBOOKS,
            "decoder_dim": 16,
            "sliding_window": 3,
        },
        im_start_token_id=_IDS["im_start"],
        im_end_token_id=_IDS["im_end"],
        system_token_id=_IDS["system"],
        user_token_id=_IDS["user"],
        assistant_token_id=_IDS["assistant"],
        tts_bos_token_id=_IDS["tts_bos"],
        tts_eos_token_id=_IDS["tts_eos"],
        tts_pad_token_id=_IDS["tts_pad"],
    )


TOKENS = ControlTokens(newline=ord("\n"), **{name: _IDS[name] for name in _NAMED if name != "video"})
_SAID = {*string.ascii_lowercase.encode(), ord(" "), _IDS["im_end"]}


def random(*, seed: int = 0) -> Omni:
    """A tiny Omni whose weights hang on `seed` alone. It says letters and spaces, and nothing that it means."""
    settings = config()
    settings._attn_implementation = "sdpa"
    net = Qwen3OmniMoeForConditionalGeneration(settings)
    net.train(False)
    net.requires_grad_(False)
    _fill(net, seed)
    _experts_by_row(net)
    rules = Rules(
        suppressed=tuple(token for token in range(_BYTES + len(_NAMED) + 1) if token not in _SAID),
        longest_text=96,
        longest_speech=160,
    )
    return Omni(
        net=net,
        words=ByteWords(),
        tokens=TOKENS,
        version=f"random-tiny-{seed}",
        rules=rules,
        shape=Shape(cells=2048, talker_cells=1536, left=16, image_positions=64),
    )


def _fill(net: nn.Module, seed: int) -> None:
    """Weights so large that each layer's output hangs on its input; transformers' own would say the same to all."""
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in net.named_parameters():
            if "layer_scale" in name or name.endswith("gamma"):
                weight.fill_(0.5)
            elif weight.dim() >= 2:
                fan = weight[0].numel() if "embed" not in name else 1
                # The blocks that add up to sound would grow from one to the next, and rounding with them.
                gain = 0.5 if name.startswith("code2wav.decoder") else 1.0
                weight.copy_(_normal(weight, noise) * (gain / math.sqrt(fan)))
            elif name.endswith("bias"):
                weight.zero_()
        decoder = net.get_submodule("code2wav")
        codes = torch.randint(0, ENTRIES, (4, CODEBOOKS, 16), generator=noise)
        last = decoder.get_submodule("decoder")[-1].conv  # type: ignore[index]
        # The sound is clamped to -1..1, so it is measured from far below.
        last.weight.mul_(1e-3)
        last.weight.mul_(LOUDNESS / float(decoder(codes).std()))


def _normal(weight: Tensor, noise: torch.Generator) -> Tensor:
    return torch.randn(weight.shape, generator=noise)


def _experts_by_row(net: nn.Module) -> None:
    """Each row's experts in a product of its own: what a row says does not hang on its neighbours' routing."""
    for module in net.modules():
        settings = getattr(module, "config", None)
        if settings is not None and hasattr(settings, "_experts_implementation"):
            settings._experts_implementation = "batched_mm"
