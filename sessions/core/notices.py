"""Notices: what a client may be told, free of any protocol's spelling. A dialect turns one into messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from .config import SessionConfig
from .context import ImageRef
from .quick import quicken
from .timeline import Ticks, Token

ItemStatus = Literal["in_progress", "completed", "incomplete"]
ResponseStatus = Literal["in_progress", "completed", "cancelled", "incomplete", "failed"]
HeardBy = Literal["report", "model"]
"""What a playback position rests on: the peer's own reports, or the server's model of its playout."""


@dataclass(frozen=True, slots=True)
class ItemView:
    """An item of the conversation as a client sees it.

    `spoken`: the content is audio and `text` its transcript. `text` of an agent's item is what it said, or, once it
    was interrupted, what was heard of it. `heard` is the frozen playback position of an interrupted item.
    """

    id: str
    role: Literal["user", "assistant", "system"]
    kind: Literal["message", "function_call", "function_call_output"]
    status: ItemStatus
    text: str = ""
    spoken: bool = False
    call: str = ""
    name: str = ""
    heard: Ticks | None = None
    images: tuple[ImageRef, ...] = ()


@dataclass(frozen=True, slots=True)
class ResponseView:
    """A response as a client sees it. `detail` is the reason of a cancel or an incomplete end, or a failure's code."""

    id: str
    status: ResponseStatus
    modality: Literal["audio", "text"]
    items: tuple[ItemView, ...] = ()
    detail: str = ""
    message: str = ""
    metadata: tuple[tuple[str, str], ...] = ()
    max_output_tokens: int | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    aside: bool = False
    """Outside the conversation."""
    heard_by: HeardBy | None = None
    """Of one that was cut: what its heard position rests on."""


# --- session and input --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionConfigured:
    """The configuration in force, after a `ConfigUpdate` was accepted."""

    config: SessionConfig


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """The user's speech, which will become `item`, began at input position `at`.

    `at` is its true onset; the item's audio begins earlier by the prefix padding.

    While the agent speaks this is said only when the interruption is committed: clients flush their speaker on it.
    """

    item: str
    at: Ticks


@dataclass(frozen=True, slots=True)
class SpeechStopped:
    item: str
    at: Ticks


@dataclass(frozen=True, slots=True)
class InputCommitted:
    item: str
    previous: str | None


@dataclass(frozen=True, slots=True)
class InputCleared:
    pass


@dataclass(frozen=True, slots=True)
class InputTimedOut:
    """The user said nothing for the configured idle time; input [start, end) becomes `item`."""

    item: str
    start: Ticks
    end: Ticks


@dataclass(frozen=True, slots=True)
class DigitHeard:
    """The user pressed a key of their telephone, when the input track was at `at`."""

    digit: str
    at: Ticks


@dataclass(frozen=True, slots=True)
class InputTranscriptHypothesis:
    """What `item` seems to say so far, while the user still speaks; may be revised as a whole.

    `item` is "" while it is not decided whether a sound over the agent becomes one.
    """

    item: str
    text: str


@dataclass(frozen=True, slots=True)
class InputTranscriptDone:
    """The words of `item`, and its length. `tokens`: as the recognizer wrote them, where the client asked for that."""

    item: str
    text: str
    length: Ticks
    tokens: tuple[Token, ...] = ()


@dataclass(frozen=True, slots=True)
class InputTranscriptFailed:
    item: str
    code: str
    message: str


# --- conversation -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ItemAdded:
    """An item that no response made now stands in the conversation after `previous`; it is complete."""

    item: ItemView
    previous: str | None


@dataclass(frozen=True, slots=True)
class ItemDeleted:
    item: str


@dataclass(frozen=True, slots=True)
class ItemRetrieved:
    item: ItemView


@dataclass(frozen=True, slots=True)
class ItemTruncated:
    """`item` now ends at content position `position`; `text` is what the history keeps of it."""

    item: str
    content_index: int
    position: Ticks
    text: str


# --- response -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResponseOpened:
    response: ResponseView


@dataclass(frozen=True, slots=True)
class OutputOpened:
    """`item` begins as output number `index` of `response`, after `previous` in the conversation.

    `aside`: the response, and so its item, is outside the conversation.
    """

    response: str
    index: int
    item: ItemView
    previous: str | None
    aside: bool = False


