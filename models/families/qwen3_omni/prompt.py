"""The history as the thinker reads it: ChatML tokens, media between them, and a rotary position for each.

The layout is that of the checkpoint's chat template. A medium stands for itself by name, so that two prompts have a
common beginning only where they hold the same media.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from sessions.core.context import ContextEntry

from .omni import ControlTokens, Omni

Cell: TypeAlias = "int | str"
"""What stands at one position: a token, or the name of a medium and the place in it."""


@dataclass(frozen=True, slots=True)
class Features:
    """An encoded medium: `embeds` float [n, d], what goes in at deeper layers (images), each [n, d], and for an image
    its height and width in merged patches. `tenant` and `version` say for whom and by what it was made."""

    kind: Literal["audio", "image"]
    name: str
    embeds: Tensor
    deep: tuple[Tensor, ...] = ()
    grid: tuple[int, int] | None = None
    tenant: str = ""
    version: str = ""

    @property
    def bytes(self) -> int:
        return self.embeds.nbytes + sum(deep.nbytes for deep in self.deep)


@dataclass(slots=True)
class Prompt:
    """`ids` and `cells` [T], `positions` int64 [3, T] (time, height, width), `media` by where they begin.

    `spoken`: which positions the talker reads as well (the user's turns). `next`: the position that follows.
    """

    ids: list[int]
    cells: list[Cell]
    positions: Tensor
    media: list[tuple[int, Features]]
    spoken: list[bool]
    next: int

    @classmethod
    def empty(cls) -> Prompt:
        return cls([], [], torch.zeros(3, 0, dtype=torch.long), [], [], 0)

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(slots=True)
class _Writer:
    tokens: ControlTokens
    ids: list[int] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    spoken: list[bool] = field(default_factory=list)
    media: list[tuple[int, Features]] = field(default_factory=list)
    columns: list[Tensor] = field(default_factory=list)
    next: int = 0

    def text(self, ids: Sequence[int], spoken: bool) -> None:
        self.ids += ids
        self.cells += ids
        self.spoken += [spoken] * len(ids)
        self.columns.append(torch.arange(self.next, self.next + len(ids)).expand(3, -1))
        self.next += len(ids)

    def medium(self, features: Features, spoken: bool) -> None:
        tokens = self.tokens
        image = features.kind == "image"
        self.text([tokens.vision_start if image else tokens.audio_start], spoken)
        count = len(features.embeds)
        self.media.append((len(self.ids), features))
        self.ids += [tokens.image if image else tokens.audio] * count
        self.cells += [f"{features.name}#{index}" for index in range(count)]
        self.spoken += [spoken] * count
        columns, width = positions_of(features)
        self.columns.append(columns + self.next)
        self.next += width
        self.text([tokens.vision_end if image else tokens.audio_end], spoken)


def positions_of(features: Features) -> tuple[Tensor, int]:
    """Rotary positions of a medium from 0, int64 [3, n], and how far it moves what follows.

    Sound goes on like text. An image stands still in time and spans its rows and columns (M-RoPE, arXiv 2409.12191).
    """
    count = len(features.embeds)
    if features.grid is None:
        return torch.arange(count).expand(3, -1), count
    height, width = features.grid
    rows = torch.arange(height).repeat_interleave(width)
    columns = torch.arange(width).repeat(height)
    return torch.stack([torch.zeros_like(rows), rows, columns]), max(height, width)


@dataclass(frozen=True, slots=True)
class Turn:
    """One entry of the history: texts and encoded media in order."""

    role: Literal["user", "assistant", "system"]
    parts: tuple[str | Features, ...]


def text_of(entry: ContextEntry) -> str:
    """An entry without media as text. Calls of tools, which a client may put into a history, are spelled out."""
    if entry.kind == "function_call":
        return f"{entry.name}({entry.text})"
    return entry.text


def build(omni: Omni, instructions: str, turns: Sequence[Turn], longest: int) -> Prompt | None:
    """The prompt for the next answer, at most `longest` positions: the oldest turns are left out where it would be
    longer. None where the newest alone does not fit."""
    for first in range(max(1, len(turns))):
        prompt = _write(omni, instructions, turns[first:])
        if len(prompt) <= longest:
            return prompt
    return None


def _write(omni: Omni, instructions: str, turns: Sequence[Turn]) -> Prompt:
    tokens, words = omni.tokens, omni.words
    writer = _Writer(tokens)
    told = [Turn("system", (instructions,)), *turns] if instructions else list(turns)
    for turn in told:
        # The talker hears what the user said; what the agent said is in its own codes, which are gone by now.
        spoken = turn.role == "user"
        writer.text([tokens.im_start, tokens.role(turn.role), tokens.newline], spoken)
        for part in turn.parts:
            if isinstance(part, Features):
                writer.medium(part, spoken)
            else:
                writer.text(words.encode(part), spoken)
        writer.text([tokens.im_end, tokens.newline], spoken)
    writer.text([tokens.im_start, tokens.assistant, tokens.newline], False)
    return Prompt(writer.ids, writer.cells, torch.cat(writer.columns, 1), writer.media, writer.spoken, writer.next)


def common(cells: Sequence[Cell], prompt: Prompt) -> int:
    """How many positions at the beginning of `prompt` are those of `cells`; never all of it, whose end is needed."""
    limit = min(len(cells), len(prompt) - 1)
    for index in range(limit):
        if cells[index] != prompt.cells[index]:
            return index
    return limit
