"""What recording costs, and how fast recordings are run again: CPU time, and bytes on the disk.

A conversation with 20 ms frames both ways and 24 kHz noise as loud as speech on every track is written as the shell
writes it (event, effects, sent), with the flushes that real time would bring; the CPU time is that of the whole
process, less the same loop without a recorder, the median of several runs. Then the recording is re-run and opened.

    python -m tests.bench.recording [--minutes 5] [--runs 3] [--turns]
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
import soundfile

from sessions.core.effects import AdmitFrame
from sessions.core.events import AudioArrived, EngineAudio, SpeechProbability
from sessions.core.state import Abilities
from sessions.core.timeline import TICK_RATE, Ticks
from sessions.journal import Journal, Recorder
from sessions.recording.format import EVENTS
from sessions.replay.account import account
from sessions.replay.reader import Recording
from sessions.replay.rerun import rerun
from tests.bench import core_speed
from tests.sessions.core.driver import Step

RATE = 24_000
SECONDS = 60
"""After which noise comes again: longer than a recorder could remember it."""
NOISE = np.random.default_rng(0).normal(0, 2000, RATE * (SECONDS + 1)).astype("<i2").tobytes()


FAINT = np.random.default_rng(1).normal(0, 8, RATE * (SECONDS + 1)).astype("<i2").tobytes()
"""A room in which nobody speaks."""


def samples(start: Ticks, end: Ticks, noise: bytes = NOISE) -> bytes:
    """Noise for that span, which begins at the same sample wherever it is cut."""
    first = start % (TICK_RATE * SECONDS)
    return noise[first : first + end - start]


def voiced(steps: list[Step]) -> frozenset[int]:
    """The frames of input in which the user speaks."""
    windows = [step.event for step in steps if isinstance(step.event, SpeechProbability)]
    return frozenset(
        frame
        for window in windows
        if window.probability > 0.5
        for frame in range(window.start // core_speed.FRAME, -(-window.end // core_speed.FRAME))
    )


class PacedRecorder(Recorder):
    """Its thread works when it is told to: twice a second of the conversation, however fast that goes by."""

    def __init__(self, root: Path) -> None:
        self._flushed = threading.Event()
        super().__init__(root)

    def _flush(self) -> None:
        super()._flush()
        self._flushed.set()

    def half_a_second(self) -> None:
        """Let it work; nobody contends with it meanwhile."""
        self._flushed.clear()
        self._wake.set()
        self._flushed.wait()


def play(
    steps: list[Step], loud: frozenset[int] | None, journal: Journal | None, recorder: PacedRecorder | None
) -> float:
    """Go through the steps, write them where there is something to write to; CPU seconds of this thread.

    `loud`: the frames of input that are loud; None: all of them.
    """
    began = time.thread_time()
    flushed = 0
    for step in steps:
        event = step.event
        pcm = None
        if isinstance(event, AudioArrived):
            speaks = loud is None or event.start // core_speed.FRAME in loud
            pcm = samples(event.start, event.end, NOISE if speaks else FAINT)
        elif isinstance(event, EngineAudio):
            pcm = samples(event.start, event.end)
        if journal is not None:
            journal.event(event, step.now, pcm, RATE)
            journal.effects(step.effects)
        for effect in step.effects:
            if type(effect) is AdmitFrame:
                sent = samples(effect.source_start, effect.source_start + effect.end - effect.start)
                if journal is not None:
                    journal.sent(effect, sent)
        if recorder is not None and step.now // (TICK_RATE // 2) > flushed:
            flushed = step.now // (TICK_RATE // 2)
            recorder.half_a_second()
    return time.thread_time() - began


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds: of all, on the thread that the event loop would be, and in the FLAC encoder."""

    all: float
    loop: float
    flac: float


def record(place: Path, steps: list[Step], loud: frozenset[int] | None = None) -> tuple[Path, Cost]:
    """Record the steps below `place`; the folder, and what it cost."""
    encoding = 0.0
    encode = soundfile.SoundFile.buffer_write

    def timed(file: soundfile.SoundFile, data: bytes, dtype: str) -> None:
        nonlocal encoding
        began = time.thread_time()
        encode(file, data, dtype)
        encoding += time.thread_time() - began

    with mock.patch.object(soundfile.SoundFile, "buffer_write", timed):
        alone = play(steps, loud, None, None)
        began = time.process_time()
        recorder = PacedRecorder(place)
        journal = recorder.open("sess_t", 1, core_speed.CONFIG, Abilities(), RATE)
        loop = play(steps, loud, journal, recorder)
        journal.close("end")
        recorder.close()
        return journal.folder, Cost(time.process_time() - began - alone, loop - alone, encoding)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--turns", action="store_true", help="the user's track is faint while the user is silent")
    options = parser.parse_args(arguments)
    steps, length = core_speed.record(options.minutes)
    seconds = length / TICK_RATE
    loud = voiced(steps) if options.turns else None
    gc.collect()
    gc.freeze()  # the steps are not the recorder's
    with tempfile.TemporaryDirectory() as place:
        costs: list[Cost] = []
        for run in range(options.runs):
            folder, cost = record(Path(place) / str(run), steps, loud)
            costs.append(cost)
        whole, loop, flac = (
            statistics.median(getattr(cost, part) for cost in costs) / seconds * 1000
            for part in ("all", "loop", "flac")
        )
        events = (folder / EVENTS).stat().st_size
        audio = sum(path.stat().st_size for path in folder.glob("*.flac"))
        spoken = sum(
            effect.end - effect.start for step in steps for effect in step.effects if type(effect) is AdmitFrame
        )
        print(f"{seconds:.0f} s of conversation, {len(steps)} events, the agent speaks {spoken / length:.0%} of it")
        print(f"recording    {whole:6.2f} ms CPU a second of session (at most 2)")
        print(f"             {loop:6.2f} ms of it on the event loop, {flac:.2f} ms in the FLAC encoder")
        print(f"events       {events / seconds * 60 / 1000:6.1f} kB a minute (at most 150)")
        print(f"audio        {audio / seconds * 60 / 1000:6.1f} kB a minute, four tracks at 24 kHz")
        began = time.process_time()
        result = rerun(folder)
        took = time.process_time() - began
        print(
            f"replay       {seconds / took:6.0f} x real time on one core (at least 200), identical: {result.identical}"
        )
        began = time.process_time()
        recording = Recording(folder)
        account(recording.manifest.config, recording.steps())
        print(f"account      {seconds / (time.process_time() - began):6.0f} x real time")
        return 0 if result.identical else 1


if __name__ == "__main__":
    sys.exit(main())
