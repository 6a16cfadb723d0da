"""The three ports of a session. Calls are one-way and never block; results come back as events.

Engine and perception may compute on any thread: `emit` is safe to call from all of them. PCM everywhere here is
mono, signed 16-bit little-endian, as `bytes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, Protocol, runtime_checkable

from .core.config import SessionConfig
from .core.context import ContextEntry, ImageRef
from .core.effects import AssessTurn, GrantCredit, OpenPerception, StartResponse, Transcribe
from .core.events import Event
from .core.fence import Fence
from .core.notices import Notice
from .core.records import Plain
from .core.timeline import Ticks


class Emit(Protocol):
    """Posts an event to the session, from any thread. `pcm` holds the samples that an audio event stands for.

    An engine whose samples were decoded from codes hands these on with them, as `codes_track.CodedPcm`.
    """

    def __call__(self, event: Event, pcm: bytes | None = None) -> None: ...


class Busy(Exception):
    """No room for another session. `retry_after` is an honest guess, in seconds. `code`: for whom there is none:
    "server_busy" for anybody, another one for this tenant."""

    def __init__(self, message: str, retry_after: float, code: str = "server_busy") -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.code = code


class NotResumable(Exception):
    """No carrier can be joined to that session. `code` says why: "unknown_session" (never there, or over) or
    "invalid_token"."""

    def __init__(self, code: Literal["unknown_session", "invalid_token"], message: str) -> None:
        super().__init__(message)
        self.code = code


# --- perception ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PerceptionCapabilities:
    """What a perception can do. `window` is the hop of its speech probabilities, in ticks."""

    window: Ticks
    languages: tuple[str, ...]
    end_of_turn: bool
    transcripts: bool
    noise_reduction: bool = False
    """Whether it can lower the noise of the input before it listens."""
    logprobs: bool = False
    """Whether its transcripts can come with their tokens."""


class PerceptionPort(Protocol):
    """Hears: speech probability, end-of-turn probability, transcripts, each with its input span."""

    @property
    def capabilities(self) -> PerceptionCapabilities: ...

    def open(self, fence: Fence, request: OpenPerception, emit: Emit) -> None:
        """Begin, or (on an open session) change what is reported. Idempotent.

        Fenced by incarnation alone: the words of an interruption begin before its epoch. An older incarnation than the
        session's present one is refused and counted; with a newer one everything begins anew, and nothing that was
        asked under the one before is answered.
        """

    def feed(self, session: str, start: Ticks, pcm: bytes, rate: int) -> None:
        """The next stretch of the input track; always contiguous with the one before."""

    def play(self, session: str, at: Ticks, pcm: bytes, rate: int) -> None:
        """The agent will be heard with `pcm` from about input position `at` on, so it may come back in the input."""

    def hush(self, session: str, at: Ticks) -> None:
        """What was to be heard from input position `at` on will not be."""

    def transcribe(self, session: str, request: Transcribe) -> None: ...

    def assess(self, session: str, request: AssessTurn) -> None: ...

    def cancel(self, session: str, request: int) -> None: ...

    def forget(self, session: str, before: Ticks) -> None:
        """Audio before `before` will not be asked for again."""

    def close(self, session: str) -> None:
        """Free everything; an unknown session is a finished one."""


@runtime_checkable
class Heeds(Protocol):
    """What a perception may do besides: spare itself what decides nothing at the moment."""

    def floor(self, session: str, taken: bool) -> None:
        """The user speaks and has the floor, or (False) not any more. Whose voice it is decides nothing meanwhile."""


# --- engine -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EngineCapabilities:
    """What an engine does for itself and what it leaves to the core."""

    turns: Literal["core", "engine"]
    """Who decides when the agent speaks."""
    context: Literal["core", "engine"]
    """Who holds the conversation history that the model reads."""
    listens: Literal["text", "audio"]
    """"text": it reads transcripts; "audio": it gets the input track itself."""
    output_rate: int
    """Hz of its PCM; divides 48 kHz."""
    interruption: Literal["rewind", "annotate", "keep"]
    """What becomes of the model's own state after an interruption."""
    tools: bool
    voices: tuple[str, ...] = ()
    """Names of the voices that it speaks with; empty where it takes any name."""
    images: bool = False
    """Whether it takes images (see `Sees`)."""
    told: bool = False
    """Whether it holds the context itself and takes what a client puts into it (see `Told`)."""
    bounded: Ticks | None = None
    """Longest session that it can hold, if there is a bound."""


