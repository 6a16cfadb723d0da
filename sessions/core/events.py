"""Events: everything that can happen to a session. Plain data, recorded as they are.

An event never carries samples; audio appears as spans of a track. `now` is an argument of `Session.handle`, not a
field. Input spans are ticks of the input track; content spans are ticks within one response's audio.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from .config import SessionConfig, Tool
from .context import ContextEntry, ImageRef, ItemReference
from .fence import Fence
from .loudness import SILENT
from .quick import quicken
from .timeline import Ticks, Token, Word

# --- carrier -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AudioArrived:
    """User audio [start, end) of the input track. `concealed`: nothing real arrived, silence was put in its place."""

    start: Ticks
    end: Ticks
    concealed: bool = False


@dataclass(frozen=True, slots=True)
class CarrierAttached:
    """A carrier took the session's media, in the place of the one before if there still is one.

    `acknowledged`: it will report playback, so the model is only a fallback. `paced`: it releases each frame when its
    time has come, so that a hold delays all that was not released. `delay`: from there to the ear, as the model has it.
    """

    acknowledged: bool = False
    paced: bool = False
    delay: Ticks = 0


@dataclass(frozen=True, slots=True)
class CarrierLost:
    """The carrier is gone; what it had not reported as played is unknown. A detach starts a new epoch.

    The session waits for another one as long as `SessionConfig.grace` says, and ends for `reason` where that is 0.
    """

    reason: str = ""


@dataclass(frozen=True, slots=True)
class CarrierBlocked:
    """The peer does not read; admission stops until `CarrierReady`. `unsent`: bytes handed over but not yet taken."""

    unsent: int = 0


@dataclass(frozen=True, slots=True)
class CarrierReady:
    """The peer reads again."""


@dataclass(frozen=True, slots=True)
class PlaybackReported:
    """The client says that it has played `response` up to content position `position` at `now`."""

    response: str
    position: Ticks


@dataclass(frozen=True, slots=True)
class DigitPressed:
    """The user pressed a key of their telephone: "0" to "9", "*", "#", "A" to "D"."""

    digit: str


# --- perception ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SpeechProbability:
    """Probability of speech in [start, end) of the input track (VAD), and its level in dBFS (RMS).

    `echo`: how much it is like what the agent said a moment before, as it comes back from a loudspeaker, 0..1.
    `hiss`: level of what hisses in it, in dBFS: RMS of the second difference of its samples at 16 kHz, which weighs by
    12 dB per octave.
    """

    start: Ticks
    end: Ticks
    probability: float
    level: float = SILENT
    echo: float = 0.0
    hiss: float = SILENT


@dataclass(frozen=True, slots=True)
class EndOfTurnProbability:
    """Probability that the user's turn is complete at input position `at`; answers `AssessTurn(request)`."""

    request: int
    at: Ticks
    probability: float


@dataclass(frozen=True, slots=True)
class Transcript:
    """What was said in [start, end); answers `Transcribe(request)`. `words` may be empty where times are unknown.

    `tokens`: the same text in the recognizer's own pieces, where they were asked for.
    """

    request: int
    start: Ticks
    end: Ticks
    text: str
    words: tuple[Word, ...] = ()
    tokens: tuple[Token, ...] = ()


@dataclass(frozen=True, slots=True)
class PerceptionFailed:
    """A request to perception could not be answered."""

    request: int
    code: str
    message: str


# --- engine -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EngineAudio:
    """Audio of `response`, content [start, end); contiguous with what came before it."""

    fence: Fence
    response: str
    start: Ticks
    end: Ticks


@dataclass(frozen=True, slots=True)
class EngineWords:
    """Words spoken in the audio of `response`, with content positions; sent before or with that audio."""

    fence: Fence
    response: str
    words: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class EngineText:
    """Text of a response that is not spoken (text modality)."""

    fence: Fence
    response: str
    text: str


@dataclass(frozen=True, slots=True)
class EngineDraft:
    """Text of a spoken response as soon as the model has it, ahead of its sound.

    Shown to a client that wants it at once, and no part of the history, which holds what was heard (`EngineWords`).
    """

    fence: Fence
    response: str
    text: str


@dataclass(frozen=True, slots=True)
class EngineToolCall:
    """The model calls a tool; `arguments` is JSON text. Empty `response`: of an engine that owns its turns."""

    fence: Fence
    response: str
    call: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class EngineStage:
    """A stage of the response was reached; for figures only. Each is a figure of its own, told once.

    "features" (media were encoded), "first_token", "first_clause" (enough text to be spoken), "first_code",
    "first_audio"; an engine that makes images tells "image_completed". Empty `response`: a stage of the session itself
    ("ends_soon": the engine cannot hold it much longer).
    """

    fence: Fence
    response: str
    stage: str


