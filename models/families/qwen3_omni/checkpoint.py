"""A published Qwen3-Omni folder: checked by its own files first, then loaded onto the devices that there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from safetensors import SafetensorError
from transformers import AutoTokenizer, Qwen3OmniMoeConfig, Qwen3OmniMoeForConditionalGeneration

from ...checkpoint import Checkpoint, CheckpointError
from ...registry import load_for_voice
from .errors import OutOfMemory, PartsUnfit
from .omni import ControlTokens, Omni, Rules, Shape
from .talker import CONTROL_CODES
from .words import PieceWords, PublishedTokenizer, Words

CONFIG = "config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where and how large. `devices`: the thinker's and, where there are two, that of talker and code2wav.

    `rows`: sequences at a time.
    """

    devices: tuple[str, ...] = ("cpu",)
    dtype: torch.dtype = torch.float32
    rows: int = 4
    shape: Shape = Shape()

    @classmethod
    def here(cls, rows: int) -> Placement:
        """For this machine: one or two GPUs in bfloat16 if there are any, else the CPU."""
        gpus = tuple(f"cuda:{number}" for number in range(min(2, torch.cuda.device_count())))
        return cls(devices=gpus, dtype=torch.bfloat16, rows=rows) if gpus else cls(rows=rows)

    @property
    def device_map(self) -> Mapping[str, str]:
        """The device of each part."""
        return {"thinker": self.devices[0], "talker": self.devices[-1], "code2wav": self.devices[-1]}


def load(folder: Path, placement: Placement) -> Omni:
    """Load a checkpoint that speaks.

    Raises CannotSpeak naming the missing part, DescriptorMismatch, CheckpointError (truncated files, missing weights),
    PartsUnfit (vocabulary, codebooks) and OutOfMemory.
    """
    found = load_for_voice(folder)
    if found.family.name != "qwen3-omni":
        raise CheckpointError(CONFIG, f"this is {found.family.name}, not qwen3-omni")
    config = _config(folder)
    check(config)
    words = _words(folder)
    tokens = control_tokens(config, words)
    try:
        loaded = Qwen3OmniMoeForConditionalGeneration.from_pretrained(
            folder,
            config=config,
            dtype=placement.dtype,
            device_map=None if placement.devices == ("cpu",) else dict(placement.device_map),
            local_files_only=True,
            use_safetensors=True,
            output_loading_info=True,
        )
    except (MemoryError, torch.OutOfMemoryError) as error:
        needed = memory_needed(config, placement)
        raise OutOfMemory(str(folder), needed, placement.rows, placement.devices[0]) from error
    except (SafetensorError, OSError, RuntimeError, ValueError) as error:
        raise CheckpointError(str(folder), f"its weights cannot be loaded ({error}); download it again") from error
    # With `output_loading_info` it is a pair, which its annotation does not say.
    net, report = cast("tuple[Qwen3OmniMoeForConditionalGeneration, Mapping[str, Sequence[str]]]", loaded)
    missing = sorted(report["missing_keys"])
    if missing:
        raise CheckpointError(str(folder), f"its weights lack {missing[0]} and {len(missing) - 1} more; download again")
    net.train(False)
    net.requires_grad_(False)
    return Omni(
        net=net,
        words=words,
        tokens=tokens,
        version=Checkpoint(folder).version,
        rules=Rules(),
        shape=placement.shape,
    )


def _config(folder: Path) -> Qwen3OmniMoeConfig:
    try:
        config: Qwen3OmniMoeConfig = Qwen3OmniMoeConfig.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # its validator raises what it likes
        raise CheckpointError(CONFIG, f"is no configuration of this model: {error}") from error
    return config


