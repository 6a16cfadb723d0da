"""People of a load ask, listen and interrupt as people do, and know when they did."""

from __future__ import annotations

import itertools

import pytest

from loadtest.person import PATIENCE, Habits, Kind, Person
from loadtest.voice import FRAME_S, Utterance, Voice

CLIPS: dict[Kind, list[Utterance]] = {
    kind: [Utterance(kind, tuple(b"%d" % one for one in range(50)), 0.1, 0.9)]
    for kind in ("question", "command", "backchannel")
}


class World:
    """A person and a clock; the agent answers `delay` after each question, for `length` seconds."""

    def __init__(self, habits: Habits, delay: float = 0.3, length: float = 2.0) -> None:
        self.person = Person(habits, Voice("ulaw"), CLIPS, 5)
        self.now = 0.0
        self.sent: list[bytes] = []
        self.delay, self.length = delay, length
        self.answering: float | None = None

    def go(self, seconds: float) -> None:
        for _ in range(round(seconds / FRAME_S)):
            self.now += FRAME_S
            self.sent.append(self.person.frame(self.now))
            said = self.person.memory.said
            if said and said[-1].kind != "backchannel":
                self.answering = said[-1].end + self.delay
            if self.answering is not None and self.answering <= self.now < self.answering + self.length:
                self.person.piece(self.now, "x", FRAME_S)


def test_the_next_question_waits_for_the_end_of_the_answer() -> None:
    world = World(Habits(pause=1.0))
    world.go(20)
    said = world.person.memory.said
    assert len(said) > 3
    for before, after in itertools.pairwise(said):
        assert after.onset - before.end > world.delay + world.length + 0.5
    assert world.person.memory.unanswered == 0


def test_its_times_are_those_of_the_frames_that_it_sent() -> None:
    world = World(Habits())
    world.go(5)
    first = world.sent.index(b"0")
    assert world.sent[first : first + 50] == list(CLIPS["question"][0].frames)
    assert world.person.memory.said[0].onset == pytest.approx(first * FRAME_S + 0.1)


def test_who_gets_no_answer_asks_again() -> None:
    world = World(Habits(), length=0.0)
    world.go(3 * PATIENCE)
    assert world.person.memory.unanswered == 2


def test_an_interrupter_speaks_over_every_answer() -> None:
    world = World(Habits("command", after=0.5), length=30.0)
    world.go(20)
    kinds = [one.kind for one in world.person.memory.said]
    assert kinds[0] == "question"
    assert kinds.count("command") > 3


def test_one_who_agrees_does_not_wait_for_another_answer() -> None:
    world = World(Habits("backchannel", after=1.0), length=30.0)
    world.go(20)
    kinds = [one.kind for one in world.person.memory.said]
    assert kinds[0] == "question"
    assert set(kinds[1:]) == {"backchannel"}
    assert len(kinds) > 4
