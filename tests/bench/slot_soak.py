"""Sessions of a Moshi-shaped model with the trained codec in real time: late ticks, and the loop's lag beside them.

    python -m tests.bench.slot_soak [--slots 16] [--minutes 10] [--json FILE]

The model has 18 million random weights; the codec is the one in the repository, so user audio is encoded and the
agent's decoded for every session and frame. The engine's worker ticks every 80 ms, and the event loop beside it takes
the audio of all sessions in chunks of 20 ms, as a server's does. A tick is late when it ends after the next is due. The
goal: none at 16 slots in 10 minutes, and a loop lag of at most 5 ms at p99. On a machine with other work it says more
of that work.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from pathlib import Path

import numpy as np
import torch

from codec.rvq.checkpoint import load_checkpoint
from models.families.moshi.config import MoshiConfig
from models.families.moshi.language import MoshiLM
from models.families.moshi.slots import MoshiSlots
from models.families.moshi.text import Numbers
from models.slots.duplex import DuplexEngine
from models.slots.model import StepInput, StepOutput
from models.slots.rvq import RvqSlots
from server.metrics import LoopLag
from sessions.core.config import SessionConfig
from sessions.core.events import Event
from sessions.core.fence import Fence
from tests.bench.report import percentile
from tests.bench.slot_ticks import SHAPE

CHUNK = 0.02
RATE = 24_000


class Timed(MoshiSlots):
    """Keeps how long every step took, in seconds of wall and CPU time."""

    wall: list[float]
    cpu: list[float]

    def step(self, given: StepInput) -> StepOutput:
        wall, cpu = time.perf_counter(), time.thread_time()
        out = super().step(given)
        self.wall.append(time.perf_counter() - wall)
        self.cpu.append(time.thread_time() - cpu)
        return out


async def soak(slots: int, seconds: float) -> dict[str, object]:
    """Run so many sessions for so long; returns the figures."""
    torch.set_num_threads(1)
    codebooks = 8
    lm = MoshiLM.random(MoshiConfig.read({**SHAPE, "card": 1024}))
    model = Timed(lm, RvqSlots(load_checkpoint(), slots, codebooks=codebooks), slots)
    model.wall, model.cpu = [], []
    engine = DuplexEngine(model, lambda: Numbers(frozenset({3})))
    frames = 0

    def told(event: Event, pcm: bytes | None = None) -> None:
        nonlocal frames
        frames += 1

    names = [f"session {number}" for number in range(slots)]
    for name in names:
        engine.open(Fence(name, 1, 0), SessionConfig(), told)
    dice = np.random.default_rng(1)
    noise = (3000 * dice.standard_normal((64, round(CHUNK * RATE)))).astype("<i2")
    lag = LoopLag()
    lag.start()
    began, chunk = time.monotonic(), 0
    while (elapsed := time.monotonic() - began) < seconds:
        for place, name in enumerate(names):
            engine.append(name, chunk * 960, noise[(chunk + place) % 64].tobytes(), RATE)
        chunk += 1
        await asyncio.sleep(max(0.0, chunk * CHUNK - elapsed))
    await lag.stop()
    counters = engine.counters
    await asyncio.to_thread(engine.shutdown)
    steps = model.wall[5:]
    return {
        "slots": slots,
        "seconds": round(elapsed, 1),
        "ticks": counters["ticks"],
        "frames": frames,
        "late_ticks": sum(step > 0.08 for step in steps),
        "ticks_missed": counters.get("ticks_missed", 0),
        "frames_lost": counters.get("frames_lost", 0),
        "steps_extra": counters.get("steps_extra", 0),
        "step_ms_p50": round(percentile(steps, 0.5) * 1e3, 1),
        "step_ms_p99": round(percentile(steps, 0.99) * 1e3, 1),
        "step_cpu_ms_p50": round(percentile(model.cpu[5:], 0.5) * 1e3, 1),
        "loop_lag_ms_p99": round(lag.quantile(0.99) * 1e3, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int, default=16, help="sessions at a time (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")
    options = parser.parse_args()
    found = asyncio.run(soak(options.slots, options.minutes * 60))
    for name, value in found.items():
        print(f"{name:>18}: {value}")
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
