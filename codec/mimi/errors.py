"""What can be wrong with a checkpoint of weights, each with its remedy."""

from __future__ import annotations

from collections.abc import Sequence


class CheckpointError(Exception):
    """A checkpoint cannot be used. `where`: the file, or the file and the field; the message ends with the remedy."""

    def __init__(self, where: str, message: str) -> None:
        super().__init__(f"{where}: {message}")
        self.where = where


class CheckpointMissing(CheckpointError):
    """A file of the checkpoint is not there."""


class CheckpointTruncated(CheckpointError):
    """A file of weights is cut short or damaged."""


class ConfigInvalid(CheckpointError):
    """A field of a checkpoint's configuration is missing, wrong or not supported. `where` names it."""


class WeightsMissing(CheckpointError):
    """Weights that the architecture needs are not in the file, or the file has some that it does not know."""

    def __init__(self, where: str, missing: Sequence[str], unknown: Sequence[str]) -> None:
        parts = [f"{text} {_few(names)}" for text, names in (("lacks", missing), ("does not know", unknown)) if names]
        super().__init__(where, f"{'; '.join(parts)}. The file belongs to another architecture or configuration")
        self.missing = tuple(missing)
        self.unknown = tuple(unknown)


class ShapeMismatch(CheckpointError):
    """A tensor has another shape than the configuration says. `name` is the tensor."""

    def __init__(self, where: str, name: str, found: Sequence[int], wanted: Sequence[int]) -> None:
        super().__init__(
            where,
            f"{name} has shape {list(found)}, the configuration asks for {list(wanted)}. Use the configuration that "
            "was published with these weights",
        )
        self.name = name


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(names[:4])
    return shown if len(names) <= 4 else f"{shown} and {len(names) - 4} more"