@dataclass(frozen=True, slots=True)
class EngineDone:
    """The engine has made everything of `response` that it will make."""

    fence: Fence
    response: str
    reason: Literal["completed", "max_output_tokens", "content_filter"] = "completed"
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class EngineFailed:
    """The engine could not go on with `response`, or (empty `response`) with the session."""

    fence: Fence
    response: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class EngineForgot:
    """An engine that holds the context itself has lost it and goes on without; it wants to be told again."""

    fence: Fence


@dataclass(frozen=True, slots=True)
class DuplexFrame:
    """One frame of an engine that owns its turns, at [start, end) of its own output track.

    The track runs on the input clock: frame n answers the n-th hop of user audio. `speaking` is the engine's own
    statement that the frame is speech and not silence; `text` is what its inner text stream said in this frame.
    """

    fence: Fence
    start: Ticks
    end: Ticks
    speaking: bool
    text: str = ""


# --- client commands (each may carry the client's own id, echoed in an error) -------------------------------------


@dataclass(frozen=True, slots=True)
class ConfigUpdate:
    config: SessionConfig
    command: str | None = None


@dataclass(frozen=True, slots=True)
class InputCommit:
    command: str | None = None


@dataclass(frozen=True, slots=True)
class InputClear:
    command: str | None = None


@dataclass(frozen=True, slots=True)
class ItemCreate:
    """Insert an item. `previous`: id to insert after, "root" for the front, None for the end."""

    role: Literal["user", "assistant", "system"]
    kind: Literal["message", "function_call", "function_call_output"] = "message"
    id: str | None = None
    text: str = ""
    call: str = ""
    name: str = ""
    audio: AudioArrived | None = None
    """Input-track span of audio that came inside the item; its transcript is asked for."""
    images: tuple[ImageRef, ...] = ()
    """Images that came inside the item, before its text or audio."""
    previous: str | None = None
    command: str | None = None


@dataclass(frozen=True, slots=True)
class ItemTruncate:
    """The client says that it played `item` only up to `position` (content ticks)."""

    item: str
    position: Ticks
    content_index: int = 0
    command: str | None = None


@dataclass(frozen=True, slots=True)
class ItemDelete:
    item: str
    command: str | None = None


@dataclass(frozen=True, slots=True)
class ItemRetrieve:
    item: str
    command: str | None = None


@dataclass(frozen=True, slots=True)
class ResponseCreate:
    """Ask for a response now. None fields: as the session is configured."""

    instructions: str | None = None
    modality: Literal["audio", "text"] | None = None
    tool_choice: str | None = None
    max_output_tokens: int | None = None
    metadata: tuple[tuple[str, str], ...] = ()
    tools: tuple[Tool, ...] | None = None
    voice: str | None = None
    aside: bool = False
    """Outside the conversation: it reads it but is not put into it, and no interruption of it concerns it."""
    input: tuple[ContextEntry | ItemReference, ...] | None = None
    """What it reads instead of the conversation."""
    command: str | None = None


@dataclass(frozen=True, slots=True)
class ResponseCancel:
    response: str | None = None
    command: str | None = None


@dataclass(frozen=True, slots=True)
class OutputClear:
    """Stop what is playing and forget what waits (WebRTC's `output_audio_buffer.clear`)."""

    command: str | None = None


@dataclass(frozen=True, slots=True)
class CommandRejected:
    """A client message that never became a command; counted and answered with a typed error."""

    code: str
    message: str
    param: str | None = None
    command: str | None = None


# --- the session itself -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TimerDue:
    name: str


@dataclass(frozen=True, slots=True)
class OwnershipLost:
    """Another incarnation owns the session; nothing more may be said by this one."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class OwnershipTaken:
    """This process goes on, as `incarnation`, with a session whose owner is gone; its state was restored before.

    Nobody is attached, engine and perception know nothing of the session, and no timer runs.
    """

    incarnation: int


@dataclass(frozen=True, slots=True)
class Close:
    reason: str = "closed"


Event: TypeAlias = (
    AudioArrived
    | CarrierAttached
    | CarrierLost
    | CarrierBlocked
    | CarrierReady
    | PlaybackReported
    | DigitPressed
    | SpeechProbability
    | EndOfTurnProbability
    | Transcript
    | PerceptionFailed
    | EngineAudio
    | EngineWords
    | EngineText
    | EngineDraft
    | EngineToolCall
    | EngineStage
    | EngineDone
    | EngineFailed
    | EngineForgot
    | DuplexFrame
    | ConfigUpdate
    | InputCommit
    | InputClear
    | ItemCreate
    | ItemTruncate
    | ItemDelete
    | ItemRetrieve
    | ResponseCreate
    | ResponseCancel
    | OutputClear
    | CommandRejected
    | TimerDue
    | OwnershipLost
    | OwnershipTaken
    | Close
)

quicken(get_args(Event))

ENGINE_EVENTS = (
    EngineAudio,
    EngineWords,
    EngineText,
    EngineDraft,
    EngineToolCall,
    EngineStage,
    EngineDone,
    EngineFailed,
)
"""Events that belong to one response and are fenced by its epoch."""
