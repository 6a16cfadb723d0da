"""All model families, by name and by what a checkpoint's own files say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .checkpoint import Checkpoint, CheckpointError, short
from .descriptor import CapabilityDescriptor, check_weights, require_voice
from .families.catalog import (
    anygpt,
    bagel,
    embedded,
    ming_flash_omni,
    ming_omni,
    minicpm_o,
    moshi,
    next_gpt,
    qwen3_omni,
    transfusion,
)
from .family import Family
from .graph.graph import ModelGraph

FAMILIES: tuple[Family, ...] = (
    embedded.FAMILY,
    moshi.FAMILY,
    qwen3_omni.FAMILY,
    minicpm_o.FAMILY,
    ming_omni.FAMILY,
    ming_flash_omni.FAMILY,
    next_gpt.FAMILY,
    anygpt.FAMILY,
    transfusion.FAMILY,
    bagel.FAMILY,
)


class UnknownModel(LookupError):
    """No family has this name, or no family recognises this checkpoint. The message says which there are."""


@dataclass(frozen=True, slots=True)
class Model:
    """A descriptor with its family; `compared` counts tensors whose shapes were compared with it."""

    name: str
    family: Family
    descriptor: CapabilityDescriptor
    compared: int = 0

    @property
    def served(self) -> bool:
        """Whether this server has an engine for it; none holds a session with what does not speak."""
        return self.family.served and self.descriptor.speaks

    @property
    def graph(self) -> ModelGraph:
        return self.family.graph(self.descriptor)


def models() -> Mapping[str, Model]:
    """Every published variant by name, as its authors describe it."""
    return {
        name: Model(name, family, descriptor) for family in FAMILIES for name, descriptor in family.published.items()
    }


def find(name_or_path: str) -> Model:
    """A published variant by its name, or the checkpoint in a folder as its own files describe it.

    A name wins over a folder of that name; write `./NAME` for the folder. Raises UnknownModel, CheckpointError and
    DescriptorMismatch.
    """
    known = models()
    if name_or_path in known:
        return known[name_or_path]
    path = Path(name_or_path)
    if path.exists():
        return load(path)
    raise UnknownModel(
        f"{name_or_path}: neither a folder nor one of {', '.join(known)}; give one of these names, or the folder of a "
        "checkpoint"
    )


def load(folder: Path) -> Model:
    """The checkpoint in `folder`, recognised and described by its files alone, its weights' shapes compared.

    Raises UnknownModel, CheckpointError and DescriptorMismatch.
    """
    checkpoint = Checkpoint(folder)
    for family in FAMILIES:
        if _recognises(family, checkpoint):
            descriptor = family.describe(checkpoint)
            compared = check_weights(checkpoint, family.tensors(checkpoint, descriptor), descriptor.symbols)
            return Model(str(folder), family, descriptor, compared)
    table = checkpoint.table()
    if table is None:
        raise CheckpointError("config.json", f"is not in {folder}; give the folder that holds it")
    kind, known = short(table.at("model_type")), ", ".join(family.name for family in FAMILIES)
    raise UnknownModel(
        f"{folder}: no family recognises this checkpoint (its config.json has model_type {kind}); known are {known}"
    )


def _recognises(family: Family, checkpoint: Checkpoint) -> bool:
    """A file that one family cannot read may be no matter to another; if it is one to all, `load` says so."""
    try:
        return family.recognises(checkpoint)
    except CheckpointError:
        return False


def load_for_voice(folder: Path) -> Model:
    """`load`, for a voice session. Raises CannotSpeak as well, naming the parts that are missing."""
    model = load(folder)
    require_voice(model.descriptor)
    return model
