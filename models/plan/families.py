"""From what was asked for to sizes: a published model, a checkpoint's own files, or the tiny configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ..checkpoint import Checkpoint, CheckpointError, Table
from ..descriptor import Absent
from ..family import Family
from ..registry import FAMILIES, Model, load, models
from .figures import PlanError
from .geometry import ITEM, Attention, Geometry, Part

if TYPE_CHECKING:
    import torch

DTYPES = ("bfloat16", "float16", "float32", "int8")
TINY = ("moshi", "qwen3-omni")

_BACKBONES = ("", "text_config", "llm_config", "language_config", "thinker_config.text_config")
"""Where configurations of `transformers` hold the language model's sizes."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A model with its graph, and its sizes."""

    model: Model
    geometry: Geometry


def planned(
    name: str,
    *,
    checkpoint: Path | None = None,
    tiny: bool = False,
    dtype: str | None = None,
    context: int | None = None,
) -> Planned:
    """The model `name` (a family, or one of its published variants). Raises PlanError, CheckpointError and others that
    say what is wrong with a checkpoint."""
    if dtype is not None and dtype not in ITEM:
        raise PlanError("--dtype", f"{dtype!r} must be one of {', '.join(DTYPES)}")
    family, model = _find(name)
    if checkpoint is not None and tiny:
        raise PlanError("--random-weights", "there is a checkpoint already; give one of the two")
    if checkpoint is not None:
        if not checkpoint.is_dir():
            raise PlanError("--checkpoint", f"{checkpoint}: there is no such folder")
        model = load(checkpoint)
        if model.family.name != family.name:
            raise PlanError("--family", f"by its own files {checkpoint} is {model.family.name}, not {family.name}")
    if tiny and family.name not in TINY:
        raise PlanError("--random-weights", f"only {' and '.join(TINY)} have a tiny configuration")
    return Planned(model, _geometry(family, model, checkpoint, tiny, dtype, context))


def _find(name: str) -> tuple[Family, Model]:
    known = models()
    if name in known:
        return known[name].family, known[name]
    for family in FAMILIES:
        if family.name == name:
            first = next(iter(family.published))
            return family, known[first]
    listed = ", ".join(sorted({*known, *(family.name for family in FAMILIES)}))
    raise PlanError("--family", f"there is no {name!r}; choose one of {listed}")


def _geometry(
    family: Family, model: Model, checkpoint: Path | None, tiny: bool, dtype: str | None, context: int | None
) -> Geometry:
    if family.name == "moshi" and (checkpoint is not None or tiny or model.name in ("moshi", "personaplex")):
        return _moshi(model, checkpoint, tiny, dtype, context)
    if family.name == "qwen3-omni":
        return _qwen(model, checkpoint, tiny, dtype, context)
    if family.name == "embedded":
        return _embedded(context)
    if checkpoint is None:
        raise PlanError(
            "--checkpoint",
            f"no source states the sizes of {model.name}; give the folder of its checkpoint (its weights "
            "need not be there, only their headers)",
        )
    return _from_files(Checkpoint(checkpoint), family.name, dtype, context)


def _moshi(model: Model, checkpoint: Path | None, tiny: bool, dtype: str | None, context: int | None) -> Geometry:
    _needs("torch", "native")
    from codec.mimi.config import MimiConfig

    from ..families.moshi.config import MoshiConfig
    from . import moshi

    wanted = _torch_dtype(dtype or ("float32" if tiny else "bfloat16"))
    if checkpoint is not None:
        return moshi.from_folder(checkpoint, wanted, context=context)
    if tiny:
        source = "the tiny configuration of this project"
        return moshi.geometry(MoshiConfig.tiny(), MimiConfig.tiny(), wanted, source, context=context)
    source = "Moshi's published 7 B configuration"
    if model.name != "moshi":
        source += f" ({model.name} is fine-tuned from it)"
    return moshi.geometry(MoshiConfig.published(), MimiConfig(), wanted, source, context=context)


def _qwen(model: Model, checkpoint: Path | None, tiny: bool, dtype: str | None, context: int | None) -> Geometry:
    _needs("torch", "native")
    _needs("transformers", "native")
    from . import qwen3_omni

    wanted = _torch_dtype(dtype or ("float32" if tiny else "bfloat16"))
    if tiny:
        return qwen3_omni.tiny(wanted, context=context)
    if checkpoint is not None:
        found = qwen3_omni.of_folder(checkpoint)
        return qwen3_omni.geometry(found, wanted, f"{checkpoint.name}/config.json", context=context)
    speaks = not isinstance(model.descriptor.talker, Absent)
    found = qwen3_omni.published(speaks=speaks)
    return qwen3_omni.geometry(found, wanted, qwen3_omni.SOURCE, context=context)


