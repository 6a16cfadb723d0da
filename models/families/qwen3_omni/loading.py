"""From a folder, or from nothing, to the engine."""

from __future__ import annotations

from pathlib import Path

import torch

from . import tiny
from .checkpoint import Placement, load
from .engine import SPARE, OmniEngine

SESSIONS = 4
"""Sessions at a time where no setting says otherwise."""


def omni_engine(checkpoint: Path | None, sessions: int, *, worker: bool = True) -> OmniEngine:
    """An engine for the checkpoint in a folder, or with tiny random weights. Blocks while it loads.

    Raises what `checkpoint.load` raises.
    """
    # On a CPU a second thread gains little and takes the core that the event loop runs on.
    torch.set_num_threads(1)
    omni = tiny.random() if checkpoint is None else load(checkpoint, Placement.here(sessions + SPARE))
    return OmniEngine(omni, max_sessions=sessions, worker=worker)
