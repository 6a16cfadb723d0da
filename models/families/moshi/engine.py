"""Moshi as an engine of the server: a loaded checkpoint, or random weights, in slots behind the port."""

from __future__ import annotations

from pathlib import Path

import torch

from models.slots.duplex import Clock, DuplexEngine, DuplexOptions
from models.slots.engine import Policy, SlotOptions

from .checkpoint import LoadedMoshi, Placement, load, random

MARGIN = 25
"""Frames that a cut may take the model back: two seconds, far more than a carrier is given ahead of playback."""
SLOTS = 4
"""Sessions at a time where no setting says otherwise."""


def moshi_engine(
    checkpoint: Path | None,
    *,
    slots: int = SLOTS,
    policy: Policy = "rewind",
    clock: Clock | None = None,
    worker: bool = True,
) -> DuplexEngine:
    """An engine for the checkpoint in a folder, or with tiny random weights. Blocks while it loads.

    `policy`: what the model is told of an interruption; "rewind" makes it not have said what was not heard. On a GPU
    weights are bfloat16.
    Raises CheckpointError.
    """
    cuda = torch.cuda.is_available()
    # On a CPU a second thread gains little and takes the core that the event loop runs on.
    torch.set_num_threads(1)
    placement = Placement(
        slots=slots,
        margin=MARGIN,
        device="cuda" if cuda and checkpoint is not None else "cpu",
        dtype=torch.bfloat16 if cuda and checkpoint is not None else torch.float32,
    )
    loaded = random(placement) if checkpoint is None else load(checkpoint, placement)
    return engine_of(loaded, policy=policy, clock=clock, worker=worker)


def engine_of(
    loaded: LoadedMoshi, *, policy: Policy = "rewind", clock: Clock | None = None, worker: bool = True
) -> DuplexEngine:
    """The engine of a loaded model. Raises ValueError for policy "rewind" where it was loaded without a margin."""
    return DuplexEngine(
        loaded.model, loaded.text, DuplexOptions(slots=SlotOptions(policy=policy)), clock=clock, worker=worker
    )
