"""The same figures, measured: a model is made here with different numbers of sessions, and stepped.

Memory is what tensors hold, found by looking at all of them, so it does not hang on what a model says of itself. Time
on a CPU is CPU time of one thread; on a GPU it is the clock's, after all work has ended.
"""

from __future__ import annotations

import functools
import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from .figures import Figure, PlanError, measured

T = TypeVar("T")

SESSIONS = (1, 4, 8)
"""Sessions with which a model is made. Three points tell a line from a curve."""
_STEPS = 5
_WARM = 2

Tell = Callable[[str], None]
"""What is being done, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """`steps`: seconds of one step by sessions; empty where none is measured."""

    weights: Figure
    session: Figure
    total: Mapping[int, int]
    """Bytes by sessions."""
    steps: Mapping[int, float]
    how: str


@dataclass(frozen=True, slots=True)
class Made:
    """A model with its states, and one step for all of its sessions. `keep`: what must live while it is looked at."""

    keep: object
    step: Callable[[], object] | None


Maker = Callable[[int], Made]
"""Makes a model for so many sessions."""


def measure(make: Maker, tell: Tell, *, sessions: Sequence[int] = SESSIONS, spare: int = 0) -> Measurement:
    """`make` a model for so many sessions, several times. `spare`: sessions' state that it allocates besides."""
    if len(set(sessions)) < 2 or min(sessions) < 1:
        raise PlanError("--measure", f"{sessions} must be at least two different numbers of sessions")
    total: dict[int, int] = {}
    steps: dict[int, float] = {}
    # What a library makes once for all, it makes for the first model.
    tell("making a model for the first time")
    make(min(sessions))
    for count in sessions:
        tell(f"making a model with {count} sessions")
        made, size = allocated(functools.partial(make, count))
        total[count] = size
        if made.step is not None:
            tell(f"stepping {count} sessions")
            steps[count] = _seconds(made.step)
        del made
        gc.collect()
    low, high = min(sessions), max(sessions)
    each = (total[high] - total[low]) / (high - low)
    how = f"tensors of models with {', '.join(map(str, sessions))} sessions here"
    return Measurement(
        weights=measured(total[low] - (low + spare) * each, "bytes", how),
        session=measured(each, "bytes", how),
        total=total,
        steps=steps,
        how=f"CPU time of one thread, best of {_STEPS} steps here",
    )


def allocated(make: Callable[[], T]) -> tuple[T, int]:
    """What `make` made, and bytes of the memory that its tensors hold and others did not before."""
    before = _storages()
    made = make()
    return made, sum(size for place, size in _storages().items() if place not in before)


def _storages() -> dict[tuple[str, int], int]:
    gc.collect()
    found: dict[tuple[str, int], int] = {}
    for held in gc.get_objects():
        if issubclass(type(held), torch.Tensor) and held.device.type != "meta":
            storage = held.untyped_storage()
            found[(str(held.device), storage.data_ptr())] = storage.nbytes()
    return found


def _seconds(step: Callable[[], object]) -> float:
    cuda = torch.cuda.is_available()
    clock = time.perf_counter if cuda else time.thread_time
    best = float("inf")
    for turn in range(_WARM + _STEPS):
        begin = clock()
        step()
        if cuda:
            torch.cuda.synchronize()
        if turn >= _WARM:
            best = min(best, clock() - begin)
    return best


def moshi(sessions: int, checkpoint: Path | None = None) -> Made:
    """Moshi with tiny random weights, or a checkpoint's, as the engine makes it."""
    from ..families.moshi.checkpoint import Placement, load, random
    from ..families.moshi.engine import MARGIN
    from ..slots.engine import SlotEngine

    torch.set_num_threads(1)
    cuda = torch.cuda.is_available() and checkpoint is not None
    placement = Placement(
        slots=sessions,
        margin=MARGIN,
        device="cuda" if cuda else "cpu",
        dtype=torch.bfloat16 if cuda else torch.float32,
    )
    model = (random(placement) if checkpoint is None else load(checkpoint, placement)).model
    engine: SlotEngine[None] = SlotEngine(model, now=time.monotonic)
    leases = [engine.admit(None, seed) for seed in range(sessions)]
    quiet = np.zeros(model.hop, np.float32)

    def step() -> None:
        for lease in leases:
            engine.feed(lease, quiet)
        engine.tick()

    # The first step begins the sessions. Their windows are full after minutes of talk, and a step costs most then.
    step()
    model.stand_at(model.lm.config.temporal.context + 1)
    return Made((model, engine), step)


def qwen3_omni(sessions: int) -> Made:
    """Qwen3-Omni with tiny random weights, and the states that the engine gives it. No step: its stages step apart."""
    from ..families.qwen3_omni import tiny
    from ..families.qwen3_omni.engine import SPARE, WIDEST
    from ..families.qwen3_omni.talker import Talker
    from ..families.qwen3_omni.thinker import Thinker

    torch.set_num_threads(1)
    omni = tiny.random()
    rows = sessions + SPARE
    return Made((omni, Thinker(omni, rows, WIDEST), Talker(omni, rows)), None)
