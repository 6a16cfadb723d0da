"""What speech detection costs of many sessions: `python -m tests.bench.speech_detection [--sessions 100]`.

Room noise of a telephone, too loud to be skipped, while the agent speaks to each. The sessions' windows become whole in
turns, a batch of them at once, and the next batch follows when all of the one before has been answered, so that the
figure does not depend on what else the machine does. Prints the CPU time of the thread that listens. With `--unheard`
speech is looked for in none of it and nobody asks for it before all of it has come.
"""

from __future__ import annotations

import argparse
import threading
import time

import numpy as np

from codec import g711
from models import assets
from models.perception.asr import Recognition
from models.perception.perception import WINDOW_TICKS, EmbeddedPerception
from models.perception.vad import WINDOW, SpeechDetector, SpeechState
from sessions.core.effects import AssessTurn, OpenPerception
from sessions.core.events import Event, SpeechProbability
from sessions.core.fence import Fence
from sessions.core.timeline import TICK_RATE

RATE = 8_000
SAMPLES = WINDOW_TICKS * RATE // TICK_RATE
WARM = 10
"""Windows of each session before anything is counted."""


class Nobody:
    """Stands for the models that are asked only when somebody speaks."""

    languages = ("en",)

    def recognize(self, samples: object, language: str = "en", *, times: bool = False) -> Recognition:
        raise LookupError("nobody speaks")

    def probability(self, turn: object) -> float:
        raise LookupError("nobody speaks")


def room_noise(dbfs: float) -> list[bytes]:
    """Ten seconds of it as a telephone gives it, PCM16, a window each."""
    noise = np.random.default_rng(7).normal(size=10 * RATE // SAMPLES * SAMPLES) * 32768 * 10 ** (dbfs / 20)
    pcm = g711.decode(g711.encode(np.clip(np.round(noise), -32768, 32767).astype("<i2").tobytes(), "ulaw"), "ulaw")
    return [pcm[at : at + 2 * SAMPLES] for at in range(0, len(pcm), 2 * SAMPLES)]


def network(detector: SpeechDetector, batch: int, calls: int = 200) -> float:
    """CPU seconds of one window in a batch."""
    windows = np.random.default_rng(7).normal(size=(batch, WINDOW)).astype(np.float32) * np.float32(1e-3)
    states = [SpeechState() for _ in range(batch)]
    detector.detect(windows, states)
    begun = time.thread_time()
    for _ in range(calls):
        detector.detect(windows, states)
    return (time.thread_time() - begun) / calls / batch


def unheard(perception: EmbeddedPerception, clock: int, sessions: int, seconds: int = 20) -> float:
    """CPU seconds of the thread that listens, per second of audio that nobody asks for, in packets of 20 ms."""
    packet = bytes(RATE // 50 * 2)
    answered = threading.Event()
    for number in range(sessions):
        perception.open(
            Fence(str(number), 1, 0),
            OpenPerception(speech=False, language="en"),
            lambda event, pcm=None: answered.set(),
        )
    begun = time.clock_gettime(clock)
    for step in range(seconds * 50):
        for number in range(sessions):
            perception.feed(str(number), step * TICK_RATE // 50, packet, RATE)
    perception.forget("0", seconds * TICK_RATE)
    # What it heard is forgotten by then, so this is answered when its inbox is empty, without a model.
    perception.assess("0", AssessTurn(1, 0, TICK_RATE))
    answered.wait()
    return (time.clock_gettime(clock) - begun) / sessions / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sessions", type=int, default=100)
    parser.add_argument("--batch", type=int, default=25, help="windows that become whole at once (default: 25)")
    parser.add_argument("--windows", type=int, default=100, help="of each session (default: 100)")
    parser.add_argument("--dbfs", type=float, default=-60.0, help="level of the room (default: -60)")
    parser.add_argument("--unheard", action="store_true", help="audio that nobody listens to")
    options = parser.parse_args()
    sessions: int = options.sessions
    batch: int = options.batch
    detector = SpeechDetector(assets.ensure(("silero-vad",))["silero-vad"])
    perception = EmbeddedPerception(detector, Nobody(), Nobody())
    (intake,) = (thread for thread in threading.enumerate() if thread.name == "intake")
    clock = time.pthread_getcpuclockid(intake.ident or 0)
    if options.unheard:
        print(f"{1e6 * unheard(perception, clock, sessions):.0f} us per second and session")
        perception.stop()
        return
    noise = room_noise(options.dbfs)
    tone = (np.sin(np.arange(SAMPLES) * 0.35) * 8000).astype("<i2").tobytes()
    awaited, answered = 0, threading.Event()

    def emit(event: Event, pcm: bytes | None = None) -> None:
        nonlocal awaited
        if isinstance(event, SpeechProbability):
            awaited -= 1
            if awaited == 0:
                answered.set()

    names = [str(number) for number in range(sessions)]
    for name in names:
        perception.open(Fence(name, 1, 0), OpenPerception(speech=True, language="en"), emit)
    used, windows = 0.0, 0
    for step in range(WARM + options.windows):
        at = step * WINDOW_TICKS
        for first in range(0, sessions, batch):
            before = time.clock_gettime(clock)
            together = names[first : first + batch]
            # What the resampler holds back completes a window with the next stretch, so the first gives none.
            awaited = len(together) if step else 0
            answered.clear()
            for number, name in enumerate(together, first):
                perception.play(name, at, tone, RATE)
                perception.feed(name, at, noise[(step + number * 37) % len(noise)], RATE)
            if step:
                answered.wait()
            if step >= WARM:
                used += time.clock_gettime(clock) - before
                windows += len(together)
    perception.stop()
    per_window = used / windows
    per_second = per_window * TICK_RATE / WINDOW_TICKS
    print(f"{1e6 * per_window:.0f} us a window, {1000 * per_second:.2f} ms per second and session; {windows} windows")
    print(f"{1e6 * network(detector, batch):.0f} us a window in the network, {batch} at once")


if __name__ == "__main__":
    main()
