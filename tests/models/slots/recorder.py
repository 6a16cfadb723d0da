"""A model for the slot engine that computes nothing but remembers everything: what it says is what it was given."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from models.slots.model import StepInput, StepOutput

HOP = 4
CODEBOOKS = 2
MARGIN = 5


class RecorderModel:
    """Says in `text` where the slot stands, in `pcm` what it heard, in `said` its seed and the number of the step.

    `history[slot]`: what the slot has been given since its reset, a rewind taken back. `during`: called in every step,
    as if from another thread. A frame that begins with 0.5 makes the slot's numbers infinite from then on.
    """

    def __init__(self, batch: int, margin: int = MARGIN, *, hop: int = HOP, sample_rate: int = 50) -> None:
        self.batch, self.hop, self.sample_rate, self.codebooks, self.margin = batch, hop, sample_rate, CODEBOOKS, margin
        self.history: list[list[tuple[str, int]]] = [[] for _ in range(batch)]
        self.seed = torch.zeros(batch, dtype=torch.int64)
        self.poisoned = torch.zeros(batch, dtype=torch.bool)
        self.steps: list[list[int]] = []
        self.during: Callable[[], None] = lambda: None

    def reset(self, mask: Tensor, seed: Tensor) -> None:
        self.seed = torch.where(mask, seed, self.seed)
        self.poisoned &= ~mask
        for slot in mask.nonzero().flatten().tolist():
            self.history[slot] = []

    def rewind(self, back: Tensor) -> None:
        assert int(back.max()) <= self.margin
        for slot, frames in enumerate(back.tolist()):
            if frames:
                assert frames <= len(self.history[slot])
                del self.history[slot][-frames:]

    def step(self, given: StepInput) -> StepOutput:
        self.during()
        self.steps.append(given.run.nonzero().flatten().tolist())
        assert not (given.hears & ~given.run).any()
        text = torch.tensor([len(history) for history in self.history])
        self.poisoned |= given.hears & (given.pcm[:, 0] == 0.5)
        heard = torch.where(given.hears[:, None], given.pcm[:, :1].mul(1000).round().long(), given.codes)
        heard = heard[:, :1].expand(-1, CODEBOOKS).contiguous()
        for slot in self.steps[-1]:
            what = "heard" if given.hears[slot] else "replayed"
            what += ", hushed" if given.hush[slot] else ""
            self.history[slot].append((what, int(heard[slot, 0])))
        said = torch.stack([self.seed, torch.full_like(text, len(self.steps))], dim=1)
        return StepOutput(given.pcm.clone(), text, heard, said, ~self.poisoned)
