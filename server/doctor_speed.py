"""How fast the models are here: each once, on one sentence that the voice speaks and the ear must understand."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeVar

from .doctor import Finding
from .settings import Settings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")

SENTENCE: Final = "The weather is fine today, and we are going to the park."
ANY_OF: Final = ("weather", "fine", "today", "going", "park")
"""Words of it, most of which must come back."""

VOICE_TIMES: Final = 10.0
"""How much faster than it plays the voice should be made."""
WINDOW_MS: Final = 4.0
"""Milliseconds for one window (32 ms) of the speech detector: an eighth of one core per conversation."""
WORDS_MS: Final = 600.0
"""Milliseconds for the words of the sentence; they are part of every answer's delay."""
TURN_MS: Final = 250.0
"""Milliseconds for the end of turn."""


def speed(settings: Settings) -> Iterator[Finding]:
    """Voice, speech detection, recognition, end of turn; nothing where a model is missing, which was told before."""
    from models.assets import ready
    from models.perception.perception import ASSETS

    if not all(ready(name) for name in (*ASSETS, "hibari")):
        yield Finding("warn", "speed", "not measured, as models are missing", "talkover prepare")
        return
    from models.assets import ensure

    folders = ensure([*ASSETS, "hibari"])
    from models.families.embedded.talker_hibari import HibariTalker
    from models.families.script import speak_all
    from models.perception.asr import Recognizer
    from models.perception.endpoint import TurnDetector
    from models.perception.vad import SpeechDetector

    talker = HibariTalker(folders["hibari"])
    (pcm, _), took = timed(lambda: speak_all(SENTENCE, talker))
    seconds = len(pcm) / 2 / talker.rate
    yield at_most(
        "voice",
        took * 1000,
        seconds * 1000 / VOICE_TIMES,
        f"{seconds:.1f} s of speech in {took * 1000:.0f} ms ({seconds / took:.0f} times faster than it plays)",
    )
    samples = to_perception_rate(pcm, talker.rate)
    yield _detection(SpeechDetector(folders["silero-vad"]), samples)
    turns = TurnDetector(folders["smart-turn"])
    turns.probability(samples)  # the first run allocates
    probability, took = timed(lambda: turns.probability(samples))
    yield at_most("end of turn", took * 1000, TURN_MS, f"{took * 1000:.0f} ms, says {probability:.2f}")
    recognizer = Recognizer(folders["whisper-base"])
    try:
        recognition, took = timed(lambda: recognizer.recognize(samples))
    finally:
        recognizer.unload()
    yield understood(recognition.text, took * 1000)


def _detection(detector: object, samples: NDArray[np.float32]) -> Finding:
    import numpy as np

    from models.perception.vad import WINDOW, SpeechDetector, SpeechState

    if not isinstance(detector, SpeechDetector):
        raise TypeError("a SpeechDetector is needed")
    state = SpeechState()
    windows = samples[: len(samples) // WINDOW * WINDOW].reshape(-1, WINDOW)
    silence = float(detector.detect(np.zeros((1, WINDOW), np.float32), [SpeechState()])[0])
    probabilities, took = timed(lambda: [float(detector.detect(window[None], [state])[0]) for window in windows])
    each = took * 1000 / len(windows)
    heard = sum(probability > 0.5 for probability in probabilities) / len(probabilities)
    if heard < 0.5 or silence > 0.5:
        found = f"speech in {heard:.0%} of a spoken sentence, {silence:.2f} in silence"
        return Finding("fail", "speech detection", found, "run: talkover prepare; if it stays, reinstall onnxruntime")
    return at_most("speech detection", each, WINDOW_MS, f"{each:.2f} ms for 32 ms of audio, speech in {heard:.0%}")


def understood(text: str, took_ms: float) -> Finding:
    """What the recognizer made of `SENTENCE`."""
    words = {word.strip(".,!?").lower() for word in text.split()}
    missing = [word for word in ANY_OF if word not in words]
    if len(missing) > len(ANY_OF) // 2:
        found = f'"{SENTENCE}" was understood as "{text}"'
        return Finding("fail", "words", found, "run: talkover prepare; if it stays, reinstall ctranslate2")
    return at_most("words", took_ms, WORDS_MS, f'{took_ms:.0f} ms, "{text}"')


def at_most(subject: str, took: float, limit: float, found: str) -> Finding:
    """Ok within `limit`, else a warning."""
    if took <= limit:
        return Finding("ok", subject, found)
    remedy = (
        f"{took / limit:.1f} times slower than conversations need. Is the machine busy? Otherwise it needs faster cores"
    )
    return Finding("warn", subject, found, remedy)


def to_perception_rate(pcm: bytes, rate: int) -> NDArray[np.float32]:
    """int16 bytes at `rate` as float32 [N] in -1..1 at 16 kHz."""
    import numpy as np
    import soxr

    samples = np.frombuffer(pcm, "<i2").astype(np.float32) / 32768
    return np.asarray(soxr.resample(samples, rate, 16_000), np.float32)


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Its result, and the seconds that it took."""
    began = time.perf_counter()
    result = work()
    return result, time.perf_counter() - began
