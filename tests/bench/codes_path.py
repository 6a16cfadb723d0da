"""What it costs that the embedded voice travels as codec frames: first audio, and CPU time per second of speech.

`python -m tests.bench.codes_path` has the embedded talker speak the same answers through the engine as PCM and as
codes, one at a time and eight at once. Thinking costs nothing here: the text is there when a response begins, so first
audio is what talker and codec take. CPU time is that of the whole process; all figures are of several rounds.

Before that: what one step of encoder and decoder takes, for several numbers of slots and frames. Figures of a machine
that does other things are higher, wall-clock times most of all, so the load is printed with them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from codec.rvq.checkpoint import load_checkpoint
from codec.rvq.stream import StreamingRvqDecoder, StreamingRvqEncoder
from models.families.embedded.engine import EmbeddedEngine
from models.families.embedded.stop import Stop
from models.families.embedded.talker_hibari import HibariTalker
from models.families.embedded.thinker import TextPiece, Thinking, ThinkRequest, Thought
from models.families.embedded.voice_codec import VoiceCodec
from sessions.core.config import SessionConfig
from sessions.core.effects import StartResponse
from sessions.core.events import EngineAudio, EngineDone, EngineFailed, Event
from sessions.core.fence import Fence
from sessions.core.timeline import TICK_RATE, Ticks, from_ms
from tests.bench.report import table

ANSWER = (
    "Yes, of course. The library opens at nine on working days, and at ten on Saturdays. If you bring your card, you "
    "can take up to twelve books home, for four weeks at a time."
)
CREDIT: Ticks = from_ms(60_000)
PATIENCE = 120.0


class _Reader:
    """A thinker that knows what it will say."""

    def think(self, request: ThinkRequest, tell: Callable[[Thought], None], stop: Stop) -> Thinking:
        tell(TextPiece(ANSWER))
        return Thinking()

    def close(self) -> None:
        pass


class _Answer:
    """An `Emit` that takes the times of one response."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.first: float | None = None
        self.first_cpu = 0.0
        self.length: Ticks = 0
        self.failed = ""
        self.over = threading.Event()

    def __call__(self, event: Event, pcm: bytes | None = None) -> None:
        if isinstance(event, EngineAudio):
            if self.first is None:
                self.first = time.perf_counter() - self.began
                self.first_cpu = time.process_time()
            self.length = event.end
        elif isinstance(event, EngineDone | EngineFailed):
            self.failed = event.message if isinstance(event, EngineFailed) else ""
            self.over.set()


@dataclass(frozen=True, slots=True)
class _Round:
    """All in seconds; `last_cpu`: CPU until every answer could be heard."""

    firsts: list[float]
    last_cpu: float
    cpu: float
    speech: float


def _round(engine: EmbeddedEngine, answers: int, number: int) -> _Round:
    spent = time.process_time()
    running: list[_Answer] = []
    for index in range(answers):
        answer, fence = _Answer(), Fence(f"s{number}-{index}", 1, 0)
        engine.open(fence, SessionConfig(), answer)
        running.append(answer)
        request = StartResponse(fence, "r", (), "", "audio", "default", 1.0, (), "auto", None, 0.8, CREDIT)
        answer.began = time.perf_counter()
        engine.start(request)
    for answer in running:
        if not answer.over.wait(PATIENCE) or answer.failed or answer.first is None:
            raise RuntimeError(f"an answer did not come: {answer.failed or 'nothing was heard'}")
    cpu = time.process_time() - spent
    for index in range(answers):
        engine.close(f"s{number}-{index}")
    speech = sum(answer.length for answer in running) / TICK_RATE
    firsts = [answer.first for answer in running if answer.first is not None]
    return _Round(firsts, max(answer.first_cpu for answer in running) - spent, cpu, speech)


STEPS = ((1, 1), (16, 1), (1, 2), (1, 8), (4, 8))
"""Slots and frames of each."""


def _steps(rounds: int) -> list[list[object]]:
    """CPU ms of one step, the least of several: slots, frames, encode, decode."""
    checkpoint = load_checkpoint()
    rows: list[list[object]] = []
    for slots, frames in STEPS:
        encoder, decoder = StreamingRvqEncoder(checkpoint, slots), StreamingRvqDecoder(checkpoint, slots)
        encoder.trace()
        decoder.trace()
        noise = np.random.default_rng(1).standard_normal((slots, frames * encoder.identity.hop))
        pcm, every = (0.1 * noise).astype(np.float32), list(range(slots))
        spent: list[tuple[float, float]] = []
        for _ in range(8 + 3 * rounds):
            began = time.thread_time()
            codes = encoder.encode_some(pcm, every)
            between = time.thread_time()
            decoder.decode_some(codes, every)
            spent.append((between - began, time.thread_time() - between))
        rows.append([slots, frames, *(round(1000 * min(values), 1) for values in zip(*spent, strict=True))])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="times that each is asked (default: 7)")
    rounds = parser.parse_args().rounds
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    torch.set_num_threads(1)
    print(table(_steps(rounds), ("slots", "frames", "encode, CPU ms", "decode, CPU ms")), end="\n\n")
    talker = HibariTalker()
    rows: list[list[object]] = []
    for answers in (1, 8):
        for path, codec in (("pcm", None), ("codes", VoiceCodec.load(slots=answers))):
            engine = EmbeddedEngine(_Reader(), talker, max_sessions=answers, codec=codec)
            try:
                _round(engine, answers, 0)  # the first time allocates
                done = [_round(engine, answers, number) for number in range(1, rounds + 1)]
            finally:
                engine.shutdown()
            firsts = [first for one in done for first in one.firsts]
            cpu = sorted(one.cpu / one.speech for one in done)
            figures = (
                statistics.median(firsts),
                max(firsts),
                min(one.last_cpu for one in done),
                cpu[0],
                statistics.median(cpu),
            )
            rows.append([path, answers, *(round(1000 * value, 1) for value in figures)])
    head = (
        "path",
        "answers",
        "first audio ms",
        "longest",
        "CPU ms till all are heard",
        "CPU ms per s of speech",
        "p50",
    )
    print(table(rows, head))


if __name__ == "__main__":
    main()
