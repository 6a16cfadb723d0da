"""What a model must do to be stepped by the slot engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class StepInput:
    """One step of the whole batch; rows of slots that do not run hold anything finite.

    A slot that runs either hears new audio (`hears`) or is given codes that it heard before (a replay after a rewind).
    """

    run: Tensor
    """bool [batch]"""
    hears: Tensor
    """bool [batch]: `pcm` is new audio of this slot; implies `run`."""
    pcm: Tensor
    """float32 [batch, hop] in -1..1"""
    codes: Tensor
    """int64 [batch, codebooks]: what the user said, for slots that run and do not hear."""
    hush: Tensor
    """bool [batch]: the agent is made to be silent in this frame, whatever it would have said."""
    forced: Tensor
    """bool [batch]: what the agent thinks and says in this frame is given and not drawn, and not heard by anybody."""
    text: Tensor
    """int64 [batch]: the token of the inner text where `forced`."""
    said: Tensor
    """int64 [batch, codebooks]: the agent's codes where `forced`."""

    @classmethod
    def free(cls, run: Tensor, hears: Tensor, pcm: Tensor, codes: Tensor, hush: Tensor) -> StepInput:
        """A step in which nothing is forced."""
        return cls(run, hears, pcm, codes, hush, torch.zeros_like(run), torch.zeros_like(codes[:, 0]), codes)


@dataclass(frozen=True, slots=True)
class StepOutput:
    """What a step gave; rows of slots that did not run hold nothing of meaning."""

    pcm: Tensor
    """float32 [batch, hop]: the agent's audio."""
    text: Tensor
    """int64 [batch]: token of the inner text stream, -1 where there is none yet."""
    heard: Tensor
    """int64 [batch, codebooks]: what the user said."""
    said: Tensor
    """int64 [batch, codebooks]: what the agent said; -1 where there is nothing yet."""
    finite: Tensor
    """bool [batch]: whether all numbers were; a slot where they were not must be reset."""


class SlotModel(Protocol):
    """A model with a fixed batch of slots. Used from one thread."""

    @property
    def batch(self) -> int: ...

    @property
    def hop(self) -> int:
        """Samples per frame."""

    @property
    def sample_rate(self) -> int: ...

    @property
    def codebooks(self) -> int:
        """Codes per frame of the user's stream."""

    @property
    def margin(self) -> int:
        """Frames by which a slot can be rewound."""

    def reset(self, mask: Tensor, seed: Tensor) -> None:
        """Zero all state of the slots where `mask`, bool [batch]; they draw from `seed`, int64 [batch], from now on."""

    def rewind(self, back: Tensor) -> None:
        """Take every slot back by so many frames, int64 [batch], 0..margin and never before its first."""

    def step(self, given: StepInput) -> StepOutput: ...
