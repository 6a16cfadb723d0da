"""The same figures, measured: a model is made here with different numbers of sessions, and stepped.

Memory is what tensors hold, found by looking at all of them, so it does not hang on what a model says of itself. Time
on a CPU is CPU time of one thread; on a GPU it is the clock's, after all work has ended.
"""

from __future__ import annotations

import functools
import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
    """`steps`: seconds of one step by sessions; empty where none is measured. `stages`: the same by stage, where stages
    step apart."""

    weights: Figure
    session: Figure
    total: Mapping[int, int]
    """Bytes by sessions."""
    steps: Mapping[int, float]
    how: str
    stages: Mapping[str, Mapping[int, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stage:
    """One call of `step` computes `ticks` ticks of a stage for all sessions."""

    step: Callable[[], object]
    ticks: int = 1


WHOLE = "step"
"""The one stage of a model that steps as a whole."""


@dataclass(frozen=True, slots=True)
class Made:
    """A model with its states, and the stages of a tick by name; none where nothing is stepped.

    `keep`: what must live while it is looked at.
    """

    keep: object
    stages: Mapping[str, Stage]


Maker = Callable[[int], Made]
"""Makes a model for so many sessions."""


def measure(make: Maker, tell: Tell, *, sessions: Sequence[int] = SESSIONS, spare: int = 0) -> Measurement:
    """`make` a model for so many sessions, several times. `spare`: sessions' state that it allocates besides."""
    if len(set(sessions)) < 2 or min(sessions) < 1:
        raise PlanError("--measure", f"{sessions} must be at least two different numbers of sessions")
    total: dict[int, int] = {}
    stages: dict[str, dict[int, float]] = {}
    # What a library makes once for all, it makes for the first model.
    tell("making a model for the first time")
    make(min(sessions))
    for count in sessions:
        tell(f"making a model with {count} sessions")
        made, size = allocated(functools.partial(make, count))
        total[count] = size
        for name, stage in made.stages.items():
            tell(f"{name} of {count} sessions")
            stages.setdefault(name, {})[count] = _seconds(stage.step) / stage.ticks
        del made
        gc.collect()
    low, high = min(sessions), max(sessions)
    each = (total[high] - total[low]) / (high - low)
    how = f"tensors of models with {', '.join(map(str, sessions))} sessions here"
    return Measurement(
        weights=measured(total[low] - (low + spare) * each, "bytes", how),
        session=measured(each, "bytes", how),
        total=total,
        # A tick is one stage after the other.
        steps={count: sum(seconds[count] for seconds in stages.values()) for count in sessions} if stages else {},
        how=f"{'the clock' if torch.cuda.is_available() else 'CPU time of one thread'}, best of {_STEPS} steps here",
        stages={name: seconds for name, seconds in stages.items() if name != WHOLE},
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
    return Made((model, engine), {WHOLE: Stage(step)})


def qwen3_omni(sessions: int) -> Made:
    """Qwen3-Omni with tiny random weights, and the states that the engine gives it; stepped stage by stage.

    Rows are full but for what the steps add, since a step costs most then; code2wav decodes the windows of a session
    that has time in hand.
    """
    from ..families.qwen3_omni import tiny
    from ..families.qwen3_omni.code2wav import Code2Wav, Track, Window
    from ..families.qwen3_omni.engine import LATER, SPARE, WIDEST
    from ..families.qwen3_omni.talker import Talker
    from ..families.qwen3_omni.thinker import Thinker

    torch.set_num_threads(1)
    omni = tiny.random()
    rows = sessions + SPARE
    active = list(range(sessions))
    thinker, talker, decoder = Thinker(omni, rows, WIDEST), Talker(omni, rows), Code2Wav(omni)
    tracks = [Track() for _ in active]
    letter = torch.full((rows,), ord("a"))
    numbers = torch.arange(rows)
    room = _WARM + _STEPS
    with torch.inference_mode():
        for track in tracks:
            for _ in range(omni.shape.left or 0):
                track.push(torch.zeros(tiny.CODEBOOKS, dtype=torch.long))
        thinker.stand_at(omni.shape.cells - room)
        talker.stand_at(omni.shape.talker_cells - room)

    @torch.inference_mode()
    def think() -> None:
        thinker.sample(thinker.next_tokens(letter, active), numbers, numbers, torch.full((rows,), 0.8))

    @torch.inference_mode()
    def talk() -> None:
        talker.frame(active, talker.no_text.expand(rows, -1), numbers, numbers)

    @torch.inference_mode()
    def sound() -> None:
        for track in tracks:
            for _ in range(LATER):
                track.push(torch.zeros(tiny.CODEBOOKS, dtype=torch.long))
        decoder.decode([Window(track, LATER) for track in tracks])

    stages = {
        "thinker": Stage(think),
        "talker": Stage(talk),
        "code2wav": Stage(sound, LATER),
    }
    return Made((omni, thinker, talker, decoder, tracks), stages)
