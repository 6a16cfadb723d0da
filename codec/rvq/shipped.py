"""The checkpoint that comes with the product: where it lies and whose codes it makes, told without torch."""

from __future__ import annotations

import json
import struct
from pathlib import Path

from ..identity import CodecIdentity, CodecIdentityError

SHIPPED: Path = Path(__file__).parent / "weights" / "talkover-rvq-1.safetensors"

_MAX_HEADER = 1 << 20


def identity_of(path: Path = SHIPPED) -> CodecIdentity | None:
    """The identity that a checkpoint states in its header; None where there is no file, or none of this codec.

    Nothing else of the file is looked at: `load_checkpoint` checks what it holds.
    """
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(min(length, _MAX_HEADER)))
        return CodecIdentity.from_record(json.loads(header["__metadata__"]["identity"]))
    except (OSError, struct.error, ValueError, TypeError, KeyError, AttributeError, CodecIdentityError):
        return None