def check(config: Qwen3OmniMoeConfig) -> None:
    """Raises PartsUnfit where talker, code predictor and code2wav were not made for each other."""
    thinker, talker, decoder = config.thinker_config, config.talker_config, config.code2wav_config
    predictor = talker.code_predictor_config  # type: ignore[union-attr]
    books, entries = decoder.num_quantizers, decoder.codebook_size  # type: ignore[union-attr]
    width = thinker.text_config.hidden_size  # type: ignore[union-attr]
    layers = thinker.text_config.num_hidden_layers  # type: ignore[union-attr]
    pairs = (
        ("talker_config.num_code_groups", talker.num_code_groups, books),  # type: ignore[union-attr]
        ("code_predictor_config.num_code_groups", predictor.num_code_groups, books),
        ("code_predictor_config.vocab_size", predictor.vocab_size, entries),
        ("talker_config.text_config.vocab_size", talker.text_config.vocab_size, entries + CONTROL_CODES),  # type: ignore[union-attr]
        ("talker_config.thinker_hidden_size", talker.thinker_hidden_size, width),  # type: ignore[union-attr]
    )
    for field, found, wanted in pairs:
        if found != wanted:
            raise PartsUnfit(f"{CONFIG}: {field}", field.rpartition(".")[2], found, wanted)
    accepted = talker.accept_hidden_layer  # type: ignore[union-attr]
    if not 0 <= accepted <= layers:
        raise PartsUnfit(f"{CONFIG}: talker_config.accept_hidden_layer", "layer", accepted, f"{layers} layers")


def _words(folder: Path) -> PieceWords:
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # whatever a broken tokenizer file brings up
        raise CheckpointError(
            str(folder), f"has no tokenizer that can be read ({error}); its tokenizer files belong into the folder"
        ) from error
    return PieceWords(cast(PublishedTokenizer, tokenizer))


def control_tokens(config: Qwen3OmniMoeConfig, words: Words) -> ControlTokens:
    """The ids that frame a prompt, as the configuration numbers them. Raises CheckpointError where one is missing and
    PartsUnfit where one lies outside the vocabulary."""
    thinker = config.thinker_config
    newline = words.encode("\n")
    found: dict[str, int | None] = {
        "im_start": config.im_start_token_id,
        "im_end": config.im_end_token_id,
        "system": config.system_token_id,
        "user": config.user_token_id,
        "assistant": config.assistant_token_id,
        "newline": newline[0] if len(newline) == 1 else None,
        "audio_start": getattr(thinker, "audio_start_token_id", None),
        "audio_end": getattr(thinker, "audio_end_token_id", None),
        "audio": getattr(thinker, "audio_token_id", None),
        "vision_start": getattr(thinker, "vision_start_token_id", None),
        "vision_end": getattr(thinker, "vision_end_token_id", None),
        "image": getattr(thinker, "image_token_id", None),
        "tts_bos": config.tts_bos_token_id,
        "tts_eos": config.tts_eos_token_id,
        "tts_pad": config.tts_pad_token_id,
    }
    size: int = thinker.text_config.vocab_size  # type: ignore[union-attr]
    numbers: dict[str, int] = {}
    for name, token in found.items():
        if token is None:
            raise CheckpointError(CONFIG, f"names no {name} token; the configuration is not whole")
        if not 0 <= token < size:
            raise PartsUnfit(f"{CONFIG}: {name}", "token id", token, f"a vocabulary of {size}")
        numbers[name] = token
    return ControlTokens(**numbers)


def memory_needed(config: Qwen3OmniMoeConfig, placement: Placement) -> int:
    """Bytes for all weights and the keys and values of all rows; what a step computes with in between is not counted.

    Per row and position a layer keeps 2 · key-value heads · head width numbers.
    """
    return sum(parts_of(config, placement).values())


def parts_of(config: Qwen3OmniMoeConfig, placement: Placement) -> Mapping[str, int]:
    """The same by part: bytes of each module's weights, and of each state."""
    with torch.device("meta"):
        net = Qwen3OmniMoeForConditionalGeneration(config)
    width = placement.dtype.itemsize
    found = {name: width * sum(weight.numel() for weight in part.parameters()) for name, part in net.named_children()}
    thinker, talker = net.thinker.config.text_config, net.talker.config.text_config
    found["thinker keys and values"] = width * placement.rows * placement.shape.cells * _per_cell(thinker)
    found["thinker hidden states"] = width * placement.rows * placement.shape.cells * thinker.hidden_size
    found["talker keys and values"] = width * placement.rows * placement.shape.talker_cells * _per_cell(talker)
    return found


def _per_cell(text: object) -> int:
    sizes: Sequence[int] = [getattr(text, name) for name in ("num_hidden_layers", "num_key_value_heads")]
    width = getattr(text, "head_dim", None) or getattr(text, "hidden_size") // getattr(text, "num_attention_heads")  # noqa: B009
    return 2 * sizes[0] * sizes[1] * int(width)