class EnginePort(Protocol):
    """Speaks: takes a context and gives text with times and frames, or lives on the input track by itself."""

    @property
    def capabilities(self) -> EngineCapabilities: ...

    def open(self, fence: Fence, config: SessionConfig, emit: Emit) -> None:
        """Make ready for a session. Raises `Busy` at once when there is no room."""

    def append(self, session: str, start: Ticks, pcm: bytes, rate: int) -> None:
        """Input for an engine that listens to audio; contiguous."""

    def start(self, request: StartResponse) -> None: ...

    def grant(self, request: GrantCredit) -> None: ...

    def cancel(self, fence: Fence, response: str) -> None:
        """Stop computing; late output carries the old fence and is dropped by whoever sees it."""

    def advance(self, fence: Fence) -> None:
        """A new epoch holds; work under an older one must stop."""

    def close(self, session: str) -> None:
        """Free everything; an unknown session is a finished one."""


@runtime_checkable
class Rewinds(Protocol):
    """What an engine that owns its turns may do besides: it wants to know how much of it was heard."""

    def rewind(self, fence: Fence, heard: Ticks) -> None:
        """Called in place of `advance` when the engine was cut while it spoke.

        A new epoch holds, and of what the engine said, nothing from `heard` on its own track on was heard.
        """


@runtime_checkable
class Told(Protocol):
    """What an engine that holds the context itself may do besides: take what it did not hear."""

    def tell(self, fence: Fence, entries: tuple[ContextEntry, ...], anew: bool) -> None:
        """Texts and answers of tools that a client put into the conversation; `anew`: the whole history, in answer to
        its `EngineForgot`."""


@runtime_checkable
class Sees(Protocol):
    """What an engine that takes images does besides."""

    def see(self, session: str, image: ImageRef, data: bytes) -> None:
        """An image of the conversation: `data` is its file as the client gave it. Contexts name it by its digest."""


@runtime_checkable
class Retains(Protocol):
    """What an engine does besides that keeps states of a tenant beyond its sessions, for the next of them."""

    def held(self, tenant: str) -> Mapping[str, int]:
        """How many there are, by kind."""

    def forget(self, tenant: str) -> None:
        """Let go of all of them; blocks. The tenant's sessions are over."""


@runtime_checkable
class Repeats(Protocol):
    """What an engine does besides whose sessions can be run again as they were."""

    def origin(self, session: str) -> Mapping[str, Plain]:
        """What `session` draws from and how it is treated, such as its seed: told in the manifest of its recording."""


# --- carrier ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CarrierCapabilities:
    """What the ledger must know of the way to the ear.

    `acknowledged`: playback is reported by the peer. `own_buffer`: the peer must be told to flush. `paced`: the carrier
    itself releases each frame when its time has come, so a hold stops all that was not released; where it is not,
    frames go out as they are admitted and a hold cannot call them back. `delay`: ticks from release to sound.
    """

    acknowledged: bool
    own_buffer: bool
    paced: bool = False
    delay: Ticks = 0


@dataclass(frozen=True, slots=True)
class OutputFrame:
    """One admitted frame with its samples and everything that a gate or a report needs.

    `pcm` is run[at : at + len(pcm)], where there is a `run`. Consecutive frames may share one (the same object), so
    that a carrier may convert all of it at once; what lies behind `pcm` was not admitted, may never be, and must not
    show in anything that leaves before its own frame has passed the gate.
    """

    fence: Fence
    sequence: int
    response: str
    item: str
    start: Ticks
    end: Ticks
    placed_at: Ticks
    pcm: bytes
    rate: int
    run: bytes = b""
    at: int = 0


TOGETHER: Final = 4
"""Frames that are let out at once at most: what leaves in one piece cannot be taken back in parts."""


class CarrierPort(Protocol):
    """Moves media and notices to the peer, in the order given."""

    @property
    def capabilities(self) -> CarrierCapabilities: ...

    def admit(self, *frames: OutputFrame) -> None:
        """Let out frames that follow each other; those of one call (`TOGETHER` at most) may leave in one piece."""

    def hold(self) -> None: ...

    def resume(self) -> None: ...

    def flush(self, fence: Fence) -> None:
        """Throw away queued audio; from here on the last gate passes only `fence`."""

    def notify(self, notice: Notice) -> None: ...

    def end(self, reason: str) -> None:
        """The session is over; close the connection after what was already queued."""