def _torch_dtype(name: str) -> torch.dtype:
    import torch

    found = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}.get(name)
    if found is None:
        raise PlanError("--dtype", f"{name} is not what this model's engine computes in; choose bfloat16 or float32")
    return found


def _needs(package: str, extra: str) -> None:
    if find_spec(package) is None:
        raise PlanError("--family", f"this model's sizes need the package {package}: pip install 'talkover[{extra}]'")


def _embedded(context: int | None) -> Geometry:
    """The cascade: files as they lie in the cache, keys and values of its language model in float32."""
    from ..assets import ensure, ready

    names = ("silero-vad", "smart-turn", "whisper-base", "smollm2", "hibari")
    unprepared = [name for name in names if not ready(name)]
    if unprepared:
        raise PlanError("--family", f"{', '.join(unprepared)}: not prepared here yet; `talkover prepare` does that")
    folders = ensure(names)
    positions = min(context or 2048, 2048)
    parts = []
    for name in names:
        size = sum(path.stat().st_size for path in folders[name].rglob("*") if path.is_file())
        attention = (Attention("thinker", 30, 3, 64, positions, 4),) if name == "smollm2" else ()
        parts.append(Part(name, size, 1, attention=attention))
    return Geometry(
        model="embedded",
        dtype="int8",
        parts=parts,
        tick=None,
        source="the prepared files in the cache",
        context=positions,
        missing=("what the runtimes unpack their files to", "audio that a session keeps: 32 kB for each second"),
    )


def _from_files(checkpoint: Checkpoint, family: str, dtype: str | None, context: int | None) -> Geometry:
    """Any checkpoint: weights by the headers of its files, keys and values of the one language model it states."""
    config = checkpoint.table()
    tensors = checkpoint.tensors
    if config is None or tensors is None:
        lost = "config.json" if config is None else "safetensors files"
        raise CheckpointError(lost, f"is not in {checkpoint.folder}; sizes are read from it")
    found = _backbone(config)
    if found is None:
        raise PlanError("--checkpoint", f"{checkpoint.folder}/config.json states no layers and key-value heads")
    layers, heads, width, most = found
    cells = min(context or most or 8192, most or 1 << 30)
    weights = sum(_bytes(info.dtype, info.shape) for info in tensors.values())
    item = ITEM[dtype or "bfloat16"]
    part = Part("all weights", weights, item, attention=(Attention("llm", layers, heads, width, cells, item),))
    return Geometry(
        model=family,
        dtype=dtype or "bfloat16",
        parts=(part,),
        tick=None,
        source=f"{checkpoint.folder.name}: headers of its weights and config.json",
        context=cells,
        missing=("talker and codec state", "how many of its experts a step reads"),
    )


def _backbone(config: Table) -> tuple[int, int, int, int | None] | None:
    """Layers, key-value heads, width of a head, positions."""
    for place in _BACKBONES:
        table = config.table(place) if place else config
        if table is None:
            continue
        layers, heads = table.integer("num_hidden_layers"), table.integer("num_attention_heads")
        hidden = table.integer("hidden_size")
        if layers and heads and hidden:
            width = table.integer("head_dim") or hidden // heads
            return (
                layers,
                table.integer("num_key_value_heads") or heads,
                width,
                table.integer("max_position_embeddings"),
            )
    return None


_WIDTHS: Mapping[str, int] = {"F32": 4, "I32": 4, "U32": 4, "F64": 8, "I64": 8, "U64": 8, "BF16": 2, "F16": 2, "I16": 2}


def _bytes(dtype: str, shape: tuple[int, ...]) -> int:
    size = _WIDTHS.get(dtype, 1)
    for axis in shape:
        size *= axis
    return size


def with_symbols(found: Planned) -> Model:
    """The model with what its sizes say about the graph's symbols."""
    symbols = {**found.geometry.symbols, **found.model.descriptor.symbols}
    return replace(found.model, descriptor=replace(found.model.descriptor, symbols=symbols))
