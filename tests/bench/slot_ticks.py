"""CPU time of a tick of the slot engine's language model by number of slots, as a ratio to one slot.

    python -m tests.bench.slot_ticks [--slots 1,4,16,64] [--ticks 40] [--json FILE]

The model has Moshi's architecture with 18 million random weights, a window of 20 s, and draws with top-k 250. All slots
are busy, and their windows full. One thread; CPU time, so that other work on the machine counts little; the least of
all ticks, since noise only ever adds. A batch is repacked for the caches of the machine it meets first, so each size is
measured alternately with one slot. The goal: 64 slots in at most 6 times the tick of one.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch

from codec.identity import CodecIdentity
from models.families.moshi.config import TINY, MoshiConfig
from models.families.moshi.language import MoshiLM
from models.families.moshi.slots import MoshiSlots

GOAL = 6.0

SHAPE = {
    **TINY,
    "dim": 256,
    "text_card": 512,
    "card": 2048,
    "num_heads": 8,
    "num_layers": 4,
    "hidden_scale": 4,
    "context": 250,
    "depformer_dim": 128,
    "depformer_dim_feedforward": 256,
    "depformer_num_heads": 4,
    "depformer_num_layers": 2,
}


class NoCodec:
    """A codec is measured by itself."""

    def __init__(self) -> None:
        self.identity = CodecIdentity("none", "1", 24_000, 1920, 8, 2048)
        self.silence = torch.zeros(8, dtype=torch.int64)

    def reset(self, mask: torch.Tensor) -> None:
        """It has no state."""


class Subject:
    """A batch of slots in the middle of its sessions."""

    def __init__(self, lm: MoshiLM, slots: int) -> None:
        self.slots = slots
        self._model = MoshiSlots(lm, NoCodec(), slots)  # type: ignore[arg-type]
        self._run = torch.ones(slots, dtype=torch.bool)
        self._model.reset(self._run, torch.arange(slots))
        # As after a long session: every cell of the window is held.
        self._model.stand_at(1000)
        generator = torch.Generator().manual_seed(3)
        self._user = torch.randint(0, 2048, (16, slots, 8), generator=generator)
        self._tick = 0
        self.best = float("inf")

    def tick(self) -> None:
        user = self._user[self._tick % 16]
        self._tick += 1
        began = time.thread_time()
        with torch.no_grad():
            self._model.advance(user, self._run, ~self._run)
        self.best = min(self.best, time.thread_time() - began)


def measure(sizes: list[int], ticks: int) -> dict[str, object]:
    """Milliseconds of CPU per tick by number of slots, and the ratio of the most to one."""
    torch.set_num_threads(1)
    lm = MoshiLM.random(MoshiConfig.read(SHAPE))
    subjects = [Subject(lm, size) for size in sorted({1, *sizes})]
    for _ in range(ticks):
        for subject in subjects:
            subject.tick()
    milliseconds = {str(subject.slots): round(subject.best * 1e3, 2) for subject in subjects}
    return {
        "parameters_million": round(sum(weight.numel() for weight in lm.parameters()) / 1e6, 1),
        "tick_ms": milliseconds,
        "ratio": {str(subject.slots): round(subject.best / subjects[0].best, 2) for subject in subjects},
        "torch": torch.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", default="1,4,16,64", help="sizes of the batch (default: %(default)s)")
    parser.add_argument("--ticks", type=int, default=40, help="ticks of each size (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")
    options = parser.parse_args()
    found = measure([int(size) for size in options.slots.split(",")], options.ticks)
    print(f"{found['parameters_million']} M parameters, torch {found['torch']}, one thread, CPU time, least of ticks")
    ticks, ratios = found["tick_ms"], found["ratio"]
    assert isinstance(ticks, dict)
    assert isinstance(ratios, dict)
    for size, milliseconds in ticks.items():
        print(f"{size:>4} slots: {milliseconds:7.2f} ms per tick, {ratios[size]:5.2f} times one slot's")
    most = list(ratios)[-1]
    print(f"goal: 64 slots at most {GOAL:.0f} times; {most} are {ratios[most]:.2f}")
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
