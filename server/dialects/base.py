"""What every dialect is: one protocol's messages, translated to and from the vocabulary of the session core.

A dialect is sans-I/O: it never awaits, never reads a clock and never touches a socket. A carrier feeds it what came in
and writes what comes out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from sessions.core.config import SessionConfig
from sessions.core.context import ImageRef
from sessions.core.events import Event, ItemCreate
from sessions.core.fence import Fence
from sessions.core.notices import Notice, ResponseView
from sessions.ports import OutputFrame


@dataclass(frozen=True, slots=True)
class InputAudio:
    """Live user audio: mono PCM16 little-endian at `rate` Hz, any length but never half a sample."""

    pcm: bytes
    rate: int


@dataclass(frozen=True, slots=True)
class ItemAudio:
    """An item whose content is audio. The session gives the samples a span of their own and fills `create.audio`."""

    create: ItemCreate
    pcm: bytes
    rate: int


@dataclass(frozen=True, slots=True)
class InputImage:
    """The file of an image that the next item names."""

    image: ImageRef
    data: bytes


Received = Event | InputAudio | InputImage | ItemAudio


class Dialect(Protocol):
    """One connection's translator.

    `send` and `send_frame` are called in the order in which the messages go onto the wire, as late as possible: what a
    flush throws away was never encoded, so no encoder or resampler state remembers it.
    """

    @property
    def config(self) -> SessionConfig:
        """The configuration to open the session with."""

    def open(self, session: str) -> list[str]:
        """The messages that greet a new connection to `session`; called once, before any other message goes out."""

    def receive(self, message: str | bytes) -> list[Received]:
        """One message from the peer. Never raises for what a peer can send: bad input is a `CommandRejected`."""

    def send(self, notice: Notice) -> list[str]: ...

    def send_frame(self, frame: OutputFrame) -> list[str]: ...

    def flush(self, fence: Fence) -> None:
        """From here on audio belongs to `fence`; forget every sample of before."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """One limit: how much of `limit` a minute is left now, and after how many seconds all of it is there again."""

    name: str
    limit: int
    remaining: int
    reset_seconds: float


class Meter(Protocol):
    """Counts what a client uses, where there are limits."""

    def opened(self) -> None:
        """The client was told of a response."""

    def closed(self, response: ResponseView) -> None:
        """It was told of its end."""

    def allowances(self) -> Sequence[Allowance]: ...


@dataclass(frozen=True, slots=True)
class Reply:
    """What a dialect answers by itself, without the session; it is encoded when its turn on the wire has come."""

    message: Mapping[str, object]


@runtime_checkable
class EnduringDialect(Dialect, Protocol):
    """The translator of a session whose client may lose its connection and come back on another one.

    It serves those connections one after the other, and remembers what was said in between.
    """

    def replies(self) -> list[Reply]:
        """What is to be answered to the message that was received last; each once."""

    def reply(self, reply: Reply) -> list[str]:
        """The messages of a reply."""

    def keep(self, entry: Notice | Reply) -> None:
        """`entry` finds no connection; the client will be told of it when it comes back."""

    def farewell(self, reason: str) -> list[str]:
        """The last messages on a connection. `reason`: why the session ended, or "replaced" where it goes on with
        another connection, or "session_over" where it ended before this connection could join it."""
