"""How fast the session core is by itself: real-time factor of one core, by CPU time.

A conversation with 20 ms frames both ways: 50 stretches of input, 31 speech probabilities and 50 output frames a
second, words, credit, playback reports, turns, backchannels and interruptions. Nothing but `Session.handle` is
measured: the events are recorded once with model peers and then handed to a fresh session, and the effects must be
those of the recording.

    python -m tests.bench.core_speed [--minutes 10] [--profile]
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import sys
import time
from collections import Counter

from sessions.core.config import SessionConfig, TurnConfig
from sessions.core.effects import AdmitFrame, Count
from sessions.core.events import AudioArrived, Close, SpeechProbability
from sessions.core.session import Session
from sessions.core.state import Abilities
from sessions.core.timeline import TICK_RATE, Ticks, from_ms
from tests.sessions.core.driver import Step, World

FRAME: Ticks = from_ms(20)
WINDOW: Ticks = from_ms(32)
TARGET = 600
CONFIG = SessionConfig(transcribe_input=True, turns=TurnConfig(kind="semantic_vad"))

ROUND: tuple[tuple[int, int, str], ...] = (
    (1500, 4000, "a question"),
    (180, 4000, "mm-hmm"),
    (900, 3000, "no, wait"),
    (1200, 12_000, "another question"),
)
"""What the user says, over and over: ms of speech, ms of silence, words. The last answer is heard to its end."""


class Caller(World):
    """Feeds input in frames of 20 ms, and the speech probabilities of the windows that they complete."""

    def stretch(self, ms: int, probability: float) -> None:
        end = self.position + from_ms(ms)
        while self.position < end:
            self.until(self.now + FRAME)
            start = self.position
            self.position = start + FRAME
            self.post(AudioArrived(start, self.position))
            while self._heard + WINDOW <= self.position:
                self._heard += WINDOW
                self.post(SpeechProbability(self._heard - WINDOW, self._heard, probability, -60.0))

    _heard: Ticks = 0


def record(minutes: float) -> tuple[list[Step], Ticks]:
    """A conversation of that length, and how long it became."""
    world = Caller(CONFIG, acknowledged=True)
    world.engine.length = from_ms(9000)
    while world.now < minutes * 60 * TICK_RATE:
        for speech, silence, words in ROUND:
            world.perception.look = words
            world.stretch(speech, 0.9)
            world.stretch(silence, 0.02)
    world.post(Close())
    return world.log, world.now


def replay(log: list[Step]) -> float:
    """CPU seconds that a fresh session takes for the same events. Raises RuntimeError when it acts differently."""
    session = Session("sess_t", 1, CONFIG, Abilities())
    handle = session.handle
    results = []
    began = time.process_time()
    for step in log:
        results.append(handle(step.event, step.now))
    seconds = time.process_time() - began
    if results != [step.effects for step in log]:
        raise RuntimeError("the same events had other effects")
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=10.0, help="length of the conversation")
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    arguments = parser.parse_args()
    log, length = record(arguments.minutes)
    if arguments.profile:
        profile = cProfile.Profile()
        profile.runcall(replay, log)
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)
        return 0
    seconds = min(replay(log) for _ in range(5))
    audio = length / TICK_RATE
    events = Counter(type(step.event).__name__ for step in log)
    frames = sum(isinstance(effect, AdmitFrame) for step in log for effect in step.effects)
    counted: Counter[str] = Counter()
    for step in log:
        for effect in step.effects:
            if isinstance(effect, Count):
                counted[effect.name] += effect.by
    print(f"conversation   {audio:.0f} s, {len(log):,} events, {frames:,} frames of {FRAME // 48} ms sent")
    print("events         " + ", ".join(f"{name} {number:,}" for name, number in events.most_common()))
    print("counters       " + ", ".join(f"{name} {number:,}" for name, number in sorted(counted.items())))
    print(f"cpu            {seconds:.3f} s, {seconds / len(log) * 1e6:.1f} us an event (best of 5)")
    print(f"real time      {audio / seconds:,.0f} x per core (target {TARGET} x)")
    return 0 if audio / seconds >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
