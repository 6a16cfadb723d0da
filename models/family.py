"""What a model family brings: how its checkpoints are recognised and described, and its graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .checkpoint import Checkpoint
from .descriptor import UNDETERMINED, CapabilityDescriptor, Fact, Stated, stated
from .graph.graph import ModelGraph
from .graph.shapes import Shape


def _no_tensors(checkpoint: Checkpoint, descriptor: CapabilityDescriptor) -> Mapping[str, Shape]:
    return {}


@dataclass(frozen=True, slots=True)
class Family:
    """One family of checkpoints.

    `published`: for each variant that its authors name, what they publish about it; a fact that only a checkpoint
    states is undetermined there. `recognises` and `describe` read a checkpoint's own files and raise CheckpointError.
    `tensors`: what its weights must hold, as far as that binds descriptor and weights.
    """

    name: str
    about: str
    published: Mapping[str, CapabilityDescriptor]
    recognises: Callable[[Checkpoint], bool]
    describe: Callable[[Checkpoint], CapabilityDescriptor]
    graph: Callable[[CapabilityDescriptor], ModelGraph]
    tensors: Callable[[Checkpoint, CapabilityDescriptor], Mapping[str, Shape]] = _no_tensors
    served: bool = False
    """Whether this server has an engine for it."""
    sources: tuple[str, ...] = ()
    """Where the published facts stand."""


def tokenizer_of(checkpoint: Checkpoint) -> Fact[str]:
    """The text tokenizer in transformers' layout: its class and a digest of its vocabulary."""
    table = checkpoint.table("tokenizer_config.json")
    kind = table.text("tokenizer_class") if table else None
    digest = checkpoint.digest_of("tokenizer.json", "vocab.json", "tokenizer.model")
    if kind is None and digest is None:
        return UNDETERMINED
    return stated(" ".join(part for part in (kind, digest) if part), "tokenizer files")


def input_rate_of(checkpoint: Checkpoint) -> Fact[int]:
    """Hz that the checkpoint's own feature extractor takes."""
    table = checkpoint.table("preprocessor_config.json")
    return stated(table.integer("sampling_rate") if table else None, "preprocessor_config.json: sampling_rate")


def bounded_by(context: Fact[int]) -> Fact[bool]:
    """A model that knows so many positions ends there, unless its authors state that a window moves."""
    return Stated(True, context.source) if isinstance(context, Stated) else UNDETERMINED


def symbols_of(**sizes: int | None) -> dict[str, int]:
    """Symbols of those sizes that are known."""
    return {name: size for name, size in sizes.items() if size is not None}
