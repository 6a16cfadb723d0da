"""What an engine draws from, so that a session can be played again as it was."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from sessions.core.records import Plain


@dataclass(frozen=True, slots=True)
class Origin:
    """`seed` of the engine, and what its model is told of an interruption. Plain data: workers tell it."""

    seed: int
    policy: str

    def of(self, session: str) -> dict[str, Plain]:
        """What the manifest of a recording of `session` says of it (see `sessions.ports.Repeats`)."""
        return {"seed": session_seed(self.seed, session), "policy": self.policy}


def session_seed(seed: int, session: str) -> int:
    """What a session draws from, 0..2**31-1: the same for the same id, so that it can be played again."""
    digest = hashlib.blake2b(f"{seed}:{session}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") >> 1
