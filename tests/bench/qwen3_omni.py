"""Throughput of the Qwen3-Omni engine with tiny random weights, by sessions at a time.

    python -m tests.bench.qwen3_omni [--seconds N] [--sessions 1 8]

Each session answers one question after another; a new one begins when the last has ended. Prints seconds of sound made
per second of CPU, the ratio to one session, and how long each stage took from the request on (one session, wall clock).
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from models.families.qwen3_omni import tiny
from models.families.qwen3_omni.engine import OmniEngine
from models.families.qwen3_omni.omni import RATE
from sessions.core.config import SessionConfig
from sessions.core.context import ContextEntry
from sessions.core.effects import StartResponse
from sessions.core.events import EngineAudio, EngineDone, EngineStage, Event
from sessions.core.fence import Fence

PLENTY = 600 * 48_000


class Load:
    """`sessions` that ask all the time."""

    def __init__(self, engine: OmniEngine, sessions: int) -> None:
        self.engine = engine
        self.samples = 0
        self.stages: dict[str, list[float]] = {}
        self._free: list[str] = []
        self._asked: dict[str, float] = {}
        self._number = 0
        for number in range(sessions):
            session = f"s{number}"
            engine.open(Fence(session, 1, 0), SessionConfig(), self._emit)
            self._free.append(session)

    def _emit(self, event: Event, pcm: bytes | None = None) -> None:
        if isinstance(event, EngineAudio):
            self.samples += len(pcm or b"") // 2
        elif isinstance(event, EngineStage):
            self.stages.setdefault(event.stage, []).append(time.perf_counter() - self._asked[event.response])
        elif isinstance(event, EngineDone):
            self._free.append(event.fence.session)

    def run(self, seconds: float) -> float:
        """Seconds of sound per second of CPU, over about `seconds` of CPU."""
        began = time.process_time()
        made = self.samples
        while time.process_time() - began < seconds:
            for session in self._free:
                self._ask(session)
            self._free.clear()
            self.engine.step()
        return (self.samples - made) / RATE / (time.process_time() - began)

    def _ask(self, session: str) -> None:
        self._number += 1
        response = f"r{self._number}"
        self._asked[response] = time.perf_counter()
        context = (ContextEntry("user", "message", f"question number {self._number}"),)
        fence = Fence(session, 1, 0)
        self.engine.start(
            StartResponse(fence, response, context, "", "audio", "ember", 1.0, (), "auto", None, 0.8, PLENTY)
        )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=10.0, help="CPU seconds for each number of sessions")
    options.add_argument("--sessions", type=int, nargs="+", default=[1, 2, 4, 8])
    given = options.parse_args()
    torch.set_num_threads(1)
    omni = tiny.random()
    first = 0.0
    for sessions in given.sessions:
        load = Load(OmniEngine(omni, max_sessions=sessions, worker=False), sessions)
        load.run(1.0)  # the first steps make tables and warm caches
        load.stages.clear()
        rate = load.run(given.seconds)
        first = first or rate
        print(f"{sessions} sessions: {rate:.1f} s of sound per CPU second, {rate / first:.2f} times the first")
        if sessions == 1:
            for stage, times in load.stages.items():
                print(f"  {stage}: median {1000 * statistics.median(times):.0f} ms")


if __name__ == "__main__":
    main()
