"""How well the times of spoken words are estimated: the talker's against a recognizer's aligner.

`python -m tests.bench.word_times` speaks sentences that nothing was tuned on and compares where each word begins. The
aligner (Whisper's cross attention, steps of 20 ms) is no ground truth; its own spread is part of the figure.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np

from codec.resample import Resampler
from models.assets import ensure
from models.families.embedded.talker_hibari import HibariTalker
from models.perception.asr import Recognizer
from tests.bench.report import percentile, table
from tests.speech import load

TICKS = 48_000


def plain(word: str) -> str:
    return re.sub(r"[^a-z0-9]", "", word.lower())


def _row(name: str, errors: list[float]) -> list[str]:
    sizes = [1000 * abs(error) for error in errors]
    return [name, f"{percentile(sizes, 0.5):.0f}", f"{percentile(sizes, 0.95):.0f}"]


def main() -> int:
    directories = ensure(["hibari", "whisper-base"])
    talker, recognizer = HibariTalker(Path(directories["hibari"])), Recognizer(directories["whisper-base"])
    errors: list[float] = []
    sentences = [clip.text for clip in load("questions", "test")] + [clip.text for clip in load("questions", "tune")]
    compared = 0
    for sentence in sentences:
        spoken = talker.speak(sentence)
        lane = Resampler(talker.rate, 16_000)
        pcm = np.frombuffer(spoken.pcm, "<i2")
        samples = (np.concatenate([lane.process(pcm), lane.flush()]) / 32768).astype(np.float32)
        heard = recognizer.recognize(samples, "en", times=True).words
        ours = [(plain(word.text), word.start / TICKS) for word in spoken.words]
        theirs = [(plain(word.text), word.start) for word in heard]
        if [word for word, _ in ours] != [word for word, _ in theirs]:
            continue
        compared += 1
        # The aligner puts a first word at 0 whatever precedes it.
        errors += [our - their for (_, our), (_, their) in zip(ours[1:], theirs[1:], strict=True)]
    median = percentile(errors, 0.5)
    rows = [_row("as given", errors), _row("less the median", [error - median for error in errors])]
    print(f"{len(errors)} words of {compared} sentences; median {1000 * median:+.0f} ms against the aligner")
    print(table(rows, ["word begins", "|error| p50 ms", "p95 ms"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
