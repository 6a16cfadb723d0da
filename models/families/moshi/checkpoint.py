"""A Moshi checkpoint's folder: its configuration, the language model, the codec and the tokenizer that belong to it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from codec.mimi.config import MimiConfig
from codec.mimi.fields import Fields
from codec.mimi.model import Mimi
from codec.mimi.transformer import ring_cells
from codec.mimi.weights import fill, read_json, read_weights
from models.slots.duplex import TextDecoder
from models.slots.mimi import MimiSlots

from .config import MoshiConfig
from .errors import CodecUnfit, OutOfMemory
from .language import MoshiLM
from .names import translate
from .prompt import Prompts, prompts_of, read_voices, speechless
from .slots import MoshiSlots, Sampling
from .text import Numbers, Wordless, load_pieces

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
CODEC_FILE = "tokenizer-e351c8d8-checkpoint125.safetensors"
TOKENIZER_FILE = "tokenizer_spm_32k_3.model"


@dataclass(frozen=True, slots=True)
class LoadedMoshi:
    """A model ready to be stepped. `text()` makes a decoder for one session's inner text.

    `prompts`: how sessions are prepared, for a model that was taught to be.
    """

    model: MoshiSlots
    text: Callable[[], TextDecoder]
    prompts: Prompts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where and how large: `slots` sessions, `margin` frames to rewind."""

    slots: int
    margin: int = 0
    device: str = "cpu"
    dtype: torch.dtype = torch.float32


def load(folder: Path, placement: Placement) -> LoadedMoshi:
    """Load a published checkpoint in the native format.

    `config.json` names the files; where it does not, they have their published names. Without a tokenizer, or without
    the package to read it, it is served all the same and its words are not shown.

    A model that takes prompts needs the tokenizer for instructions, and finds its voices in a folder of recordings.

    Raises CheckpointError: missing or truncated files, wrong shapes, a codec or a tokenizer that does not belong to the
    model, a voice that cannot be used, too little memory.
    """
    fields = read_json(folder / CONFIG_FILE)
    f = Fields(str(folder / CONFIG_FILE), fields)
    config = MoshiConfig.read(fields)
    names = {
        "weights": f.text("moshi_name", WEIGHTS_FILE),
        "codec": f.text("mimi_name", CODEC_FILE),
        "tokenizer": f.text("tokenizer_name", TOKENIZER_FILE),
    }
    codec_config = folder / f.text("mimi_config_name", "") if f.has("mimi_config_name") else None
    defaults = Fields(f"{folder / CONFIG_FILE} lm_gen_config", dict(_section(fields, "lm_gen_config")))
    sampling = Sampling(
        temperature=defaults.number("temp", Sampling().temperature),
        text_temperature=defaults.number("temp_text", Sampling().text_temperature),
        top_k=defaults.whole("top_k", Sampling().top_k),
        text_top_k=defaults.whole("top_k_text", Sampling().text_top_k),
    )
    codec_path = folder / names["codec"]
    with _enough_memory(str(folder), config, MimiConfig(), placement):
        codec = Mimi.load(
            codec_path,
            max(config.agent, config.user),
            config=codec_config,
            device=placement.device,
            dtype=placement.dtype,
        )
        if codec.config.codebook_size != config.codebook_size:
            raise CodecUnfit(str(codec_path), "codebook_size", codec.config.codebook_size, config.codebook_size)
        if f.has("codec_version") and f.text("codec_version") != codec.identity.version:
            raise CodecUnfit(str(codec_path), "version", codec.identity.version, f.text("codec_version"))
        path = folder / names["weights"]
        translated = translate(read_weights(path, placement.device, but=("condition_provider.",)), config, str(path))
        with torch.device("meta"):
            lm = MoshiLM(config)
        fill(lm, translated, str(path), placement.dtype)
        model = _assemble(lm.eval(), codec, placement, sampling)
    silent = frozenset({config.text_pad, config.text_end_pad})
    tokenizer = load_pieces(folder / names["tokenizer"], config.text_tokens, silent)
    prompts = None
    if config.prompted:
        voices = read_voices(folder, codec.config.sample_rate)
        prompts = prompts_of(config, codec, tokenizer.encode if tokenizer is not None else speechless, voices)
    return LoadedMoshi(model, tokenizer.text if tokenizer is not None else Wordless, prompts)


def random(placement: Placement, *, seed: int = 0, config: MoshiConfig | None = None) -> LoadedMoshi:
    """A model of the true architecture with random weights: what it says is noise, in time.

    Without `config` it is the tiny one, with a codec as tiny; else the codec has its published size. Its text is shown
    as token numbers, since there is no tokenizer for what was never learned.
    """
    geometry = config or MoshiConfig.tiny()
    sizes = MimiConfig.tiny() if config is None else MimiConfig()
    with _enough_memory("random weights", geometry, sizes, placement):
        # On the CPU and in float32 first, so that a seed means the same weights everywhere.
        codec = Mimi.random(sizes, max(geometry.agent, geometry.user), seed=seed)
        lm = MoshiLM.random(geometry, seed=seed)
        lm.to(placement.device, placement.dtype)
        codec.to(placement.device, placement.dtype)
        model = _assemble(lm, codec, placement, Sampling())
    return LoadedMoshi(model, lambda: Numbers(frozenset({geometry.text_pad, geometry.text_end_pad})))


def memory_needed(config: MoshiConfig, codec: MimiConfig, placement: Placement) -> int:
    """Bytes for all weights and the state of all slots; what a step computes with in between is not counted."""
    width = placement.dtype.itemsize
    with torch.device("meta"):
        modules = (MoshiLM(config), Mimi(codec, max(config.agent, config.user)))
        weights = sum(weight.numel() for module in modules for weight in module.parameters())
    rings = 0
    for part, margin, copies in ((config.temporal, placement.margin, 1), (codec.transformer, placement.margin, 2)):
        rings += copies * 2 * part.layers * part.dimension * ring_cells(part, margin)
    return width * (weights + placement.slots * rings)


def _assemble(lm: MoshiLM, codec: Mimi, placement: Placement, sampling: Sampling) -> MoshiSlots:
    slots, margin = placement.slots, placement.margin
    return MoshiSlots(lm, MimiSlots(codec, slots, margin=margin), slots, margin=margin, sampling=sampling)


@contextlib.contextmanager
def _enough_memory(where: str, config: MoshiConfig, codec: MimiConfig, placement: Placement) -> Iterator[None]:
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise OutOfMemory(where, memory_needed(config, codec, placement), placement.slots, placement.device) from error
    except RuntimeError as error:
        # The CPU's allocator has no class of its own for it.
        if "not enough memory" not in str(error) and "can't allocate memory" not in str(error):
            raise
        raise OutOfMemory(where, memory_needed(config, codec, placement), placement.slots, placement.device) from error


def _section(fields: dict[str, object], name: str) -> dict[str, object]:
    section = fields.get(name)
    return section if isinstance(section, dict) else {}
