"""`models.families.embedded.engine`, with a thinker and a talker that need no model."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from models.families.embedded.engine import EmbeddedEngine
from models.families.embedded.reply import Clause, Reply
from models.families.embedded.stop import Stop
from models.families.embedded.talker import Spoken, TalkerError
from models.families.embedded.thinker import TextPiece, ThinkerError, Thinking, ThinkRequest, Thought, ToolCall
from sessions.core.config import SessionConfig, Tool
from sessions.core.effects import GrantCredit
from sessions.core.events import EngineAudio, EngineDone, EngineFailed, EngineStage, EngineToolCall, EngineWords
from sessions.core.fence import OUT_OF_BAND
from sessions.core.timeline import from_ms
from sessions.ports import Busy, EnginePort

from ..hearing import PATIENCE, WORD_MS, Ear, Metronome, Reciter, fence, shut, start

WORD = from_ms(WORD_MS)


def pieces(text: str) -> list[TextPiece]:
    return [TextPiece(text[at : at + 4]) for at in range(0, len(text), 4)]


def opened(thinker: Reciter, ear: Ear, *sessions: str, talker: Metronome | None = None) -> EmbeddedEngine:
    engine = EmbeddedEngine(thinker, talker or Metronome(), max_sessions=4)
    for session in sessions or ("s",):
        engine.open(fence(session), SessionConfig(), ear)
    return engine


def test_it_is_an_engine_port() -> None:
    engine = EmbeddedEngine(Reciter(), Metronome())
    with shut(engine):
        port: EnginePort = engine
        assert port.capabilities.turns == "core"
        assert engine.capabilities.listens == "text"
        assert engine.capabilities.output_rate == 24_000


def test_a_response_is_spoken_clause_by_clause_and_ends_with_its_counts() -> None:
    ear, talker = Ear(), Metronome()
    thinker = Reciter(*pieces("Yes, it is. Paris is the capital."), thinking=Thinking("completed", 12, 9))
    engine = opened(thinker, ear, talker=talker)
    with shut(engine):
        engine.start(start())
        assert ear.wait_for_end() == EngineDone(fence(), "r", "completed", 12, 9)
    assert talker.clauses == ["Yes, it is.", "Paris is the capital."]
    assert ear.spoken() == "Yes, it is. Paris is the capital."
    assert ear.length() == 7 * WORD
    assert [word.start for word in ear.words()] == [at * WORD for at in range(7)]


def test_the_stages_are_told_in_order_and_words_before_their_audio() -> None:
    ear = Ear()
    engine = opened(Reciter(*pieces("One two. Three four.")), ear)
    with shut(engine):
        engine.start(start())
        ear.wait_for_end()
    assert [event.stage for event in ear.events(EngineStage)] == ["first_token", "first_clause", "first_audio"]
    order = [type(event) for event, _ in ear.heard if isinstance(event, EngineWords | EngineAudio)]
    assert order == [EngineWords, EngineAudio, EngineWords, EngineAudio]


def test_the_first_clause_is_spoken_while_the_rest_is_thought() -> None:
    ear = Ear()
    thinker = Reciter(TextPiece("Of course. "), TextPiece("And"), TextPiece(" more."))
    thinker.go.clear()
    gate = threading.Semaphore(0)

    class Slow(Reciter):
        def think(self, request: ThinkRequest, tell: Callable[[Thought], None], stop: Stop) -> Thinking:
            tell(TextPiece("Of course. And"))
            gate.acquire(timeout=PATIENCE)
            tell(TextPiece(" more."))
            return Thinking()

    engine = opened(Slow(), ear)
    with shut(engine):
        engine.start(start())
        ear.wait(lambda ear: ear.length() == 2 * WORD)
        assert ear.end() is None
        gate.release()
        ear.wait_for_end()
    assert ear.spoken() == "Of course. And more."


def test_every_event_carries_the_fence_of_the_request() -> None:
    ear = Ear()
    engine = opened(Reciter(*pieces("One two three.")), ear)
    with shut(engine):
        engine.advance(fence(epoch=3))
        engine.start(start(at=fence(epoch=3)))
        ear.wait_for_end()
    assert {event.fence for event, _ in ear.heard} == {fence(epoch=3)}  # type: ignore[union-attr]


def test_audio_stops_at_the_credit_and_no_clause_is_made_that_begins_beyond_it() -> None:
    ear, talker = Ear(), Metronome()
    engine = opened(Reciter(*pieces("One two three. Four five. Six seven.")), ear, talker=talker)
    with shut(engine):
        engine.start(start(credit=2 * WORD))
        ear.wait(lambda ear: ear.length() == 2 * WORD)
        engine.grant(GrantCredit(fence(), "r", 4 * WORD))
        ear.wait(lambda ear: ear.length() == 4 * WORD)
        assert talker.clauses == ["One two three.", "Four five."]
        engine.grant(GrantCredit(fence(), "r", 100 * WORD))
        ear.wait_for_end()
    assert ear.length() == 7 * WORD


def test_a_cancelled_wait_for_credit_ends_and_is_counted() -> None:
    ear = Ear()
    engine = opened(Reciter(*pieces("One two three. Four five.")), ear)
    with shut(engine):
        engine.start(start(credit=WORD))
        ear.wait(lambda ear: ear.length() == WORD)
        engine.cancel(fence(), "r")
        assert engine.active == 0
        engine.grant(GrantCredit(fence(), "r", 100 * WORD))
        assert engine.counters["responses_stopped"] == 1
    assert ear.length() == WORD
    assert ear.end() is None


def test_a_cancel_stops_the_thinker_not_only_its_voice() -> None:
    ear = Ear()
    thinker = Reciter(*pieces("word " * 500))
    thinker.go.clear()
    engine = opened(thinker, ear)
    with shut(engine):
        engine.start(start())
        engine.cancel(fence(), "r")
        assert thinker.ended.acquire(timeout=PATIENCE)
        assert thinker.told == 0
        assert engine.active == 0


def test_an_advance_stops_older_epochs_and_leaves_newer_ones() -> None:
    ear = Ear()
    thinker = Reciter(*pieces("One two three."))
    thinker.go.clear()
    engine = opened(thinker, ear)
    with shut(engine):
        engine.start(start("old"))
        engine.advance(fence(epoch=1))
        thinker.go.clear()
        engine.start(start("new", at=fence(epoch=1)))
        engine.advance(fence(epoch=1))
        thinker.go.set()
        ear.wait_for_end("new")
        assert engine.counters == {"responses_stopped": 1}
    assert not ear.audio("old")


def test_a_clause_that_was_taken_just_before_its_epoch_ended_is_not_spoken(monkeypatch: pytest.MonkeyPatch) -> None:
    ear, talker = Ear(), Metronome()
    engine = opened(Reciter(*pieces("One two three.")), ear, talker=talker)
    take, ended = EmbeddedEngine._next_job, threading.Event()

    def interrupted(self: EmbeddedEngine) -> object:
        job = take(self)
        if isinstance(job, tuple) and job[0].request.response == "old":
            self.advance(fence(epoch=1))
            ended.set()
        return job

    with shut(engine):
        monkeypatch.setattr(EmbeddedEngine, "_next_job", interrupted)
        # The talker waits in the unchanged method; after this one it asks the changed one.
        engine.start(start("first"))
        ear.wait_for_end("first")
        engine.start(start("old"))
        assert ended.wait(PATIENCE)
        engine.start(start("new", at=fence(epoch=1)))
        ear.wait_for_end("new")
        assert engine.counters == {"clauses_stale": 1, "responses_stopped": 1}
    assert talker.clauses == ["One two three."] * 2
    assert not ear.audio("old")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"tenant": "another"}, "tenant"),
        ({"sequence": 7}, "sequence"),
        ({"start": 3}, "span"),
        ({"shape": (1, 2)}, "shape"),
    ],
)
def test_a_clause_that_is_not_what_its_envelope_says_fails_the_response(
    change: dict[str, object], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ear, talker = Ear(), Metronome()
    engine = opened(Reciter(*pieces("One two three.")), ear, talker=talker)
    made = Reply.clause

    def mislabelled(self: Reply, text: str) -> Clause:
        clause = made(self, text)
        return replace(clause, envelope=replace(clause.envelope, **change))

    monkeypatch.setattr(Reply, "clause", mislabelled)
    with shut(engine):
        engine.start(start())
        end = ear.wait_for_end()
    assert isinstance(end, EngineFailed)
    assert end.code == "transfer_refused"
    assert told in end.message
    assert talker.clauses == []


class Reader(Reciter):
    """A thinker that reads ahead, and keeps what it was told to."""

    def __init__(self, *thoughts: Thought) -> None:
        super().__init__(*thoughts)
        self.ahead: list[tuple[str, str, str, int]] = []
        self.released: list[tuple[str, bool]] = []
        self.gone: Stop | None = None
        self.read = threading.Semaphore(0)

    def read_ahead(self, tenant: str, session: str, instructions: str, tools: tuple[Tool, ...], stop: Stop) -> None:
        self.ahead.append((tenant, session, instructions, len(tools)))
        self.gone = stop
        self.read.release()
        if instructions == "Fail.":
            raise RuntimeError("as told")

    def release(self, session: str) -> None:
        self.released.append((session, bool(self.gone)))

    def held(self, tenant: str) -> int:
        return sum(one == tenant for one, *_ in self.ahead)

    def forget(self, tenant: str) -> None:
        self.ahead = [one for one in self.ahead if one[0] != tenant]


def test_what_begins_every_prompt_is_read_before_anybody_asks_and_released_at_the_end() -> None:
    ear, thinker = Ear(), Reader(*pieces("One."))
    engine = EmbeddedEngine(thinker, Metronome())
    with shut(engine):
        engine.open(fence(), SessionConfig(instructions="Be kind.", tools=(Tool(name="t"),), tenant="clinic"), ear)
        assert thinker.read.acquire(timeout=PATIENCE)
        assert thinker.ahead == [("clinic", "s", "Be kind.", 1)]
        engine.start(start(instructions="Be brief.", tools=(Tool(name="t"),), tool_choice="none"))
        ear.wait_for_end()
        assert thinker.read.acquire(timeout=PATIENCE)
        assert thinker.ahead[1:] == [("clinic", "s", "Be brief.", 0)]
        assert thinker.requests[0].tenant == "clinic"
        engine.close("s")
        assert thinker.released == [("s", True)]


def test_a_response_of_its_own_instructions_out_of_band_is_not_read_ahead_for() -> None:
    ear, thinker = Ear(), Reader(*pieces("One."))
    engine = opened(thinker, ear)
    with shut(engine):
        engine.start(start("aside", at=fence(epoch=OUT_OF_BAND), instructions="Classify."))
        ear.wait_for_end("aside")
        engine.start(start(instructions="Be kind."))
        ear.wait_for_end()
        assert thinker.read.acquire(timeout=PATIENCE)
    assert thinker.ahead == [("without a key", "s", "Be kind.", 0)]


def test_reading_ahead_that_fails_is_nobodys_failure() -> None:
    ear, thinker = Ear(), Reader(*pieces("One."))
    engine = EmbeddedEngine(thinker, Metronome())
    with shut(engine):
        engine.open(fence(), SessionConfig(instructions="Fail."), ear)
        assert thinker.read.acquire(timeout=PATIENCE)
        engine.start(start())
        assert isinstance(ear.wait_for_end(), EngineDone)


def test_a_request_under_an_old_fence_is_refused_and_counted() -> None:
    ear = Ear()
    thinker = Reciter(*pieces("One."))
    engine = opened(thinker, ear)
    with shut(engine):
        engine.advance(fence(epoch=2))
        engine.start(start(at=fence(epoch=1)))
        engine.advance(fence(epoch=0, incarnation=0))
        assert engine.counters == {"requests_stale": 2}
    assert thinker.requests == []


def test_requests_for_unknown_sessions_and_responses_are_ignored_and_counted() -> None:
    engine = EmbeddedEngine(Reciter(), Metronome())
    with shut(engine):
        engine.start(start())
        engine.cancel(fence(), "r")
        engine.advance(fence())
        engine.grant(GrantCredit(fence(), "r", 1))
        engine.append("s", 0, b"", 24_000)
        engine.close("s")
        assert engine.counters == {"requests_unknown": 3}


def test_a_response_that_is_started_twice_is_made_once() -> None:
    ear = Ear()
    thinker = Reciter(*pieces("One two."))
    thinker.go.clear()
    engine = opened(thinker, ear)
    with shut(engine):
        engine.start(start())
        engine.start(start())
        thinker.go.set()
        ear.wait_for_end()
        assert engine.counters == {"requests_unknown": 1}
    assert len(thinker.requests) == 1


def test_one_session_too_many_is_busy_at_once_and_room_comes_back() -> None:
    ear = Ear()
    engine = EmbeddedEngine(Reciter(), Metronome(), max_sessions=1)
    with shut(engine):
        engine.open(fence("a"), SessionConfig(), ear)
        engine.open(fence("a"), SessionConfig(), ear)  # again: no second place is taken
        with pytest.raises(Busy) as busy:
            engine.open(fence("b"), SessionConfig(), ear)
        assert busy.value.retry_after > 0
        engine.close("a")
        engine.close("a")
        engine.open(fence("b"), SessionConfig(), ear)
        assert engine.counters["sessions_refused"] == 1


def test_closing_a_session_stops_its_work() -> None:
    ear = Ear()
    thinker = Reciter(*pieces("One two three."))
    thinker.go.clear()
    engine = opened(thinker, ear)
    with shut(engine):
        engine.start(start())
        engine.close("s")
        assert thinker.ended.acquire(timeout=PATIENCE)
        assert engine.active == 0
        assert engine.counters["responses_stopped"] == 1
    assert ear.heard == []


def test_text_modality_gives_the_text_as_it_is_and_no_audio() -> None:
    ear, talker = Ear(), Metronome()
    engine = opened(Reciter(*pieces("**Bold** and 😀")), ear, talker=talker)
    with shut(engine):
        engine.start(start(modality="text"))
        ear.wait_for_end()
    assert ear.text() == "**Bold** and 😀"
    assert not ear.audio()
    assert talker.clauses == []


def test_a_tool_call_comes_after_what_was_said_before_it() -> None:
    ear = Ear()
    engine = opened(Reciter(TextPiece("Let me look"), ToolCall("c1", "search", '{"q": "x"}')), ear)
    with shut(engine):
        engine.start(start())
        ear.wait_for_end()
    kinds = [type(event) for event, _ in ear.heard if isinstance(event, EngineAudio | EngineToolCall)]
    assert kinds[-1] is EngineToolCall
    assert ear.spoken() == "Let me look."
    assert ear.events(EngineToolCall) == [EngineToolCall(fence(), "r", "c1", "search", '{"q": "x"}')]


def test_a_reply_without_anything_to_say_is_simply_done() -> None:
    ear = Ear()
    engine = opened(Reciter(), ear)
    with shut(engine):
        engine.start(start())
        assert isinstance(ear.wait_for_end(), EngineDone)
        ear.wait(lambda _: engine.active == 0)
    assert ear.length() == 0


def test_a_typed_failure_of_the_thinker_is_told_after_what_was_said() -> None:
    ear = Ear()
    engine = opened(Reciter(*pieces("One two. "), TextPiece("X"), error=ThinkerError("llm_timeout", "too slow")), ear)
    with shut(engine):
        engine.start(start())
        assert ear.wait_for_end() == EngineFailed(fence(), "r", "llm_timeout", "too slow")
        assert ear.spoken() == "One two."
        assert ear.length() == 2 * WORD
        engine.start(start("again"))
        assert isinstance(ear.wait_for_end("again"), EngineFailed)


def test_an_unexpected_failure_names_no_internals_and_the_session_lives(caplog: pytest.LogCaptureFixture) -> None:
    ear = Ear()
    thinker = Reciter(error=RuntimeError("secret detail"))
    engine = opened(thinker, ear)
    with shut(engine):
        engine.start(start())
        failed = ear.wait_for_end()
        assert isinstance(failed, EngineFailed)
        assert failed.code == "thinker_failed"
        assert "secret" not in failed.message
        thinker.error = None
        engine.start(start("next"))
        assert isinstance(ear.wait_for_end("next"), EngineDone)
    assert "thinking failed" in caplog.text


def test_a_failure_of_the_talker_stops_the_thinker_too() -> None:
    class Mute(Metronome):
        def speak(self, text: str, *, voice: str = "default", speed: float = 1.0, first: bool = True) -> Spoken:
            raise TalkerError("unknown_voice", f"voice: {voice}")

    ear = Ear()
    thinker = Reciter(*pieces("One two. Three."))
    engine = opened(thinker, ear, talker=Mute())
    with shut(engine):
        engine.start(start(voice="nobody"))
        assert ear.wait_for_end() == EngineFailed(fence(), "r", "unknown_voice", "voice: nobody")
        assert thinker.ended.acquire(timeout=PATIENCE)
        assert bool(thinker.stops[0])
        ear.wait(lambda _: engine.active == 0)


def test_who_has_not_been_heard_is_spoken_before_who_has_plenty() -> None:
    ear = Ear()
    entered, go = threading.Semaphore(0), threading.Semaphore(0)

    class Stepped(Metronome):
        def speak(self, text: str, *, voice: str = "default", speed: float = 1.0, first: bool = True) -> Spoken:
            entered.release()
            go.acquire(timeout=PATIENCE)
            return super().speak(text, voice=voice, speed=speed, first=first)

    class Named(Reciter):
        def think(self, request: ThinkRequest, tell: Callable[[Thought], None], stop: Stop) -> Thinking:
            name = request.instructions
            for number in range(3):
                tell(TextPiece(f"{name}{number}. "))
            self.ended.release()
            return Thinking()

    talker, thinker = Stepped(), Named()
    engine = opened(thinker, ear, "a", "b", talker=talker)
    with shut(engine):
        engine.start(start("ra", at=fence("a"), instructions="a"))
        assert entered.acquire(timeout=PATIENCE)  # the first clause of a is being spoken
        assert thinker.ended.acquire(timeout=PATIENCE)
        engine.start(start("rb", at=fence("b"), instructions="b"))
        assert thinker.ended.acquire(timeout=PATIENCE)
        for _ in range(6):
            go.release()
        ear.wait_for_end("ra")
        ear.wait_for_end("rb")
    assert talker.clauses[:2] == ["a0.", "b0."]
    assert sorted(talker.clauses[2:]) == ["a1.", "a2.", "b1.", "b2."]


def test_shutdown_ends_waiting_responses_and_closes_the_thinker() -> None:
    ear = Ear()
    thinker = Reciter(*pieces("One two three."))
    thinker.go.clear()
    engine = opened(thinker, ear)
    engine.start(start())
    engine.shutdown()
    engine.shutdown()
    assert thinker.closed
    with pytest.raises(Busy):
        engine.open(fence("late"), SessionConfig(), ear)


def test_an_engine_without_room_for_anybody_is_refused() -> None:
    with pytest.raises(ValueError, match="max_sessions 0"):
        EmbeddedEngine(Reciter(), Metronome(), max_sessions=0)
