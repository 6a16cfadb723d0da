"""Moshi as an engine of the server: a loaded checkpoint, or random weights, in slots behind the port."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from models.slots.duplex import Clock, DuplexEngine, DuplexOptions
from models.slots.engine import Policy, SlotOptions
from sessions.codes_track import CodesFormat

from .checkpoint import LoadedMoshi, Placement, load, random
from .worker import SLOTS

WORTH_RECORDING = 1 << 30
"""Bytes of weights: a step of a larger model spends its time on reading them, and a record holds a copy of them all."""
MARGIN = 25
"""Frames that a cut may take the model back: two seconds, far more than a carrier is given ahead of playback."""


def moshi_engine(
    checkpoint: Path | None,
    *,
    slots: int = SLOTS,
    policy: Policy = "rewind",
    clock: Clock | None = None,
    worker: bool = True,
    record: bool = False,
) -> DuplexEngine:
    """An engine for the checkpoint in a folder, or with tiny random weights. Blocks while it loads.

    `policy`: what the model is told of an interruption; "rewind" makes it not have said what was not heard. On a GPU
    weights are bfloat16. `record`: on a CPU steps of a small model run without the interpreter, which takes some
    seconds to prepare. Raises CheckpointError.
    """
    return engine_of(placed(checkpoint, slots=slots, record=record), policy=policy, clock=clock, worker=worker)


def placed(checkpoint: Path | None, *, slots: int, device: str | None = None, record: bool = False) -> LoadedMoshi:
    """The model of a folder, or the tiny one with random weights, for so many sessions. `device` None: a GPU if there
    is one; random weights stay on the CPU. `record`: see `moshi_engine`. Raises CheckpointError."""
    # On a CPU a second thread gains little and takes the core that the event loop runs on.
    torch.set_num_threads(1)
    if checkpoint is None:
        loaded = random(Placement(slots=slots, margin=MARGIN))
    else:
        where = device or ("cuda" if torch.cuda.is_available() else "cpu")
        dtype = torch.float32 if where == "cpu" else torch.bfloat16
        loaded = load(checkpoint, Placement(slots=slots, margin=MARGIN, device=where, dtype=dtype))
    if record and loaded.model.device.type == "cpu" and _bytes(loaded.model.lm) <= WORTH_RECORDING:
        loaded.model.record()
    return loaded


def engine_of(
    loaded: LoadedMoshi, *, policy: Policy = "rewind", clock: Clock | None = None, worker: bool = True
) -> DuplexEngine:
    """The engine of a loaded model. Raises ValueError for policy "rewind" where it was loaded without a margin."""
    codec = loaded.model.codec.identity
    codes = CodesFormat(
        codec.name, codec.version, codec.sample_rate, codec.hop, loaded.model.lm.config.agent, codec.codebook_size
    )
    options = DuplexOptions(slots=SlotOptions(policy=policy), codes=codes)
    if loaded.prompts is not None:
        options = replace(options, prompt=loaded.prompts, voices=loaded.prompts.names)
    return DuplexEngine(loaded.model, loaded.text, options, clock=clock, worker=worker)


def _bytes(model: torch.nn.Module) -> int:
    return sum(weight.numel() * weight.element_size() for weight in model.parameters())
