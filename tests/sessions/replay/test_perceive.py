"""Perception run again on a recording."""

from __future__ import annotations

from pathlib import Path

import pytest

from sessions.core.effects import AssessTurn, OpenPerception, Transcribe
from sessions.core.events import EndOfTurnProbability, SpeechProbability, Transcript
from sessions.core.fence import Fence
from sessions.core.timeline import Ticks
from sessions.ports import Emit
from sessions.replay import perceive as perceive_module
from sessions.replay.perceive import perceive
from sessions.tracks import ticks_of
from tests.sessions.fakes import LoudnessPerception

from .talks import interrupted


class AtOnce(LoudnessPerception):
    """Answers without an event loop."""

    deafness = 0.0
    silent_from: Ticks = 1 << 60

    def open(self, fence: Fence, request: OpenPerception, emit: Emit) -> None:
        super().open(fence, request, emit)

    def feed(self, session: str, start: Ticks, pcm: bytes, rate: int) -> None:
        self.fed[session].append((start, pcm, rate))
        if start < self.silent_from:
            heard = 0.9 - self.deafness if any(pcm) else 0.02
            self._emit[session](SpeechProbability(start, start + ticks_of(pcm, rate), heard))

    def transcribe(self, session: str, request: Transcribe) -> None:
        self._emit[session](Transcript(request.request, request.start, request.end, self.text))

    def assess(self, session: str, request: AssessTurn) -> None:
        self._emit[session](EndOfTurnProbability(request.request, request.at, 0.9))


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return interrupted(tmp_path_factory.mktemp("talk"))


def test_the_same_perception_hears_the_same_and_the_session_goes_the_same_way(talk: Path) -> None:
    perception = AtOnce()
    result = perceive(talk, perception)
    assert result.identical, str(result.difference)
    assert (result.changed, result.answers_changed, result.unheard) == (0, 0, 0)
    assert result.windows > 400
    assert result.answers >= 2
    ((session, fed),) = perception.fed.items()
    assert sum(ticks_of(pcm, rate) for _, pcm, rate in fed) == fed[-1][0] + 960
    assert perception.closed == [session]
    assert len(perception.played) > 50


def test_one_that_hears_otherwise_is_told_with_the_first_place_and_what_comes_of_it(talk: Path) -> None:
    perception = AtOnce()
    perception.deafness = 0.8
    result = perceive(talk, perception)
    assert not result.identical
    assert result.changed > 50
    assert result.furthest == pytest.approx(0.8)
    assert "perception hears otherwise: speech at" in str(result.difference)


def test_other_words_are_told(talk: Path) -> None:
    result = perceive(talk, AtOnce("stop it"))
    assert not result.identical
    assert result.answers_changed == result.answers
    assert '"stop it"' in str(result.difference)


def test_one_that_falls_silent_is_not_waited_for_for_ever(talk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perceive_module, "PATIENCE", 0.01)
    perception = AtOnce()
    perception.silent_from = 9 * 48_000
    result = perceive(talk, perception)
    assert result.unheard > 10
