"""The history as an engine reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .quick import quicken
from .timeline import Span


@dataclass(frozen=True, slots=True)
class ImageRef:
    """An image that a client gave, by what it is known: never its pixels.

    `digest`: SHA-256 of its file, hexadecimal. `media_type`: "image/png" and the like. `width`, `height`: pixels.
    """

    digest: str
    media_type: str
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class ContextPart:
    """A piece of an entry for an engine that takes media: an image, or what was heard in `heard` of the input track and
    reads `text`, or text alone."""

    text: str = ""
    heard: Span | None = None
    image: ImageRef | None = None


@dataclass(frozen=True, slots=True)
class ContextEntry:
    """One entry of the history as the engine reads it: only what was really heard or said.

    `kind` "message" uses `text`; "function_call" uses `call`, `name`, `text` (arguments); "function_call_output"
    uses `call` and `text`.
    """

    role: Literal["user", "assistant", "system"]
    kind: Literal["message", "function_call", "function_call_output"]
    text: str
    call: str = ""
    name: str = ""
    parts: tuple[ContextPart, ...] = ()
    """The same in pieces, where it holds more than text."""


@dataclass(frozen=True, slots=True)
class ItemReference:
    """Stands for what the conversation holds of `item`."""

    item: str


quicken((ImageRef, ContextPart, ContextEntry, ItemReference))
