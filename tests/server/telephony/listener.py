"""Perception on a virtual clock: the real detector's idea of speech and of sounds, in no time at all."""

from __future__ import annotations

import functools
from typing import Final

from models.assets import ensure
from models.perception.levels import levels
from models.perception.track import InputTrack
from models.perception.vad import WINDOW, SpeechDetector, SpeechState
from sessions.core.events import SpeechProbability
from sessions.core.timeline import Ticks, from_ms
from tests.sessions.fakes import LoudnessPerception

HOP: Final[Ticks] = from_ms(32)


@functools.cache
def detector() -> SpeechDetector:
    return SpeechDetector(ensure(["silero-vad"])["silero-vad"])


class Listener(LoudnessPerception):
    """Speech is what Silero takes for it."""

    def __init__(self) -> None:
        super().__init__()
        self._state = SpeechState()
        self._track = InputTrack(from_ms(60_000))
        self._at: Ticks = 0

    def feed(self, session: str, start: Ticks, pcm: bytes, rate: int) -> None:
        self._track.append(start, pcm, rate)
        while self._track.end >= self._at + HOP:
            window = self._track.read(self._at, self._at + HOP).reshape(1, WINDOW)
            [probability] = detector().detect(window, [self._state])
            [(level, hiss)] = levels(window)
            heard = SpeechProbability(self._at, self._at + HOP, float(probability), level, hiss=hiss)
            self._emit[session](heard)
            self._at += HOP
