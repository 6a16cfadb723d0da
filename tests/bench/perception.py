"""What perception costs on this machine: `python -m tests.bench.perception`.

Prints, for the prepared models: the wall time of one call of each model on its own, word error rates on the labelled
speech, the time from a 32 ms stretch being fed to its speech probability (idle, and with both other models computing
without a pause), and memory. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import functools
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import jiwer
import numpy as np

from models import assets
from models.perception.asr import Recognizer
from models.perception.endpoint import TurnDetector
from models.perception.perception import ASSETS, WINDOW_TICKS, EmbeddedPerception
from models.perception.vad import WINDOW, SpeechDetector, SpeechState
from sessions.core.effects import AssessTurn, OpenPerception, Transcribe
from sessions.core.events import Event, SpeechProbability
from sessions.core.fence import Fence
from sessions.core.timeline import TICK_RATE
from tests.speech import load

RATE = 16_000


def plain(text: str) -> str:
    """Lower case words, spelled one way."""
    text = text.lower().replace("-", " ").replace("ok ", "okay ")
    return " ".join(re.sub(r"[^a-z0-9' ]", " ", text).split())


def milliseconds(values: list[float]) -> str:
    p50, p95, worst = (1000 * float(np.quantile(values, q)) for q in (0.5, 0.95, 1.0))
    return f"p50 {p50:7.2f}  p95 {p95:7.2f}  max {worst:7.2f} ms"


def timed(name: str, call: Callable[[], object], count: int = 40) -> None:
    call()
    took = []
    for _ in range(count):
        begun = time.perf_counter()
        call()
        took.append(time.perf_counter() - begun)
    print(f"{name:34}{milliseconds(took)}")


def resident() -> int:
    """Resident memory in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 // 1_000_000


def calls(directories: dict[str, Path]) -> None:
    """Each model on its own."""
    question = load("questions", "tune")[0]
    speech = np.asarray(question.pcm[question.onset :] / 32768, np.float32)
    speech = np.concatenate([speech, speech])[: 8 * RATE]
    recognizer = Recognizer(directories["whisper-base"])
    for seconds in (0.4, 1.0, 2.0):
        piece = speech[: round(seconds * RATE)]
        timed(f"recognizer, {seconds} s", functools.partial(recognizer.recognize, piece))
    timed("recognizer, 2.0 s, word times", lambda: recognizer.recognize(speech[: 2 * RATE], times=True))
    for name in ("questions", "commands", "backchannels"):
        said, written, invented = [], [], 0
        for clip in load(name, "test"):
            sound = np.asarray(clip.pcm[max(0, clip.onset - RATE // 5) : clip.end + RATE // 5] / 32768, np.float32)
            text = recognizer.recognize(sound).text
            if clip.kind == "noise":
                invented += bool(text)
            else:
                said.append(plain(clip.text))
                written.append(plain(text))
        more = f", noises written down as words: {invented}" if name == "backchannels" else ""
        print(f"{name:34}word error rate {jiwer.wer(said, written):.3f} over {len(said)} clips{more}")
    recognizer.unload()
    turns = TurnDetector(directories["smart-turn"])
    timed("turn detector", lambda: turns.probability(speech))
    detector = SpeechDetector(directories["silero-vad"])
    for batch in (1, 4, 16):
        states = [SpeechState() for _ in range(batch)]
        windows = np.repeat(speech[None, :WINDOW], batch, axis=0)
        timed(f"speech detector, {batch} sessions", functools.partial(detector.detect, windows, states), 200)


class Heard:
    """Lets the feeder wait for the probability of what it fed."""

    def __init__(self) -> None:
        self.window = threading.Semaphore(0)

    def __call__(self, event: Event, pcm: bytes | None = None) -> None:
        if isinstance(event, SpeechProbability):
            self.window.release()


def reaction(perception: EmbeddedPerception, name: str, count: int) -> None:
    """From feed to probability, one window at a time, at the pace of a microphone."""
    heard = Heard()
    perception.open(Fence(name, 1, 0), OpenPerception(speech=True, language="en"), heard)
    pcm = load("questions", "tune")[0].pcm
    took = []
    due = time.perf_counter()
    for number in range(count):
        due += WINDOW / RATE
        time.sleep(max(0.0, due - time.perf_counter()))
        begin = number * WINDOW % (len(pcm) - WINDOW)
        begun = time.perf_counter()
        perception.feed(name, number * WINDOW_TICKS, pcm[begin : begin + WINDOW].tobytes(), RATE)
        heard.window.acquire()
        took.append(time.perf_counter() - begun)
    print(f"{name:34}{milliseconds(took)}")
    perception.close(name)


def busy(perception: EmbeddedPerception, stop: threading.Event) -> None:
    """Keep the recognizer and the turn detector computing."""
    perception.open(Fence("busy", 1, 0), OpenPerception(speech=False, language="en"), lambda event, pcm=None: None)
    clip = load("questions", "tune")[0].pcm[: 2 * RATE]
    perception.feed("busy", 0, clip.tobytes(), RATE)
    request = 0
    while not stop.wait(0.04):
        request += 1
        perception.transcribe("busy", Transcribe(2 * request, 0, TICK_RATE, final=False))
        perception.assess("busy", AssessTurn(2 * request + 1, 0, TICK_RATE))
    perception.close("busy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=300, help="windows per reaction measurement")
    count: int = parser.parse_args().windows
    directories = assets.ensure(ASSETS)
    calls(directories)
    before = resident()
    begun = time.perf_counter()
    perception = EmbeddedPerception.load(directories)
    print(f"{'loading all three':34}{time.perf_counter() - begun:.2f} s, {resident() - before} MB more resident")
    reaction(perception, "feed to probability, idle", count)
    stop = threading.Event()
    load_thread = threading.Thread(target=busy, args=(perception, stop))
    load_thread.start()
    reaction(perception, "feed to probability, all computing", count)
    stop.set()
    load_thread.join()
    perception.stop()


if __name__ == "__main__":
    main()
