"""What can go wrong when a Moshi checkpoint is put together, beside what can be wrong with each file."""

from __future__ import annotations

from codec.mimi.errors import CheckpointError


class CodecUnfit(CheckpointError):
    """The codec is not the one that the language model was trained on. `field` is what differs."""

    def __init__(self, where: str, field: str, found: object, wanted: object) -> None:
        super().__init__(
            where,
            f"its {field} is {found!r}, but the language model was trained on {wanted!r}. Use the codec that was "
            "published with the checkpoint",
        )
        self.field = field


class OutOfMemory(CheckpointError):
    """The model does not fit. `needed`: bytes for weights and the state of all slots."""

    def __init__(self, where: str, needed: int, slots: int, device: str) -> None:
        super().__init__(
            where,
            f"about {needed / 1e9:.1f} GB are needed on {device} for the weights and {slots} slots, and were not to be "
            "had. Give fewer --max-sessions, a shorter context, or a device with more memory",
        )
        self.needed = needed


class VoiceUnfit(CheckpointError):
    """A recording beside the checkpoint cannot show the model a voice."""


class TokenizerUnfit(CheckpointError):
    """The text tokenizer cannot be used with this checkpoint."""
