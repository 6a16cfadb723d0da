"""Weights on disk: half-precision safetensors that say which codec they are and prove that they are whole.

The metadata holds the sizes, the identity and the SHA-256 of all of it. A file that was cut short, changed or made for
another codec is refused by what is wrong with it, before a single frame is decoded.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from torch import nn

from ..columns import by_columns
from ..identity import CodecIdentity, CodecIdentityError
from .layers import CausalConv, Patches
from .model import ModelConfigError, RvqCodec, RvqConfig
from .shipped import SHIPPED

FORMAT = "talkover-rvq-1"

Weights = Mapping[str, NDArray[np.float16]]


class CheckpointError(Exception):
    """A checkpoint cannot be used. `reason` is for programs: `missing`, `damaged`, `foreign` (not of this codec),
    `mismatch` (sizes and weights disagree), `memory`; the message names the file and a remedy."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A codec ready to use, and the identity of its codes with all codebooks.

    Use fewer with `StreamingRvqEncoder(..., codebooks=8)`; the codes then have `identity.with_codebooks(8)`.
    """

    codec: RvqCodec
    identity: CodecIdentity


def save_checkpoint(path: Path, codec: RvqCodec, version: str) -> CodecIdentity:
    """Write `codec` as float16, whole or not at all. `version` names its codes: give another whenever the encoder or
    the codebooks have changed, since old codes then mean something else. Raises CodecIdentityError."""
    identity = codec.config.identity(version)
    weights = {
        name: value.detach().cpu().numpy().astype(np.float16, order="C") for name, value in codec.state_dict().items()
    }
    metadata = {
        "format": FORMAT,
        "config": json.dumps(dataclasses.asdict(codec.config), sort_keys=True),
        "identity": json.dumps(identity.to_record(), sort_keys=True),
    }
    metadata["sha256"] = _digest(metadata, weights)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_bytes(save(weights, metadata))
    partial.replace(path)
    return identity


def load_checkpoint(path: Path = SHIPPED) -> Checkpoint:
    """Read a checkpoint and check it. Takes about 80 MB while it loads. Raises CheckpointError."""
    if not path.is_file():
        raise CheckpointError("missing", f"{path} is not there; install the package again or give another checkpoint")
    try:
        with safe_open(str(path), framework="numpy") as file:
            metadata: dict[str, str] = dict(file.metadata() or {})
            if metadata.get("format") != FORMAT:
                found = metadata.get("format", "no format")
                raise CheckpointError(
                    "foreign", f"{path} has {found!r}, not {FORMAT!r}; give a checkpoint of this codec"
                )
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # it is no mapping
    except (SafetensorError, OSError) as error:
        raise CheckpointError("damaged", f"{path}: {error}; fetch it again") from error
    except MemoryError as error:
        raise CheckpointError("memory", f"{path}: not enough memory to load it; about 80 MB are needed") from error
    if metadata.get("sha256") != _digest(metadata, weights):
        raise CheckpointError(
            "damaged", f"{path}: its content has another SHA-256 than it was written with; fetch it again"
        )
    try:
        config = RvqConfig.from_record(json.loads(metadata["config"]))
        identity = CodecIdentity.from_record(json.loads(metadata["identity"]))
        codec = RvqCodec(config)
        if identity != config.identity(identity.version):
            raise CheckpointError("mismatch", f"{path}: it says that it is {identity}, but its sizes are {config}")
        codec.load_state_dict({name: torch.from_numpy(value.astype(np.float32)) for name, value in weights.items()})
    except (KeyError, ValueError, ModelConfigError, CodecIdentityError, RuntimeError) as error:
        raise CheckpointError("mismatch", f"{path}: {error}") from error
    except MemoryError as error:
        raise CheckpointError("memory", f"{path}: not enough memory to load it; about 80 MB are needed") from error
    by_columns(layer for layer in codec.modules() if isinstance(layer, nn.Linear | Patches | CausalConv))
    return Checkpoint(codec.eval().requires_grad_(False), identity)


def _digest(metadata: Mapping[str, str], weights: Weights) -> str:
    """SHA-256 over the metadata without the digest itself, and over every tensor's name, shape, type and bytes.

    Each part goes in with its length, so that two contents never look alike.
    """
    digest = hashlib.sha256()

    def put(part: bytes) -> None:
        digest.update(struct.pack("<Q", len(part)))
        digest.update(part)

    for name in sorted(metadata.keys() - {"sha256"}):
        put(name.encode())
        put(metadata[name].encode())
    for name in sorted(weights):
        put(name.encode())
        put(f"{weights[name].dtype.str} {weights[name].shape}".encode())
        put(np.ascontiguousarray(weights[name]).tobytes())
    return digest.hexdigest()
