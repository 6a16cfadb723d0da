"""What recording costs, and how fast recordings are run again: CPU time, and bytes on the disk.

A conversation with 20 ms frames both ways and 24 kHz noise as loud as speech on every track is written as the shell
writes it (event, effects, sent), with the flushes that real time would bring; the CPU time is that of the whole
process, less the same loop without a recorder. Then the recording is re-run and opened.

    python -m tests.bench.recording [--minutes 5]
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from sessions.core.effects import AdmitFrame
from sessions.core.events import AudioArrived, EngineAudio
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
NOISE = np.random.default_rng(0).normal(0, 2000, RATE * 8).astype("<i2").tobytes()


def samples(start: Ticks, end: Ticks) -> bytes:
    """Noise for that span."""
    first = start % (TICK_RATE * 2)
    return NOISE[first : first + end - start]


def play(steps: list[Step], journal: Journal | None, recorder: Recorder | None) -> float:
    """Go through the steps, write them where there is something to write to; returns CPU seconds."""
    began = time.process_time()
    flushed = 0
    for step in steps:
        event = step.event
        pcm = None
        if isinstance(event, AudioArrived | EngineAudio):
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
            # In real time its thread works twice a second, and nobody contends with it meanwhile.
            done = threading.Event()
            recorder.submit(recorder._flush)
            recorder.submit(done.set)
            done.wait()
    return time.process_time() - began


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    minutes = parser.parse_args(arguments).minutes
    steps, length = core_speed.record(minutes)
    seconds = length / TICK_RATE
    gc.collect()
    gc.freeze()  # the steps are not the recorder's
    with tempfile.TemporaryDirectory() as place:
        alone = play(steps, None, None)
        recorder = Recorder(Path(place))
        began = time.process_time()
        journal = recorder.open("sess_t", 1, core_speed.CONFIG, Abilities(), RATE)
        play(steps, journal, recorder)
        journal.close("end")
        recorder.close()
        cost = time.process_time() - began - alone
        folder = journal.folder
        events = (folder / EVENTS).stat().st_size
        audio = sum(path.stat().st_size for path in folder.glob("*.flac"))
        spoken = sum(
            effect.end - effect.start for step in steps for effect in step.effects if type(effect) is AdmitFrame
        )
        print(f"{seconds:.0f} s of conversation, {len(steps)} events, the agent speaks {spoken / length:.0%} of it")
        print(f"recording    {cost / seconds * 1000:6.2f} ms CPU a second of session (at most 2)")
        print(f"events       {events / seconds * 60 / 1000:6.1f} kB a minute (at most 150)")
        print(f"audio        {audio / seconds * 60 / 1000:6.1f} kB a minute, four tracks of noise at 24 kHz")
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
