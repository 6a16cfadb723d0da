"""Figures of a conversation on a virtual clock, where every time is known."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from sessions.core.config import SessionConfig, TurnConfig
from sessions.core.events import EngineStage, Event, ResponseCancel, ResponseCreate
from sessions.core.session import Session
from sessions.core.timeline import Ticks, from_ms
from sessions.figures import Answer, Figure, Figures, Interruption, Pause, ResponseEnded

from .core.driver import WINDOW, Step, World

F = TypeVar("F")

SEMANTIC = SessionConfig(turns=TurnConfig(kind="semantic_vad"))


class Watching:
    """Observer of a world."""

    def __init__(self) -> None:
        self.figures = Figures()
        self.seen: list[Figure] = []

    def before(self, session: Session, event: Event, now: Ticks) -> None:
        """Only what an event led to is looked at."""

    def after(self, session: Session, step: Step) -> None:
        self.seen += self.figures.take(step.effects, step.now, session.state.input.watermark)

    def of(self, kind: type[F]) -> list[F]:
        return [figure for figure in self.seen if isinstance(figure, kind)]


def watched(config: SessionConfig | None = None) -> tuple[World, Watching]:
    watching = Watching()
    return World(config, observers=(watching,)), watching


def test_an_answer_is_timed_from_the_true_end_of_speech_through_its_stages() -> None:
    room, watching = watched()
    room.talk(800)
    end = room.now
    room.quiet(3000)
    (answer,) = watching.of(Answer)
    assert answer.speech_end == end
    assert answer.turn_ended is not None
    assert answer.audible is not None
    assert answer.latency == answer.audible - end
    assert answer.asked == answer.speech_end
    stages = dict(answer.stages)
    # Its words were looked up, and the engine began, before the turn had ended.
    assert end < stages["words"] < answer.turn_ended <= answer.opened <= answer.audible
    (ended,) = watching.of(ResponseEnded)
    assert (ended.status, ended.modality, ended.tokens, ended.aside) == ("completed", "audio", (3, 4), False)
    assert watching.of(Interruption) == []


def test_the_engines_own_stages_are_kept_in_order() -> None:
    room, watching = watched()
    room.engine.latency = from_ms(800)
    room.ask()
    active = room.session.state.active
    assert active is not None
    room.post(EngineStage(active.fence, active.id, "first_token"))
    room.post(EngineStage(active.fence, active.id, "first_clause"))
    room.quiet(2000)
    (answer,) = watching.of(Answer)
    assert [name for name, _ in answer.stages] == ["words", "first_token", "first_clause"]


def test_an_answer_that_the_client_asked_for_has_no_end_of_speech() -> None:
    room, watching = watched(replace(SessionConfig(), turns=None))
    room.post(ResponseCreate())
    room.wait(1000)
    (answer,) = watching.of(Answer)
    assert (answer.speech_end, answer.turn_ended, answer.latency) == (None, None, None)
    assert answer.asked == 0


def test_an_answer_that_is_text_alone_has_its_stages_and_nothing_to_hear() -> None:
    room, watching = watched(replace(SessionConfig(), turns=None))
    room.wait(200)
    room.engine.latency = from_ms(800)
    room.post(ResponseCreate(modality="text"))
    active = room.session.state.active
    assert active is not None
    room.wait(300)
    room.post(EngineStage(active.fence, active.id, "first_token"))
    room.wait(3000)
    (answer,) = watching.of(Answer)
    assert (answer.audible, answer.asked) == (None, from_ms(200))
    assert answer.stages == (("words", from_ms(200)), ("first_token", from_ms(500)))
    (ended,) = watching.of(ResponseEnded)
    assert ended.modality == "text"


def test_an_interruption_tells_when_the_agent_fell_silent_and_what_nobody_heard() -> None:
    room, watching = watched()
    room.converse(700)
    onset = room.now
    room.talk(600)
    (cut,) = watching.of(Interruption)
    assert (cut.cause, cut.epoch, cut.onset) == ("barge_in", 1, onset)
    assert cut.held is not None
    # The first window of speech holds; the commit comes later.
    assert onset + WINDOW == cut.held < cut.at
    assert cut.stopped_after == cut.held - onset
    state = room.session.state
    assert 0 < cut.unheard <= state.ledger.cleared
    assert watching.of(ResponseEnded)[0].status == "cancelled"


def test_a_backchannel_is_a_pause_with_its_words_and_no_interruption() -> None:
    room, watching = watched(SEMANTIC)
    room.perception.look = "mm-hmm"
    room.converse(700)
    onset = room.now
    room.talk(200)
    room.quiet(1500)
    (pause,) = watching.of(Pause)
    assert (pause.onset, pause.words) == (onset, "mm-hmm")
    assert pause.onset < pause.held < pause.resumed
    assert watching.of(Interruption) == []


def test_a_clients_cancel_has_no_onset() -> None:
    room, watching = watched()
    room.converse(700)
    room.post(ResponseCancel())
    (cut,) = watching.of(Interruption)
    assert (cut.cause, cut.onset, cut.held, cut.stopped_after) == ("client_cancel", None, None, None)
    assert 0 < cut.unheard <= from_ms(200)


def test_nothing_is_kept_of_what_is_over() -> None:
    room, watching = watched()
    for _ in range(5):
        room.ask()
        room.quiet(4000)
    assert len(watching.of(Answer)) == 5
    assert watching.figures._growing == {}
    assert watching.figures._sent == {}
