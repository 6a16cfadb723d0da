"""What a worker and the process that it works for tell one another. Plain data, so that any transport can carry it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sessions.core.config import SessionConfig
from sessions.core.events import EngineFailed, EngineStage, Event
from sessions.core.fence import Fence
from sessions.core.timeline import Ticks
from sessions.ports import EngineCapabilities, PerceptionCapabilities

from ..envelope import TransferEnvelope, Versions
from ..slots.origin import Origin

# --- to the worker --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Open:
    """Begin a session, or go on with it under another fence."""

    fence: Fence
    config: SessionConfig


@dataclass(frozen=True, slots=True)
class Chunk:
    """One frame of the user, at the model's rate and aligned to its frames."""

    envelope: TransferEnvelope
    pcm: bytes


@dataclass(frozen=True, slots=True)
class Advance:
    fence: Fence


@dataclass(frozen=True, slots=True)
class Rewind:
    """A new epoch holds, and nothing of the agent from `heard` on its track on was heard."""

    fence: Fence
    heard: Ticks


@dataclass(frozen=True, slots=True)
class Close:
    """Names the owner who closes: one that was superseded must not end its successor's session."""

    fence: Fence


@dataclass(frozen=True, slots=True)
class Stop:
    """End all sessions and the worker."""


Side: TypeAlias = Literal["engine", "perception"]
"""The port that something is about, in a worker that has both."""


@dataclass(frozen=True, slots=True)
class Call:
    """A method of a port. `placing`: of the session on this worker, where the method opens one."""

    side: Side
    method: str
    arguments: tuple[object, ...]
    placing: int = 0


Command: TypeAlias = Open | Chunk | Advance | Rewind | Close | Stop | Call

# --- from the worker ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Loading:
    """What is being done, and the fraction of all work that is done (0..1)."""

    stage: str
    fraction: float


@dataclass(frozen=True, slots=True)
class Ready:
    """It works. `slots`: sessions at a time; `hop`: samples of a frame at the capabilities' output rate, or 0 where it
    answers no frames; `perception`: of one that hears as well; `origin`: of one whose sessions can be run again."""

    capabilities: EngineCapabilities
    slots: int
    hop: int
    versions: Versions
    perception: PerceptionCapabilities | None = None
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """An error that crossed the border: where its class lives, what it says, and its plain attributes."""

    module: str
    name: str
    message: str
    attributes: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of the agent; `speaking` and `text` as in `DuplexFrame`."""

    envelope: TransferEnvelope
    pcm: bytes
    speaking: bool
    text: str


@dataclass(frozen=True, slots=True)
class Told:
    """Something happened to a session."""

    event: EngineFailed | EngineStage


@dataclass(frozen=True, slots=True)
class Beat:
    """It lives. `tick_age`: seconds since its last tick, None while nobody is there to tick for."""

    counters: Mapping[str, int]
    tick_age: float | None


@dataclass(frozen=True, slots=True)
class Said:
    """What a port emitted for a session under that `placing`."""

    side: Side
    session: str
    placing: int
    event: Event
    pcm: bytes | None


Note: TypeAlias = Loading | Ready | LoadFailed | Frame | Told | Beat | Said
Message: TypeAlias = Command | Note
