"""Reading files of weights, and giving them to a module, with an error for each way in which that fails."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from .errors import CheckpointMissing, CheckpointTruncated, ConfigInvalid, ShapeMismatch, WeightsMissing


def read_json(path: Path) -> dict[str, object]:
    """A configuration file. Raises CheckpointMissing or ConfigInvalid."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CheckpointMissing(str(path), "there is no such file; give the folder of a whole checkpoint") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(str(path), f"cannot be read ({error}); download it again") from error
    try:
        fields = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigInvalid(str(path), f"is not JSON ({error}); download it again") from error
    if not isinstance(fields, dict):
        raise ConfigInvalid(str(path), "is not a JSON object; download it again")
    return fields


def read_weights(path: Path, device: str | torch.device = "cpu", *, but: tuple[str, ...] = ()) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name, without those whose name begins with one of `but`.

    Raises CheckpointMissing or CheckpointTruncated.
    """
    if not path.is_file():
        raise CheckpointMissing(str(path), "there is no such file; give the folder of a whole checkpoint")
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            return {name: file.get_tensor(name) for name in file.keys() if not name.startswith(but or ("\0",))}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        size = path.stat().st_size
        raise CheckpointTruncated(
            str(path), f"cannot be read as safetensors ({error}); it has {size} bytes: download it again"
        ) from error


def fill(module: nn.Module, weights: Mapping[str, Tensor], where: str, dtype: torch.dtype) -> None:
    """Give `module`, which may be on the meta device, exactly its tensors, as `dtype`.

    Raises WeightsMissing or ShapeMismatch; then nothing was changed.
    """
    wanted = module.state_dict()
    missing = sorted(wanted.keys() - weights.keys())
    unknown = sorted(weights.keys() - wanted.keys())
    if missing or unknown:
        raise WeightsMissing(where, missing, unknown)
    for name, tensor in wanted.items():
        if weights[name].shape != tensor.shape:
            raise ShapeMismatch(where, name, tuple(weights[name].shape), tuple(tensor.shape))
    module.load_state_dict({name: weights[name].to(dtype) for name in wanted}, assign=True)
    module.requires_grad_(False)
