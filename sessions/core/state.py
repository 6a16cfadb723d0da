"""The state of a session: plain dataclasses, so that a snapshot is their plain form and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .config import SessionConfig, Tool
from .context import ContextEntry
from .conversation import Conversation, Item
from .events import EngineToolCall
from .fence import Fence
from .input import InputTrack
from .playback import Ledger
from .timeline import Ticks, Token, Word
from .turns import TurnPolicy


@dataclass(frozen=True, slots=True)
class Abilities:
    """What the core must know of the engine and the perception behind the ports."""

    engine_turns: bool = False
    """The engine decides when it speaks (native duplex)."""
    engine_listens: bool = False
    """The engine takes the input track itself."""
    transcripts: bool = True
    voices: tuple[str, ...] = ()
    """Voices of the engine; empty: any."""
    noise_reduction: bool = False
    """The perception can lower the noise of the input."""
    logprobs: bool = False
    """The perception tells how sure it is of what it wrote."""
    images: bool = False
    """The engine takes images."""
    engine_told: bool = False
    """The engine holds the context itself, and takes what a client puts into it."""

    @property
    def hears_turns(self) -> bool:
        """Whether the engine hears for itself what the user said in a turn that the core has found."""
        return self.engine_listens and not self.engine_turns


@dataclass(slots=True)
class Response:
    """A response in progress.

    `announced`: the client knows of it; before that it is provisional, made while the user's turn may still go on,
    and nothing of it leaves. `words`, `texts`, `calls`: made, not yet told. `base`: where its audio begins on `source`.
    """

    id: str
    fence: Fence
    modality: Literal["audio", "text"]
    instructions: str
    tool_choice: str
    max_output_tokens: int | None
    metadata: tuple[tuple[str, str], ...] = ()
    announced: bool = False
    started: bool = False
    asked: Ticks = 0
    """Since when it is waited for, in session time."""
    source: str = ""
    base: Ticks = 0
    item: str = ""
    outputs: list[str] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    drafted: str = ""
    """Text ahead of its sound, not told yet."""
    calls: list[EngineToolCall] = field(default_factory=list)
    credit: Ticks = 0
    tools: tuple[Tool, ...] = ()
    voice: str = "default"
    input: tuple[ContextEntry, ...] | None = None
    done: bool = False
    reason: Literal["completed", "max_output_tokens", "content_filter"] = "completed"
    input_tokens: int = 0
    output_tokens: int = 0

    @property
    def owned(self) -> bool:
        """Whether the engine began it by itself and speaks it on its own endless track."""
        return self.source != self.id


@dataclass(slots=True)
class Utterance:
    """What the user is saying, until it is committed as `item`. `text`: its words, looked up while it closes; `tokens`:
    the same as the recognizer wrote them."""

    item: str
    start: Ticks
    request: int | None = None
    text: str | None = None
    tokens: tuple[Token, ...] = ()


@dataclass(slots=True)
class PerceptionRequest:
    """An answer that perception owes. `item`: whose words; `end`: how far it was asked to listen."""

    kind: Literal["turn", "look", "partial", "assess"]
    item: str
    end: Ticks


@dataclass(slots=True)
class Sounding:
    """A response whose audio may still be playing, and the item that it belongs to."""

    response: str
    item: str


@dataclass(slots=True)
class Aside:
    """A response outside the conversation, with the items that belong to it alone."""

    response: Response
    items: list[Item] = field(default_factory=list)
    generated: Ticks = 0
    admitted: Ticks = 0


@dataclass(slots=True)
class State:
    """Everything that a session knows. Only `Session.handle` changes it."""

    session: str
    incarnation: int
    config: SessionConfig
    abilities: Abilities
    now: Ticks = 0
    epoch: int = 0
    sequence: int = 0
    serial: int = 0
    opened: bool = False
    closed: bool = False
    attached: bool = False
    acknowledged: bool = False
    blocked: bool = False
    held: bool = False
    muted_until: Ticks | None = None
    spoke: bool = False
    input: InputTrack = field(default_factory=InputTrack)
    conversation: Conversation = field(default_factory=Conversation)
    policy: TurnPolicy = field(default_factory=TurnPolicy)
    ledger: Ledger = field(default_factory=Ledger)
    active: Response | None = None
    asides: dict[str, Aside] = field(default_factory=dict)
    sounding: list[Sounding] = field(default_factory=list)
    utterance: Utterance | None = None
    awaiting: list[str] = field(default_factory=list)
    """User items whose words a response waits for."""
    respond: bool = False
    """A turn ended: answer it as soon as its words are known and the lane is free."""
    turn_over: Ticks = 0
    """When that turn was over, in session time: where its speech truly ended, not where that was decided."""
    requests: dict[int, PerceptionRequest] = field(default_factory=dict)
    hypothesis_until: Ticks = 0
    pump_due: Ticks | None = None
    stall_due: Ticks | None = None
    idle_due: Ticks | None = None
    alone_until: Ticks | None = None
    """When a session without a carrier ends."""
    keys: str = ""
    """Keys pressed that are no turn yet."""
    replied: bool = False
    """A response has ended and nobody has said anything since."""

    @property
    def answers(self) -> bool:
        """Whether the core answers a finished turn of the user by itself."""
        turns = self.config.turns
        return self.config.responses and turns is not None and turns.create_response and not self.abilities.engine_turns

    @property
    def fence(self) -> Fence:
        return Fence(self.session, self.incarnation, self.epoch)

    def fresh_id(self, prefix: str) -> str:
        """An id that no other thing in this session has; the same in every replay.

        It names the owner where that is not the first: what the one before gave an id to in its last moment may be
        unknown to its successor, and known to the client.
        """
        self.serial += 1
        owner = "" if self.incarnation == 1 else f"{self.incarnation}_"
        return f"{prefix}_{self.session.rpartition('_')[2]}_{owner}{self.serial:04d}"

    def fresh_request(self, kind: Literal["turn", "look", "partial", "assess"], item: str, end: Ticks) -> int:
        self.serial += 1
        self.requests[self.serial] = PerceptionRequest(kind, item, end)
        return self.serial
