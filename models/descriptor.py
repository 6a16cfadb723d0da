"""The capability descriptor: what one checkpoint can really do, each fact with the place that states it.

Checkpoint, tokenizer, encoders, router, talker or head and codec are bound in one value that cannot be taken apart.
Facts come from the checkpoint's own files, and where those are silent from what its authors published; never from the
name of the folder. What nobody states is `UNDETERMINED`, which is a value: it is shown, compared, and refused where a
session would rely on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Final, Generic, TypeAlias, TypeVar

from codec.identity import CodecIdentity

from .checkpoint import Checkpoint
from .graph.parts import Medium
from .graph.shapes import Shape, ShapeMismatch

T = TypeVar("T")


class Undetermined(Enum):
    """The type of `UNDETERMINED`."""

    UNDETERMINED = "undetermined"

    def __str__(self) -> str:
        return self.value


UNDETERMINED: Final = Undetermined.UNDETERMINED
"""No source states it."""


@dataclass(frozen=True, slots=True)
class Stated(Generic[T]):
    """`source` states that it is `value`."""

    value: T
    source: str

    def __str__(self) -> str:
        return str(self.value).lower() if isinstance(self.value, bool) else str(self.value)


@dataclass(frozen=True, slots=True)
class Absent:
    """`source` states that there is none."""

    source: str

    def __str__(self) -> str:
        return "none"


Fact: TypeAlias = "Stated[T] | Absent | Undetermined"


def stated(value: T | None, source: str) -> Fact[T]:
    """`value` with its source; nothing found is undetermined."""
    return UNDETERMINED if value is None else Stated(value, source)


class DescriptorError(ValueError):
    """A checkpoint is not what is asked for."""


class CannotSpeak(DescriptorError):
    """A voice session was asked of a checkpoint that cannot hold one. `missing` names the parts that it lacks."""

    def __init__(self, message: str, missing: tuple[str, ...]) -> None:
        super().__init__(message)
        self.missing = missing


class DescriptorMismatch(DescriptorError):
    """The weights are not those that the configuration describes. `tensor` names the first that differs."""

    def __init__(self, tensor: str, message: str) -> None:
        super().__init__(f"{tensor}: {message}")
        self.tensor = tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilityDescriptor:
    """What a checkpoint binds together. Text facts are for people; what code compares has a type of its own."""

    family: str
    variant: Fact[str] = UNDETERMINED
    checkpoint: Fact[str] = UNDETERMINED
    """Digest of its configuration files and of its weights' names and sizes."""
    tokenizer: Fact[str] = UNDETERMINED
    audio_encoder: Fact[str] = UNDETERMINED
    image_encoder: Fact[str] = UNDETERMINED
    video_encoder: Fact[str] = UNDETERMINED
    backbone: Fact[str] = UNDETERMINED
    router: Fact[str] = UNDETERMINED
    talker: Fact[str] = UNDETERMINED
    """The talker or head that decides what is said aloud."""
    speech_decoder: Fact[str] = UNDETERMINED
    """What turns the talker's codes, tokens or latents into sound."""
    codec: Fact[CodecIdentity] = UNDETERMINED
    image_head: Fact[str] = UNDETERMINED
    video_head: Fact[str] = UNDETERMINED
    input_rate: Fact[int] = UNDETERMINED
    """Hz of the audio that it hears."""
    output_rate: Fact[int] = UNDETERMINED
    """Hz of the audio that it makes."""
    interruptible: Fact[bool] = UNDETERMINED
    """Whether it can be stopped in the middle of speech and its session goes on."""
    rewindable: Fact[bool] = UNDETERMINED
    """Whether its state can go back to what was heard."""
    prompt: Fact[str] = UNDETERMINED
    """What it can be told before a session begins."""
    context: Fact[int] = UNDETERMINED
    """Positions (duplex models: frames) that it attends to."""
    bounded: Fact[bool] = UNDETERMINED
    """Whether a session must end at `context`; if not, a window moves."""
    symbols: Mapping[str, int] = field(default_factory=dict)
    """Sizes of the graph's symbols that the checkpoint states."""

    def facts(self) -> Mapping[str, Fact[object]]:
        """All facts by name, in order."""
        return {
            entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name not in ("family", "symbols")
        }

    @property
    def hears(self) -> tuple[Medium, ...]:
        """Media besides text that it takes, as far as that is stated."""
        encoders = {
            Medium.AUDIO: self.audio_encoder,
            Medium.IMAGE: self.image_encoder,
            Medium.VIDEO: self.video_encoder,
        }
        return tuple(medium for medium, fact in encoders.items() if isinstance(fact, Stated))

    @property
    def speaks(self) -> bool:
        """Whether both what is needed for speech and how it becomes sound are stated."""
        return isinstance(self.talker, Stated) and isinstance(self.speech_decoder, Stated)


SPEECH_PARTS: Mapping[str, str] = {"talker": "talker", "speech_decoder": "speech decoder", "output_rate": "output rate"}
"""Facts that a voice session relies on, and how they are called."""


def require_voice(descriptor: CapabilityDescriptor) -> None:
    """Raises CannotSpeak naming every part that the checkpoint lacks, or does not state, for a voice session."""
    facts = descriptor.facts()
    lacking = {name: facts[name] for name in SPEECH_PARTS if not isinstance(facts[name], Stated)}
    if not lacking:
        return
    told = "; ".join(
        f"it has no {SPEECH_PARTS[name]} ({fact.source})"
        if isinstance(fact, Absent)
        else f"no source states its {SPEECH_PARTS[name]}"
        for name, fact in lacking.items()
    )
    raise CannotSpeak(
        f"{descriptor.family}: a voice session cannot be held with this checkpoint: {told}. Choose a checkpoint that "
        "speaks (`talkover models list`), or let it think and another model speak",
        tuple(lacking),
    )


def check_weights(checkpoint: Checkpoint, expected: Mapping[str, Shape], symbols: Mapping[str, int]) -> int:
    """How many of `expected` tensors were compared; 0 where the weights cannot be looked into without loading them.

    Raises DescriptorMismatch for a tensor that is missing or has another shape than the configuration says, and
    CheckpointError for weights that are cut off.
    """
    tensors = checkpoint.tensors
    if tensors is None:
        return 0
    known = dict(symbols)
    for name, shape in expected.items():
        if name not in tensors:
            raise DescriptorMismatch(
                name,
                "the configuration calls for this tensor and the weights do not hold it; the two do not belong "
                "together, or the checkpoint is not whole",
            )
        try:
            known = shape.match(tensors[name].shape, known)
        except ShapeMismatch as mismatch:
            raise DescriptorMismatch(
                name,
                f"the configuration says [{shape.given(symbols)}], the weights have "
                f"{list(tensors[name].shape)} ({mismatch}); the two do not belong together",
            ) from None
    return len(expected)
