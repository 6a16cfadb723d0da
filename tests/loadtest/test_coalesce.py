"""Fewer events, the same effects: on recorded sessions, and on sessions of people who do what they like."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from loadtest.simulation.coalesce import PUMP, Coalescer, but_for_pumps
from loadtest.simulation.frames import FrameRun
from sessions.core.config import SessionConfig, TurnConfig
from sessions.core.effects import AdmitFrame, Effect
from sessions.core.events import AudioArrived, Close, Event, SpeechProbability
from sessions.core.session import Session
from sessions.core.state import Abilities
from sessions.core.timeline import Ticks, from_ms
from sessions.replay.reader import Recording
from tests.sessions.conversations import converse
from tests.sessions.core.driver import World

FRAME: Ticks = from_ms(20)
WINDOW: Ticks = from_ms(32)


class Caller(World):
    """Feeds input in frames of 20 ms, and the speech probabilities of the windows that they complete."""

    heard: Ticks = 0

    def stretch(self, ms: float, probability: float, level: float, hiss: float = -120.0) -> None:
        end = self.position + from_ms(ms)
        while self.position < end:
            self.until(self.now + FRAME)
            start = self.position
            self.position = start + FRAME
            self.post(AudioArrived(start, self.position))
            while self.heard + WINDOW <= self.position:
                self.heard += WINDOW
                self.post(SpeechProbability(self.heard - WINDOW, self.heard, probability, level, hiss=hiss))


def coalesced(session: Session, steps: Iterable[tuple[Event, Ticks]]) -> tuple[list[Effect | FrameRun], int]:
    """The effects of the same events, and how many the core was given."""
    few = Coalescer(session)
    effects: list[Effect | FrameRun] = []
    for event, now in steps:
        effects += few.handle(event, now)
    return effects + few.flush(), few.handled


def test_a_recorded_session_has_the_same_effects(tmp_path: Path) -> None:
    recording = Recording(converse(tmp_path, rounds=3))
    steps = list(recording.steps())
    recorded = [effect for step in steps for effect in step.effects]
    again, handled = coalesced(recording.manifest.session_core(), [(step.event, step.now) for step in steps])
    assert but_for_pumps(again) == but_for_pumps(recorded)
    assert handled < len(steps) / 2


@pytest.mark.parametrize("kind", ["server_vad", "semantic_vad"])
@pytest.mark.parametrize("seed", range(6))
def test_people_who_do_what_they_like_find_no_difference(kind: str, seed: int) -> None:
    chance = random.Random(seed)
    turns = TurnConfig(
        kind="server_vad" if kind == "server_vad" else "semantic_vad", silence_ms=chance.choice([200, 500])
    )
    config = SessionConfig(transcribe_input=chance.random() < 0.5, turns=turns)
    world = Caller(config, acknowledged=chance.random() < 0.5, paced=chance.random() < 0.5)
    world.engine.length = from_ms(chance.choice([1600, 4010, 9000]))
    world.perception.words = chance.choice(["a question", "mm-hmm", "and then,"])
    for _ in range(25):
        world.perception.look = chance.choice(["stop", "mm-hmm", ""])
        loud = chance.choice([-30.0, -50.0])
        world.stretch(chance.choice([40, 180, 260, 900, 2500]), chance.choice([0.9, 0.45]), loud)
        for _ in range(chance.randrange(1, 40)):
            world.stretch(
                chance.choice([32, 64, 300]), chance.uniform(0, 0.3), chance.uniform(-75, -55), chance.uniform(-75, -45)
            )
    world.post(Close())
    expected = [effect for step in world.log for effect in step.effects]
    session = Session("sess_t", 1, config, Abilities())
    again, handled = coalesced(session, [(step.event, step.now) for step in world.log])
    assert but_for_pumps(again) == but_for_pumps(expected)
    assert handled < len(world.log)


@pytest.mark.parametrize("frame_ms", [20, 100])
def test_who_sets_no_timers_for_frames_gets_the_same_ones(frame_ms: int) -> None:
    config = SessionConfig(frame=from_ms(frame_ms))
    world = Caller(config, acknowledged=False, paced=True)
    world.engine.length = from_ms(4000)
    for speech, silence in ((900, 2500), (500, 1200), (1500, 6000), (200, 700), (900, 5000)):
        world.stretch(speech, 0.9, -30.0)
        world.stretch(silence, 0.02, -65.0)
    expected = [effect for step in world.log for effect in step.effects]
    few = Coalescer(Session("sess_t", 1, config, Abilities()), paces=True)
    again: list[Effect | FrameRun] = []
    for step in world.log:
        if step.event != PUMP:
            again += few.handle(step.event, step.now)
    again += few.catch_up(world.now)
    assert sum(isinstance(effect, AdmitFrame) for effect in expected) > 5000 / frame_ms
    assert but_for_pumps(again) == but_for_pumps(expected)


def test_silence_and_speech_cost_next_to_nothing() -> None:
    world = Caller(SessionConfig(), acknowledged=False)
    world.engine.length = from_ms(8000)
    for _ in range(3):
        world.stretch(1500, 0.9, -120.0)
        world.stretch(12_000, 0.02, -120.0)
    _, handled = coalesced(
        Session("sess_t", 1, SessionConfig(), Abilities()), [(step.event, step.now) for step in world.log]
    )
    assert handled * 5 < len(world.log)
