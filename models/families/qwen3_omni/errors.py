"""What can go wrong when a Qwen3-Omni checkpoint is put together, beside what can be wrong with each file."""

from __future__ import annotations

from ...checkpoint import CheckpointError


class PartsUnfit(CheckpointError):
    """Two parts of a checkpoint do not belong together. `field` is what differs."""

    def __init__(self, where: str, field: str, found: object, wanted: object) -> None:
        super().__init__(
            where, f"its {field} is {found!r}, but the part that it works with has {wanted!r}; use parts of one release"
        )
        self.field = field


class OutOfMemory(CheckpointError):
    """The model does not fit. `needed`: bytes for weights and the state of all rows."""

    def __init__(self, where: str, needed: int, rows: int, device: str) -> None:
        super().__init__(
            where,
            f"about {needed / 1e9:.1f} GB are needed on {device} for the weights and {rows} sequences, and were not to "
            "be had. Give fewer --max-sessions, or devices with more memory",
        )
        self.needed = needed


class MediaError(ValueError):
    """A medium cannot be used. `code` says why, the message what to do."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
