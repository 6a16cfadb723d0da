"""What the speech peers hear and say with: a rule, or the models of this project behind someone else's protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]

RATE = 24_000
WORD_SECONDS = 0.2


class Voice(Protocol):
    def speak(self, text: str) -> tuple[Samples, Sequence[tuple[str, float, float]]]:
        """float32 [N] at 24 kHz, and the words with seconds."""

    def hear(self, samples: Samples, rate: int) -> Sequence[tuple[str, float, float]]:
        """The words in float32 [N] at `rate` Hz, with seconds."""


class Rule:
    """Says each word as 200 ms of tone behind 100 ms of silence, and hears its own sentence in whatever is loud."""

    def __init__(self, sentence: str) -> None:
        self.sentence = sentence

    def speak(self, text: str) -> tuple[Samples, Sequence[tuple[str, float, float]]]:
        words = text.split()
        time = np.arange(round(WORD_SECONDS * len(words) * RATE)) / RATE
        tone = (np.sin(2 * np.pi * 330 * time) * 0.3).astype(np.float32)
        lead = np.zeros(RATE // 10, np.float32)
        times = [
            (word, 0.1 + place * WORD_SECONDS, 0.1 + (place + 1) * WORD_SECONDS) for place, word in enumerate(words)
        ]
        return np.concatenate([lead, tone, lead]), times

    def hear(self, samples: Samples, rate: int) -> Sequence[tuple[str, float, float]]:
        loud = np.flatnonzero(np.abs(samples) > 0.02)
        if loud.size < rate // 20:
            return []
        begin, end = int(loud[0]) / rate, int(loud[-1]) / rate
        words = self.sentence.split()
        each = (end - begin) / len(words)
        return [(word, begin + place * each, begin + (place + 1) * each) for place, word in enumerate(words)]


class Models:
    """Whisper and hibari."""

    def __init__(self) -> None:
        from models.assets import ensure
        from models.families.embedded.talker_hibari import HibariTalker
        from models.perception.asr import Recognizer

        folders = ensure(["hibari", "whisper-base"])
        self._talker = HibariTalker(folders["hibari"])
        self._recognizer = Recognizer(folders["whisper-base"])

    def speak(self, text: str) -> tuple[Samples, Sequence[tuple[str, float, float]]]:
        spoken = self._talker.speak(text)
        words = [(word.text.strip(), word.start / 48_000, word.end / 48_000) for word in spoken.words]
        return np.frombuffer(spoken.pcm, "<i2").astype(np.float32) / np.float32(32768), words

    def hear(self, samples: Samples, rate: int) -> Sequence[tuple[str, float, float]]:
        from codec.resample import Resampler

        pcm = np.rint(np.clip(samples, -1, 1) * 32767).astype(np.int16)
        lane = Resampler(rate, 16_000)
        heard = np.concatenate([lane.process(pcm), lane.flush()]).astype(np.float32) / np.float32(32768)
        return [
            (word.text.strip(), word.start, word.end) for word in self._recognizer.recognize(heard, times=True).words
        ]


def voice(sentence: str | None) -> Voice:
    """A rule with that sentence, or (None) the models."""
    return Models() if sentence is None else Rule(sentence)
