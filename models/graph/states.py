"""The six kinds of state that flow between the stages of a model, and what may be done with each.

Each has its own life: how long it is kept, what must agree before it may serve a second request, and over what it may
travel. That a state can be written as bytes says nothing about whether it may be reused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class StateKind(Enum):
    """What flows along an edge. The values are what is printed and sent."""

    TOKEN = "token"
    """Symbols of a vocabulary: text, or a modality that was made discrete."""
    KV = "kv"
    """Keys and values of one attention layer for positions that it has already read."""
    FEATURE = "feature"
    """Vectors of an encoder, with or without the projection to the backbone's width."""
    LATENT = "latent"
    """The variable that a diffusion model refines step by step."""
    CODE = "code"
    """Indices into the codebooks of an audio codec."""
    SESSION = "session"
    """What a live session holds: input not yet consumed, what was played, where it stands."""


class Lifetime(Enum):
    """How long a state of a kind is kept."""

    REQUEST = "the request that made it"
    SEQUENCE = "the sequence that attends to it"
    CONTENT = "as long as its budget keeps it"
    GENERATION = "one generation, all its steps"
    ACOUSTIC_CONTEXT = "until its decoder has played it"
    SESSION = "the session, and a stated retention"


class Agreement(Enum):
    """What must be the same before a state may be used a second time."""

    TENANT = "tenant"
    CONTENT = "content"
    PREFIX = "exact prefix"
    POSITIONS = "positions"
    MODEL = "model version"
    TOKENIZER = "tokenizer version"
    PREPROCESSING = "preprocessing"
    ENCODER = "encoder version"
    CODEC = "codec identity"


class Placement(Enum):
    """How an edge's payload gets from one stage to the next."""

    SAME_DEVICE = "same device"
    """By reference; nothing is copied."""
    SAME_HOST = "same host"
    """To another process or device of this machine: shared memory, peer copy."""
    REMOTE = "remote"
    """To another machine; needs a checksum and a deadline."""
    RECOMPUTE = "recompute"
    """Not moved: the receiver makes it again from what came before."""


@dataclass(frozen=True, slots=True)
class StateRule:
    """What holds for one kind of state. `agreements`: None where a second request may never use it."""

    lifetime: Lifetime
    agreements: frozenset[Agreement] | None
    placements: frozenset[Placement]
    danger: str

    @property
    def reusable(self) -> bool:
        """Whether another request may be served from it at all, given that `agreements` hold."""
        return self.agreements is not None


_SAME = frozenset({Placement.SAME_DEVICE})
_LOCAL = _SAME | {Placement.SAME_HOST}
_ANYWHERE = _LOCAL | {Placement.REMOTE}

RULES: Mapping[StateKind, StateRule] = {
    StateKind.TOKEN: StateRule(
        Lifetime.REQUEST,
        frozenset({Agreement.TENANT, Agreement.CONTENT, Agreement.TOKENIZER}),
        _ANYWHERE | {Placement.RECOMPUTE},
        "order, vocabulary version and positions",
    ),
    StateKind.KV: StateRule(
        Lifetime.SEQUENCE,
        frozenset({Agreement.TENANT, Agreement.PREFIX, Agreement.MODEL, Agreement.POSITIONS}),
        # It is read whole at every step, so it stays in the memory of the device that decodes.
        _SAME | {Placement.RECOMPUTE},
        "memory that stays taken, and hits across tenants or versions",
    ),
    StateKind.FEATURE: StateRule(
        Lifetime.CONTENT,
        frozenset({Agreement.TENANT, Agreement.CONTENT, Agreement.PREPROCESSING, Agreement.ENCODER}),
        _ANYWHERE | {Placement.RECOMPUTE},
        "resolution, frame rate and place in time; large tensors",
    ),
    StateKind.LATENT: StateRule(
        Lifetime.GENERATION,
        # It begins as noise, so equal conditions do not make it equal.
        None,
        _LOCAL | {Placement.RECOMPUTE},
        "read and written at every step; the noise schedule; recovery in the middle",
    ),
    StateKind.CODE: StateRule(
        Lifetime.ACOUSTIC_CONTEXT,
        frozenset({Agreement.TENANT, Agreement.CONTENT, Agreement.CODEC}),
        _ANYWHERE,
        "order of codebooks, frame rate, jitter and where it may be cut",
    ),
    StateKind.SESSION: StateRule(
        Lifetime.SESSION,
        None,
        _ANYWHERE,
        "leaks, orphans after a failure, a time axis that drifts",
    ),
}
