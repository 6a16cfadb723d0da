"""What stands on a telephone line without anybody speaking is no turn: silence, noise, tones, music on hold.

The detector is the real one; the clock is virtual, and the line, the law and the session are those of every call.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
from numpy.typing import NDArray

from codec.pcm import Samples
from server.call_command import at_rate
from server.phone_peers import TwilioPeer
from sessions.core.config import SessionConfig
from sessions.core.timeline import from_ms
from sessions.virtual_clock import run
from tests.speech import RATE as CLIP_RATE
from tests.speech import load

from .listener import Listener
from .scene import Scene

pytestmark = pytest.mark.models

RATE = 8000
SECONDS = 12.0


def noise(dbfs: float) -> NDArray[np.float64]:
    return np.random.default_rng(3).normal(size=round(SECONDS * RATE)) * 10 ** (dbfs / 20)


def call_progress(hertz: tuple[float, float], on: float, off: float) -> NDArray[np.float64]:
    """Two tones together, for `on` of every `on + off` seconds (ITU-T E.180)."""
    t = np.arange(round(SECONDS * RATE)) / RATE
    both: NDArray[np.float64] = sum(np.sin(2 * np.pi * one * t) for one in hertz) * 0.05
    return both * (t % (on + off) < on)


@functools.cache
def music() -> NDArray[np.float64]:
    """Four chords over and over, plucked, with a bass, a melody above and a brush on the beat."""
    t = np.arange(round(SECONDS * RATE)) / RATE
    out = np.zeros(len(t))
    rng = np.random.default_rng(5)

    def pluck(at: float, hertz: float, level: float, fall: float) -> None:
        since = t[t >= at] - at
        partials = sum(np.sin(2 * np.pi * hertz * n * since) / n**1.5 for n in range(1, 7) if hertz * n < RATE / 2)
        out[t >= at] += level * partials * np.exp(-since / fall) * np.minimum(1, since / 0.004)

    chords = ((220.0, 261.6, 329.6), (174.6, 220.0, 261.6), (196.0, 246.9, 293.7), (164.8, 207.7, 246.9))
    for beat in range(round(SECONDS * 2)):
        chord = chords[beat // 4 % 4]
        pluck(beat / 2, chord[0] / 2, 0.10, 0.6)
        for note in chord:
            pluck(beat / 2 + 0.01, note, 0.05, 0.9)
        pluck(beat / 2, 2 * chord[int(rng.integers(3))], 0.06, 0.5)
        pluck(beat / 2 + 0.25, 2 * chord[int(rng.integers(3))], 0.04, 0.3)
        since = t[t >= beat / 2] - beat / 2
        out[t >= beat / 2] += 0.02 * rng.normal(size=len(since)) * np.exp(-since / 0.03)
    return out


LINES = {
    "silence": lambda: np.zeros(round(SECONDS * RATE)),
    "comfort noise": lambda: noise(-55.0),
    "a noisy room": lambda: noise(-38.0),
    "ringing": lambda: call_progress((440.0, 480.0), 2.0, 4.0),
    "busy": lambda: call_progress((480.0, 620.0), 0.5, 0.5),
    "music on hold": music,
}


def pcm(sound: NDArray[np.float64]) -> Samples:
    return np.clip(np.round(sound * 32768), -32768, 32767).astype(np.int16)


def config(greet: int | None) -> SessionConfig:
    return SessionConfig(lead=from_ms(200), frame=from_ms(20), greet_after_ms=greet)


@pytest.mark.parametrize("line", LINES)
def test_nobody_is_answered_who_does_not_speak(line: str) -> None:
    async def call() -> None:
        async with Scene(TwilioPeer("c"), config(None), ear=Listener()) as scene:
            await scene.sound(pcm(LINES[line]()))
            await scene.quiet(2.0)
            assert scene.engine.started == []

    run(call())


@pytest.mark.parametrize("line", ["music on hold", "a noisy room"])
def test_the_agent_is_not_interrupted_by_what_is_no_speech(line: str) -> None:
    async def call() -> None:
        async with Scene(TwilioPeer("c"), config(0), ear=Listener()) as scene:
            await scene.sound(pcm(LINES[line]()))
            assert scene.clears() == []
            assert len(scene.engine.started) == 1
            assert sum(len(one.pcm) for _, one in scene.sounds()) / RATE == pytest.approx(scene.engine.seconds, abs=0.1)

    run(call())


def test_a_word_on_the_same_line_is_a_turn() -> None:
    async def call() -> None:
        clip = max(load("commands", "test"), key=lambda one: one.seconds)
        async with Scene(TwilioPeer("c"), config(None), ear=Listener()) as scene:
            await scene.sound(at_rate(clip.pcm, CLIP_RATE, RATE))
            await scene.quiet(2.0)
            assert len(scene.engine.started) == 1

    run(call())