@dataclass(frozen=True, slots=True)
class OutputText:
    """Text of an output. `spoken`: transcript of audio that has just been admitted."""

    response: str
    index: int
    item: str
    text: str
    spoken: bool


@dataclass(frozen=True, slots=True)
class OutputDraft:
    """Text of a spoken response as soon as the model has it; what is heard of it comes as `OutputText`."""

    response: str
    text: str


@dataclass(frozen=True, slots=True)
class OutputClosed:
    """`item` gets nothing more; its view is final (for an interrupted one: what was heard, cut at the word)."""

    response: str
    index: int
    item: ItemView
    previous: str | None
    aside: bool = False


@dataclass(frozen=True, slots=True)
class ResponseClosed:
    response: ResponseView


@dataclass(frozen=True, slots=True)
class PlaybackStarted:
    """The first sample of `response` has been admitted."""

    response: str


@dataclass(frozen=True, slots=True)
class PlaybackStopped:
    """`response` has been played to its end, or nothing was heard of its playback for too long."""

    response: str
    heard_by: HeardBy = "model"


@dataclass(frozen=True, slots=True)
class PlaybackCleared:
    """`response` was cut; it was heard up to content position `heard`, whose words are `text`."""

    response: str
    heard: Ticks
    text: str
    heard_by: HeardBy = "model"


@dataclass(frozen=True, slots=True)
class PlaybackAcknowledged:
    """The answer to a playback report: content positions of `response`. `accepted`: the report could be true."""

    response: str
    generated: Ticks
    sent: Ticks
    heard: Ticks
    accepted: bool


# --- what only our own tools ask for ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Held:
    """Speech over the agent, first heard at input position `at`; nothing more is sent until decided."""

    at: Ticks


@dataclass(frozen=True, slots=True)
class Resumed:
    """The hold ended without an interruption; `words` is what was understood of the sound, if anything."""

    words: str


@dataclass(frozen=True, slots=True)
class EpochBegan:
    """Epoch `epoch` holds; `cause` is why, `at` the input position of the onset that caused it, if one did."""

    epoch: int
    cause: Literal["barge_in", "key_pressed", "withdrawn", "client_cancel", "client_clear", "detached", "superseded"]
    at: Ticks | None = None


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The user's turn ended: speech at `speech_end`, decided at input position `decided_at` by `by`."""

    item: str
    speech_end: Ticks
    decided_at: Ticks
    by: str


@dataclass(frozen=True, slots=True)
class StageReached:
    """`response` reached `stage`; figures only.

    "words": all that it answers is known, the engine starts. The engine adds its own ("first_token", "first_clause",
    "first_audio"). A response may reach stages before it is opened. Empty `response`: of the session ("ends_soon").

    `elapsed`: ticks since it was waited for: from the true end of the user's speech, or from the command or key that
    asked for it; None for a stage of the session.
    """

    response: str
    stage: str
    elapsed: Ticks | None = None


@dataclass(frozen=True, slots=True)
class CommandFailed:
    """A command was refused; the session lives on. `param` names the field, `command` the client's own id."""

    code: str
    message: str
    param: str | None = None
    command: str | None = None
    kind: Literal["invalid_request_error", "server_error"] = "invalid_request_error"


Notice: TypeAlias = (
    SessionConfigured
    | SpeechStarted
    | SpeechStopped
    | InputCommitted
    | InputCleared
    | InputTimedOut
    | DigitHeard
    | InputTranscriptHypothesis
    | InputTranscriptDone
    | InputTranscriptFailed
    | ItemAdded
    | ItemDeleted
    | ItemRetrieved
    | ItemTruncated
    | ResponseOpened
    | OutputOpened
    | OutputText
    | OutputDraft
    | OutputClosed
    | ResponseClosed
    | PlaybackStarted
    | PlaybackStopped
    | PlaybackCleared
    | PlaybackAcknowledged
    | Held
    | Resumed
    | EpochBegan
    | TurnEnded
    | StageReached
    | CommandFailed
)

quicken((*get_args(Notice), ItemView, ResponseView))
