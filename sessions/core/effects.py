"""Effects: everything that a session wants done. The shell runs them in order; results come back as events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from .config import SessionConfig, Tool
from .context import ContextEntry, ImageRef
from .fence import Fence
from .notices import Notice
from .quick import quicken
from .timeline import Ticks

# --- perception ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenPerception:
    """Listen. `speech`: report speech probabilities (turn detection is on). `denoise`: lower the noise first.
    `logprobs`: final transcripts come with their tokens."""

    speech: bool
    language: str
    denoise: bool = False
    logprobs: bool = False

    @classmethod
    def of(cls, config: SessionConfig) -> OpenPerception:
        """What a session configured so listens for."""
        return cls(config.turns is not None, config.language, config.denoise, config.transcript_logprobs)


@dataclass(frozen=True, slots=True)
class Transcribe:
    """Transcribe [start, end) of the input track; answered by `Transcript` or `PerceptionFailed`.

    `final` is False for a look at an utterance that may go on (partial captions, interruption words); such a request
    may be answered late or dropped for a newer one.
    """

    request: int
    start: Ticks
    end: Ticks
    final: bool = True


@dataclass(frozen=True, slots=True)
class AssessTurn:
    """Is the user's turn, which began at `start`, complete at `at`? Answered by `EndOfTurnProbability`."""

    request: int
    start: Ticks
    at: Ticks


@dataclass(frozen=True, slots=True)
class CancelPerception:
    """The answer to `request` is no longer wanted."""

    request: int


@dataclass(frozen=True, slots=True)
class ForgetInput:
    """Input before `before` will not be asked for again."""

    before: Ticks


# --- engine -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenEngine:
    """Make the engine ready for this session."""

    fence: Fence
    config: SessionConfig


@dataclass(frozen=True, slots=True)
class AppendInput:
    """Give input [start, end) to an engine that listens itself (duplex)."""

    start: Ticks
    end: Ticks


@dataclass(frozen=True, slots=True)
class ShowImages:
    """Give images of an item to an engine that sees."""

    images: tuple[ImageRef, ...]


@dataclass(frozen=True, slots=True)
class TellEngine:
    """Tell an engine that holds the context itself of `entries`: what a client put into the conversation, or (`anew`)
    all of the history, which it has lost."""

    fence: Fence
    entries: tuple[ContextEntry, ...]
    anew: bool = False


@dataclass(frozen=True, slots=True)
class StartResponse:
    """Generate `response`. Audio may be made up to content position `credit`, then further as `GrantCredit` says."""

    fence: Fence
    response: str
    context: tuple[ContextEntry, ...]
    instructions: str
    modality: Literal["audio", "text"]
    voice: str
    speed: float
    tools: tuple[Tool, ...]
    tool_choice: str
    max_output_tokens: int | None
    temperature: float
    credit: Ticks


@dataclass(frozen=True, slots=True)
class GrantCredit:
    """`response` may generate audio up to content position `until`."""

    fence: Fence
    response: str
    until: Ticks


@dataclass(frozen=True, slots=True)
class CancelResponse:
    """Stop computing `response`. `fence` is the one that it was started under."""

    fence: Fence
    response: str


@dataclass(frozen=True, slots=True)
class AdvanceEpoch:
    """A new epoch holds from here on; whatever carries an older fence is dropped by whoever holds it.

    `heard`: where an engine that owns its turns was cut in what it was saying, the end of what was heard on its track.
    """

    fence: Fence
    heard: Ticks | None = None


@dataclass(frozen=True, slots=True)
class CloseEngine:
    """Free everything that the engine holds for this session. Idempotent."""


# --- carrier ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AdmitFrame:
    """Hand content [start, end) of `response` to the carrier, irrevocably.

    `sequence` is gapless per session and incarnation. `placed_at` is where the frame lies on the session timeline.
    `source` names the track that the samples are cut from and `source_start` where (they differ from `response` and
    `start` only for engines that own their turns and speak on one endless track).
    """

    fence: Fence
    sequence: int
    response: str
    item: str
    start: Ticks
    end: Ticks
    placed_at: Ticks
    source: str
    source_start: Ticks


@dataclass(frozen=True, slots=True)
class DropAudio:
    """Samples [start, end) of track `source` will never be admitted. `why` is their end in the ledger."""

    source: str
    start: Ticks
    end: Ticks
    why: Literal["cleared", "stale"]


@dataclass(frozen=True, slots=True)
class ReleaseTrack:
    """Nothing more will be cut from track `source`; its buffer can go."""

    source: str


@dataclass(frozen=True, slots=True)
class HoldCarrier:
    """Send no further audio, keep what is queued."""


@dataclass(frozen=True, slots=True)
class ResumeCarrier:
    """Go on at the next unsent sample."""


@dataclass(frozen=True, slots=True)
class FlushCarrier:
    """Throw away all queued audio, tell the peer to do the same, and pass only `fence` from here on."""

    fence: Fence


@dataclass(frozen=True, slots=True)
class Notify:
    """Tell the client something; the dialect finds the words."""

    notice: Notice


# --- shell --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Raise `TimerDue(name)` at session time `due`, replacing an earlier timer of that name."""

    name: str
    due: Ticks


@dataclass(frozen=True, slots=True)
class ClearTimer:
    name: str


@dataclass(frozen=True, slots=True)
class Count:
    """Add `by` to the counter `name` (see `sessions.core.counters`)."""

    name: str
    by: int = 1


@dataclass(frozen=True, slots=True)
class EndSession:
    """The session is over; free everything."""

    reason: str


Effect: TypeAlias = (
    OpenPerception
    | Transcribe
    | AssessTurn
    | CancelPerception
    | ForgetInput
    | OpenEngine
    | AppendInput
    | ShowImages
    | TellEngine
    | StartResponse
    | GrantCredit
    | CancelResponse
    | AdvanceEpoch
    | CloseEngine
    | AdmitFrame
    | DropAudio
    | ReleaseTrack
    | HoldCarrier
    | ResumeCarrier
    | FlushCarrier
    | Notify
    | SetTimer
    | ClearTimer
    | Count
    | EndSession
)

quicken(get_args(Effect))
