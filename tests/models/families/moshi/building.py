"""Tiny Moshi models for the tests of this folder."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from codec.mimi.config import MimiConfig
from codec.mimi.model import Mimi
from models.families.moshi.config import MoshiConfig
from models.families.moshi.language import MoshiLM
from models.families.moshi.slots import MoshiSlots, Sampling
from models.slots.mimi import MimiSlots
from models.slots.model import StepInput, StepOutput

torch.set_num_threads(1)

CONFIG = MoshiConfig.tiny()
HOP = MimiConfig.tiny().hop


@lru_cache(maxsize=1)
def weights() -> tuple[MoshiLM, Mimi]:
    return MoshiLM.random(CONFIG, seed=1), Mimi.random(MimiConfig.tiny(), seed=2)


def build(batch: int, *, margin: int = 0, sampling: Sampling | None = None) -> MoshiSlots:
    lm, mimi = weights()
    return MoshiSlots(lm, MimiSlots(mimi, batch, margin=margin), batch, margin=margin, sampling=sampling)


def user_audio(frames: int, seed: int) -> Tensor:
    """float32 [frames, HOP]"""
    return 0.2 * torch.randn(frames, HOP, generator=torch.Generator().manual_seed(seed))


def give(
    model: MoshiSlots,
    pcm: Tensor,
    *,
    run: Tensor | None = None,
    hush: Tensor | None = None,
    codes: Tensor | None = None,
) -> StepOutput:
    """One step: `pcm` [batch, HOP] is heard where `run`; with `codes` [batch, codebooks] they are replayed instead."""
    nobody = torch.zeros(model.batch, dtype=torch.bool)
    everyone = ~nobody if run is None else run
    heard = torch.zeros(model.batch, model.codebooks, dtype=torch.int64) if codes is None else codes
    return model.step(
        StepInput.free(everyone, everyone if codes is None else nobody, pcm, heard, nobody if hush is None else hush)
    )


def seeds(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int64)


def begin(model: MoshiSlots, *values: int) -> None:
    """All slots anew, each with its seed."""
    model.reset(torch.ones(model.batch, dtype=torch.bool), seeds(*values))
