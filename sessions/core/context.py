"""The history as an engine reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


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


@dataclass(frozen=True, slots=True)
class ItemReference:
    """Stands for what the conversation holds of `item`."""

    item: str
