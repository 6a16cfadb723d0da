"""What the engine asks of a thinker: a context in, pieces of text and tool calls out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from sessions.core.config import Tool
from sessions.core.context import ContextEntry

from .gate import Urgency
from .stop import Stop


@dataclass(frozen=True, slots=True)
class ThinkRequest:
    """One response to think of. `seed` names it: the same request with the same seed thinks the same."""

    context: tuple[ContextEntry, ...]
    instructions: str
    tools: tuple[Tool, ...]
    tool_choice: str
    max_output_tokens: int | None
    temperature: float
    spoken: bool
    """It will be read aloud, so it should be short."""
    seed: int
    urgency: Callable[[], Urgency]
    tenant: str = ""
    """What was kept for one tenant never serves another; "": nothing is kept."""


@dataclass(frozen=True, slots=True)
class TextPiece:
    """The next characters; a piece may end anywhere, also inside a word."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A finished call; `arguments` is JSON text."""

    call: str
    name: str
    arguments: str


Thought: TypeAlias = TextPiece | ToolCall


@dataclass(frozen=True, slots=True)
class Thinking:
    """How it ended. Token counts are 0 where they are not known."""

    reason: Literal["completed", "max_output_tokens", "content_filter"] = "completed"
    input_tokens: int = 0
    output_tokens: int = 0


class ThinkerError(Exception):
    """The thinker could not go on. `code` is for programs, the message for people, with a remedy."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Thinker(Protocol):
    """Thinks on the calling thread; several threads may call at once."""

    def think(self, request: ThinkRequest, tell: Callable[[Thought], None], stop: Stop) -> Thinking:
        """Tell each thought as it comes; `tell` never blocks.

        Returns within one token once `stop` is set; what it returns then is of no interest. Raises ThinkerError.
        """

    def close(self) -> None:
        """End everything; idempotent, called when no `think` runs any more."""


@runtime_checkable
class ReadsAhead(Protocol):
    """A thinker that can read what begins every prompt of a session before it is asked."""

    def read_ahead(self, tenant: str, session: str, instructions: str, tools: tuple[Tool, ...], stop: Stop) -> None:
        """Read and keep it for `tenant`, when nobody waits for a thought; blocks. `stop` is set when `session` ends."""

    def release(self, session: str) -> None:
        """`session` is over."""

    def held(self, tenant: str) -> int:
        """How many beginnings are kept for `tenant`."""

    def forget(self, tenant: str) -> None:
        """Let go of all that is kept for `tenant`, whose sessions are over; blocks."""
