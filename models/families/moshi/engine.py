"""Moshi as an engine of the server: a loaded checkpoint, or random weights, in slots behind the port."""

from __future__ import annotations

from pathlib import Path

import torch

from models.slots.duplex import Clock, DuplexEngine, DuplexOptions
from models.slots.engine import SlotOptions

from .checkpoint import LoadedMoshi, Placement, load, random

MARGIN = 25
"""Frames that a cut may take the model back: two seconds, far more than a carrier is given ahead of playback."""
SLOTS = 4
"""Sessions at a time where no setting says otherwise."""


def moshi_engine(
    checkpoint: Path | None, *, slots: int = SLOTS, clock: Clock | None = None, worker: bool = True
) -> DuplexEngine:
    """An engine for the checkpoint in a folder, or with tiny random weights. Blocks while it loads.

    What the user did not hear the model is made not to have said (policy "rewind"). On a GPU weights are bfloat16.
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
    return engine_of(
        random(placement) if checkpoint is None else load(checkpoint, placement), clock=clock, worker=worker
    )


def engine_of(loaded: LoadedMoshi, *, clock: Clock | None = None, worker: bool = True) -> DuplexEngine:
    """The engine of a loaded model."""
    options = DuplexOptions(slots=SlotOptions(policy="rewind" if loaded.model.margin else "annotate"))
    return DuplexEngine(loaded.model, loaded.text, options, clock=clock, worker=worker)
