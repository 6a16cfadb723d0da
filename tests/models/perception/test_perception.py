"""`EmbeddedPerception`: order, fairness, cancellation and failure, with models whose answers are known.

No test waits for time to pass: every wait is for an event that must come, and what must not come is looked for after a
later request of the same thread was answered.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from models.perception.asr import LanguageUnsupported, Recognition, TimedWord
from models.perception.denoise import DELAY, HOP, Suppressor
from models.perception.echo import EchoDetector
from models.perception.perception import (
    CALM,
    FEW,
    GATHER,
    SELDOM,
    VAIN,
    WINDOW_TICKS,
    EmbeddedPerception,
    _Ear,
    _Feed,
    _gather,
)
from models.perception.track import InputTrack
from models.perception.vad import WINDOW, SpeechState
from models.remote.errors import RemoteError
from sessions.core.effects import AssessTurn, OpenPerception, Transcribe
from sessions.core.events import EndOfTurnProbability, Event, PerceptionFailed, SpeechProbability, Transcript
from sessions.core.fence import Fence
from sessions.core.timeline import TICK_RATE, Ticks, Token, Word

Samples = NDArray[np.float32]
SECOND = TICK_RATE
PATIENCE = 30.0
LISTEN = OpenPerception(speech=True, language="en")
DEAF = OpenPerception(speech=False, language="en")


class Level:
    """Speech probability = mean level of the window; notes how large each batch was."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.states: list[list[SpeechState]] = []
        self.fail = False

    def detect(self, windows: Samples, states: list[SpeechState]) -> Samples:
        if self.fail:
            self.fail = False
            raise RuntimeError("out of memory")
        assert windows.shape == (len(states), WINDOW)
        self.batches.append(len(states))
        self.states.append(list(states))
        return np.asarray(windows.mean(axis=1), np.float32)


class Loudness:
    """End-of-turn probability = last sample's level."""

    def __init__(self) -> None:
        self.lengths: list[int] = []

    def probability(self, turn: Samples) -> float:
        self.lengths.append(turn.size)
        return float(turn[-1])


class Scribe:
    """Writes the length of what it heard in samples; can be held up and made to fail."""

    languages = ("en", "de")

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)
        self.heard: list[int] = []
        self.timed: list[bool] = []
        self.fail = False
        self.error: Exception | None = None

    def recognize(self, samples: Samples, language: str = "en", *, times: bool = False) -> Recognition:
        self.heard.append(samples.size)
        self.timed.append(times)
        self.entered.release()
        assert self.gate.wait(PATIENCE)
        if language not in self.languages:
            raise LanguageUnsupported(f"language {language!r} is not known")
        if self.fail:
            self.fail = False
            raise RuntimeError("model broke")
        if self.error is not None:
            raise self.error
        words = (TimedWord(str(samples.size), 0.5, 1.0),) if times else ()
        tokens = (Token(str(samples.size), (49,), -0.5),) if times else ()
        return Recognition(str(samples.size), words, tokens)


class Events:
    """What a session was told."""

    def __init__(self) -> None:
        self.all: list[Event] = []
        self._changed = threading.Condition()

    def __call__(self, event: Event, pcm: bytes | None = None) -> None:
        with self._changed:
            self.all.append(event)
            self._changed.notify_all()

    def of(self, kind: type[Event]) -> list[Event]:
        with self._changed:
            return [event for event in self.all if isinstance(event, kind)]

    def until(self, kind: type[Event], count: int = 1) -> list[Event]:
        with self._changed:
            came = self._changed.wait_for(lambda: sum(isinstance(event, kind) for event in self.all) >= count, PATIENCE)
            assert came, f"{count} {kind.__name__} awaited, got {self.all}"
            return [event for event in self.all if isinstance(event, kind)]


class Rig:
    """A perception with known models."""

    def __init__(self, **settings: Any) -> None:
        self.level, self.loudness, self.scribe = Level(), Loudness(), Scribe()
        self.unloaded = 0
        self.perception = EmbeddedPerception(self.level, self.loudness, self.scribe, unload=self._unload, **settings)
        self.fed: dict[str, Ticks] = {}

    def _unload(self) -> None:
        self.unloaded += 1

    def open(self, session: str = "s", request: OpenPerception = LISTEN) -> Events:
        events = Events()
        self.perception.open(Fence(session, 1, 0), request, events)
        self.fed[session] = 0
        return events

    def feed(self, seconds: float, level: float = 0.0, session: str = "s", rate: int = 16_000) -> None:
        count = round(seconds * rate)
        pcm = np.full(count, round(level * 32768), "<i2").tobytes()
        self.perception.feed(session, self.fed[session], pcm, rate)
        self.fed[session] += count * (TICK_RATE // rate)


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.scribe.gate.set()
    rig.perception.stop()


def test_every_window_is_reported_once_in_order_with_its_span(rig: Rig) -> None:
    events = rig.open()
    for step in range(100):
        rig.feed(0.02, level=step / 200)
    heard = events.until(SpeechProbability, 62)
    assert [(event.start, event.end) for event in heard] == [
        (n * WINDOW_TICKS, (n + 1) * WINDOW_TICKS) for n in range(62)
    ]
    for event in heard:
        middle = (event.start + event.end) / 2 / (TICK_RATE // 50)
        assert event.probability == pytest.approx(middle / 200, abs=0.005)


def test_windows_begin_where_the_track_begins(rig: Rig) -> None:
    events = rig.open()
    rig.fed["s"] = 12_345
    rig.feed(0.1)
    assert events.until(SpeechProbability)[0].start == 12_345


def test_tokens_are_told_to_the_session_that_wants_them(rig: Rig) -> None:
    for session, wanted in (("plain", False), ("curious", True)):
        events = rig.open(session, OpenPerception(False, "en", logprobs=wanted))
        rig.feed(1.0, session=session)
        rig.perception.transcribe(session, Transcribe(1, 0, SECOND))
        (heard,) = events.until(Transcript)
        assert heard.tokens == ((Token("16000", (49,), -0.5),) if wanted else ())


def test_no_probability_is_given_where_none_is_wanted(rig: Rig) -> None:
    events = rig.open(request=DEAF)
    rig.feed(1.0)
    rig.perception.transcribe("s", Transcribe(1, 0, SECOND))
    events.until(Transcript)
    assert events.of(SpeechProbability) == []
    rig.perception.open(Fence("s", 1, 0), LISTEN, events)
    rig.feed(0.1)
    assert events.until(SpeechProbability)[0].start == SECOND


def test_plain_silence_is_reported_and_not_looked_at_until_there_is_a_sound(rig: Rig) -> None:
    events = rig.open()
    rig.feed(0.032 * 100)
    heard = events.until(SpeechProbability, 100)
    assert [event.end for event in heard] == [(n + 1) * WINDOW_TICKS for n in range(100)]
    assert {event.probability for event in heard} == {0.0}
    assert sum(rig.level.batches) == CALM
    rig.feed(0.032, level=0.8)
    assert events.until(SpeechProbability, 101)[-1].probability == pytest.approx(0.8, abs=0.001)
    assert rig.level.states[-1][0] is not rig.level.states[0][0]


def test_a_pause_in_speech_is_looked_at_however_silent_it_is(rig: Rig) -> None:
    events = rig.open()
    for _ in range(5):
        rig.feed(0.032, level=0.8)
        rig.feed(0.032 * (CALM - 1))
    events.until(SpeechProbability, 5 * CALM)
    assert sum(rig.level.batches) == 5 * CALM


class Searches(EchoDetector):
    """Notes of each window that was compared whether an unknown lag was looked for."""

    made: ClassVar[list[bool]] = []

    def likeness(self, heard: Samples, end: Ticks, *, search: bool = True) -> float:
        self.made.append(search)
        return super().likeness(heard, end, search=search)


def test_an_echo_is_looked_for_in_speech_and_in_sounds_and_not_in_the_noise_of_a_room(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Searches, "made", [])
    monkeypatch.setattr("models.perception.perception.EchoDetector", Searches)
    events = rig.open()
    rig.perception.play("s", 0, np.full(4 * 16_000, 8000, "<i2").tobytes(), 16_000)
    for windows, level, expected in (
        (20, 0.003, 0),  # -50 dBFS, always there
        (5, 0.02, 5),  # -34 dBFS: no speech, but something
        (20, 0.003, 0),
        (5, 0.3, 5),  # speech
    ):
        Searches.made.clear()
        before = len(events.of(SpeechProbability))
        rig.feed(windows * WINDOW / 16_000, level)
        events.until(SpeechProbability, before + windows)
        assert Searches.made.count(True) == expected


def test_an_echo_is_seldom_looked_for_while_the_user_has_the_floor(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Searches, "made", [])
    monkeypatch.setattr("models.perception.perception.EchoDetector", Searches)
    events = rig.open()
    rig.perception.play("s", 0, np.full(4 * 16_000, 8000, "<i2").tobytes(), 16_000)
    rig.feed(5 * WINDOW / 16_000, 0.3)
    events.until(SpeechProbability, 5)
    for taken, expected in ((True, 12 * WINDOW_TICKS // SELDOM), (False, 12)):
        Searches.made.clear()
        before = len(events.of(SpeechProbability))
        rig.perception.floor("s", taken)
        rig.feed(12 * WINDOW / 16_000, 0.3)
        events.until(SpeechProbability, before + 12)
        assert Searches.made.count(True) == expected
    rig.perception.floor("nobody", True)


def test_an_echo_looked_for_in_vain_is_looked_for_less_often() -> None:
    ear = _Ear("s", Events(), InputTrack(SECOND))
    worth = EmbeddedPerception._worth
    assert worth(ear, 0)
    ear.vain, ear.searched = 1, 10 * WINDOW_TICKS
    assert not worth(ear, 11 * WINDOW_TICKS)
    assert worth(ear, 12 * WINDOW_TICKS)
    # Who takes the floor may have cut the agent by its own echo: that is looked for anew, some times.
    ear.vain, ear.floor_taken = VAIN + 1, True
    assert not worth(ear, ear.searched + SELDOM - 1)
    assert worth(ear, ear.searched + SELDOM)
    ear.vain = VAIN - 1
    assert worth(ear, ear.searched + SELDOM)
    ear.vain = VAIN
    assert not worth(ear, ear.searched + 10 * SELDOM)
    ear.floor_taken = False
    assert worth(ear, ear.searched + WINDOW_TICKS)


def test_the_intake_gathers_until_a_batch_is_full_within_bounds() -> None:
    least, most = GATHER
    assert _gather(FEW + 1) == most < WINDOW / 16_000
    assert least < _gather(15) < most
    assert _gather(100) == least


def test_who_asks_does_not_wait_for_others(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.perception.perception.GATHER", (10 * PATIENCE, 10 * PATIENCE))
    events = [rig.open(f"s{number}") for number in range(FEW + 1)]
    for number in range(FEW + 1):
        rig.feed(0.5, session=f"s{number}")
    rig.perception.transcribe("s0", Transcribe(1, 0, SECOND // 2))
    events[0].until(Transcript)
    rig.perception.assess("s1", AssessTurn(2, 0, SECOND // 2))
    events[1].until(EndOfTurnProbability)


def test_windows_of_many_sessions_go_through_together_and_states_do_not_mix() -> None:
    rig = Rig()
    held = threading.Event()
    inside = threading.Event()

    def emit(event: Event, pcm: bytes | None = None) -> None:
        inside.set()
        assert held.wait(PATIENCE)

    # While intake is busy with the first session's window, windows of the others pile up.
    rig.perception.open(Fence("first", 1, 0), LISTEN, emit)
    rig.fed["first"] = 0
    rig.feed(0.032, session="first")
    assert inside.wait(PATIENCE)
    others = {name: rig.open(name) for name in ("a", "b", "c")}
    for number, name in enumerate(others):
        rig.feed(0.1, level=number / 4, session=name)
    held.set()
    for number, events in enumerate(others.values()):
        assert [event.probability for event in events.until(SpeechProbability, 3)] == [number / 4] * 3
    assert max(rig.level.batches) == 3
    batch = next(states for states in rig.level.states if len(states) == 3)
    assert len({id(state) for state in batch}) == 3
    rig.perception.stop()


def test_a_request_sees_exactly_the_audio_that_was_fed_before_it(rig: Rig) -> None:
    events = rig.open(request=DEAF)
    rig.feed(1.0, rate=24_000)
    rig.perception.transcribe("s", Transcribe(7, SECOND // 4, SECOND))
    rig.feed(1.0, rate=24_000)
    assert events.until(Transcript) == [
        Transcript(7, SECOND // 4, SECOND, "12000", (Word("12000", 3 * SECOND // 4, 5 * SECOND // 4),))
    ]


def test_words_carry_times_only_in_final_transcripts(rig: Rig) -> None:
    events = rig.open(request=DEAF)
    rig.feed(1.0)
    rig.perception.transcribe("s", Transcribe(1, 0, SECOND, final=False))
    assert events.until(Transcript) == [Transcript(1, 0, SECOND, "16000")]
    assert rig.scribe.timed == [False]


def test_the_turn_is_assessed_up_to_the_given_place(rig: Rig) -> None:
    events = rig.open(request=DEAF)
    rig.feed(1.0, level=0.25)
    rig.feed(1.0, level=0.75)
    rig.perception.assess("s", AssessTurn(3, SECOND // 2, SECOND))
    rig.perception.assess("s", AssessTurn(4, 0, 2 * SECOND))
    assert events.until(EndOfTurnProbability, 2) == [
        EndOfTurnProbability(3, SECOND, 0.25),
        EndOfTurnProbability(4, 2 * SECOND, 0.75),
    ]
    assert rig.loudness.lengths == [8_000, 32_000]


def test_speech_is_reported_while_a_transcript_is_being_made(rig: Rig) -> None:
    events = rig.open()
    rig.scribe.gate.clear()
    rig.feed(0.5)
    rig.perception.transcribe("s", Transcribe(1, 0, SECOND // 4))
    assert rig.scribe.entered.acquire(timeout=PATIENCE)
    rig.feed(0.5)
    rig.perception.assess("s", AssessTurn(2, 0, SECOND // 2))
    events.until(SpeechProbability, 31)
    events.until(EndOfTurnProbability)
    assert events.of(Transcript) == []
    rig.scribe.gate.set()
    events.until(Transcript)


def test_a_cancelled_request_is_not_answered_even_if_it_was_under_way(rig: Rig) -> None:
    events = rig.open(request=DEAF)
    rig.scribe.gate.clear()
    rig.feed(1.0)
    for request in (1, 2, 3):
        rig.perception.transcribe("s", Transcribe(request, 0, SECOND))
    assert rig.scribe.entered.acquire(timeout=PATIENCE)
    rig.perception.cancel("s", 1)
    rig.perception.cancel("s", 2)
    rig.perception.cancel("s", 99)
    # The cancels are behind this assessment's turn in the inbox, so its answer says that they were seen.
    rig.perception.assess("s", AssessTurn(9, 0, SECOND))
    events.until(EndOfTurnProbability)
    rig.scribe.gate.set()
    assert [event.request for event in events.until(Transcript)] == [3]
    assert rig.scribe.heard == [16_000, 16_000]


def test_a_newer_look_takes_the_place_of_an_older_one(rig: Rig) -> None:
    events = rig.open(request=DEAF)
    rig.scribe.gate.clear()
    rig.feed(1.0)
    rig.perception.transcribe("s", Transcribe(1, 0, SECOND // 10))
    assert rig.scribe.entered.acquire(timeout=PATIENCE)
    for request in (2, 3, 4):
        rig.perception.transcribe("s", Transcribe(request, 0, request * SECOND // 10, final=False))
    rig.perception.transcribe("s", Transcribe(5, 0, SECOND))
    rig.perception.assess("s", AssessTurn(9, 0, SECOND))
    events.until(EndOfTurnProbability)
    rig.scribe.gate.set()
    assert [event.request for event in events.until(Transcript, 3)] == [1, 5, 4]


def test_a_session_with_many_requests_does_not_keep_another_waiting(rig: Rig) -> None:
    many, one = rig.open("many", DEAF), rig.open("one", DEAF)
    rig.scribe.gate.clear()
    rig.feed(1.0, session="many")
    rig.feed(1.0, session="one")
    for request in range(5):
        rig.perception.transcribe("many", Transcribe(request, 0, (request + 1) * SECOND // 10))
    rig.perception.assess("many", AssessTurn(9, 0, SECOND))
    many.until(EndOfTurnProbability)
    rig.perception.transcribe("one", Transcribe(0, 0, SECOND))
    rig.perception.assess("one", AssessTurn(9, 0, SECOND))
    one.until(EndOfTurnProbability)
    rig.scribe.gate.set()
    many.until(Transcript, 5)
    one.until(Transcript)
    assert rig.scribe.heard.index(16_000) <= 2


def test_audio_that_was_forgotten_is_a_typed_failure() -> None:
    rig = Rig(history=2 * SECOND)
    events = rig.open(request=DEAF)
    for _ in range(40):
        rig.feed(0.1)
    rig.perception.transcribe("s", Transcribe(1, 0, SECOND))
    rig.perception.forget("s", 3 * SECOND)
    rig.perception.assess("s", AssessTurn(2, 2 * SECOND, 4 * SECOND))
    failed = events.until(PerceptionFailed, 2)
    assert [(event.request, event.code) for event in failed] == [(1, "audio_forgotten"), (2, "audio_forgotten")]
    assert "what is held begins at 2.000 s" in failed[0].message
    rig.perception.stop()


def test_audio_that_has_not_come_is_a_typed_failure(rig: Rig) -> None:
    events = rig.open(request=DEAF)
    rig.perception.transcribe("s", Transcribe(1, 0, SECOND))
    assert [event.code for event in events.until(PerceptionFailed)] == ["audio_missing"]


def test_a_language_that_the_recognizer_lacks_is_a_typed_failure(rig: Rig) -> None:
    events = rig.open(request=OpenPerception(speech=False, language="tlh"))
    rig.feed(1.0)
    rig.perception.transcribe("s", Transcribe(1, 0, SECOND))
    assert [event.code for event in events.until(PerceptionFailed)] == ["language_unsupported"]
    assert "tlh" in events.of(PerceptionFailed)[0].message


def test_a_recognizer_elsewhere_that_cannot_be_reached_is_a_failure_with_its_own_code(rig: Rig) -> None:
    events = rig.open(request=DEAF)
    rig.feed(1.0)
    rig.scribe.error = RemoteError("remote_unreachable", "asr-url: ws://h cannot be reached")
    rig.perception.transcribe("s", Transcribe(1, 0, SECOND))
    (failed,) = events.until(PerceptionFailed)
    assert (failed.code, failed.message) == ("remote_unreachable", "asr-url: ws://h cannot be reached")


def test_a_model_that_fails_costs_one_answer_and_no_thread(rig: Rig) -> None:
    events = rig.open(request=DEAF)
    rig.feed(1.0)
    rig.scribe.fail = True
    rig.perception.transcribe("s", Transcribe(1, 0, SECOND))
    (failed,) = events.until(PerceptionFailed)
    assert (failed.request, failed.code, failed.message) == (1, "perception_failed", "RuntimeError: model broke")
    rig.perception.transcribe("s", Transcribe(2, 0, SECOND))
    assert [event.request for event in events.until(Transcript)] == [2]


def test_a_detector_that_fails_costs_one_window(rig: Rig) -> None:
    events = rig.open()
    rig.level.fail = True
    rig.feed(0.1)
    assert [event.start for event in events.until(SpeechProbability, 2)] == [WINDOW_TICKS, 2 * WINDOW_TICKS]
    assert rig.perception.windows_lost == 1


def test_a_track_that_fails_costs_no_other_session_a_window(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(start: Ticks, out: NDArray[np.int16]) -> None:
        raise RuntimeError("track broke")

    rig.open("broken")
    monkeypatch.setattr(rig.perception._ears["broken"].track, "_copy", fail)
    for session in ("s", "another"):
        events = rig.open(session)
        rig.feed(0.1, session="broken")
        rig.feed(0.1, session=session)
        assert [event.start for event in events.until(SpeechProbability, 3)] == [0, WINDOW_TICKS, 2 * WINDOW_TICKS]
    assert rig.perception.windows_lost > 0


def test_a_session_that_takes_no_events_harms_no_other(rig: Rig) -> None:
    def refuse(event: Event, pcm: bytes | None = None) -> None:
        raise RuntimeError("loop is closed")

    rig.perception.open(Fence("gone", 1, 0), LISTEN, refuse)
    rig.fed["gone"] = 0
    rig.feed(0.1, session="gone")
    events = rig.open()
    rig.feed(0.1)
    events.until(SpeechProbability, 3)


def test_a_forgotten_stretch_that_was_not_looked_at_yet_is_still_looked_at(rig: Rig) -> None:
    events = rig.open()
    rig.feed(1.0)
    rig.perception.forget("s", SECOND)
    assert len(events.until(SpeechProbability, 31)) == 31
    assert rig.perception.windows_lost == 0


def test_windows_older_than_the_history_are_given_up_and_counted() -> None:
    rig = Rig(history=SECOND)
    events = rig.open()
    rig.feed(3.0)
    heard = events.until(SpeechProbability, 30)
    assert heard[0].start >= 2 * SECOND
    assert heard[0].start % WINDOW_TICKS == 0
    assert rig.perception.windows_lost == heard[0].start // WINDOW_TICKS
    rig.perception.stop()


def test_a_closed_session_hears_nothing_more(rig: Rig) -> None:
    closed, other = rig.open("closed"), rig.open("other", DEAF)
    rig.scribe.gate.clear()
    rig.feed(1.0, session="closed")
    rig.feed(1.0, session="other")
    rig.perception.transcribe("closed", Transcribe(1, 0, SECOND))
    assert rig.scribe.entered.acquire(timeout=PATIENCE)
    rig.perception.transcribe("closed", Transcribe(2, 0, SECOND))
    rig.perception.close("closed")
    rig.perception.close("closed")
    before = len(closed.all)
    rig.perception.feed("closed", SECOND, bytes(3200), 16_000)
    rig.perception.transcribe("closed", Transcribe(3, 0, SECOND))
    rig.perception.transcribe("other", Transcribe(4, 0, SECOND))
    rig.scribe.gate.set()
    other.until(Transcript)
    assert len(closed.all) <= before + 1  # one window may have been on its way
    assert closed.of(Transcript) == []
    assert rig.scribe.heard == [16_000, 16_000]


def test_a_session_may_be_opened_again_under_its_name(rig: Rig) -> None:
    rig.open()
    rig.feed(1.0)
    rig.perception.close("s")
    events = rig.open()
    rig.feed(0.1)
    assert events.until(SpeechProbability)[0].start == 0


def test_an_unknown_session_is_a_finished_one(rig: Rig) -> None:
    rig.perception.feed("nobody", 0, bytes(320), 16_000)
    rig.perception.transcribe("nobody", Transcribe(1, 0, 480))
    rig.perception.assess("nobody", AssessTurn(1, 0, 480))
    rig.perception.cancel("nobody", 1)
    rig.perception.forget("nobody", 0)
    rig.perception.close("nobody")


def test_bad_audio_is_refused_before_it_reaches_a_thread(rig: Rig) -> None:
    rig.open()
    with pytest.raises(ValueError, match="rate 44100 Hz"):
        rig.perception.feed("s", 0, bytes(4), 44_100)
    with pytest.raises(ValueError, match="pcm has 3 bytes"):
        rig.perception.feed("s", 0, bytes(3), 16_000)


def test_an_inbox_that_nobody_empties_keeps_the_newest() -> None:
    rig = Rig(history=2 * SECOND)
    inside, held = threading.Event(), threading.Event()

    def emit(event: Event, pcm: bytes | None = None) -> None:
        inside.set()
        assert held.wait(PATIENCE)

    rig.perception.open(Fence("blocker", 1, 0), LISTEN, emit)
    rig.fed["blocker"] = 0
    rig.feed(0.032, session="blocker")
    assert inside.wait(PATIENCE)
    events = rig.open(request=DEAF)
    for number in range(100):
        rig.feed(0.1, level=number / 200)
    rig.perception.assess("s", AssessTurn(1, 9 * SECOND, 10 * SECOND))
    assert rig.perception._ears["s"].waiting <= 2 * SECOND
    held.set()
    (event,) = events.until(EndOfTurnProbability)
    assert event.probability == pytest.approx(99 / 200, abs=1e-4)
    rig.perception.stop()


def test_after_stop_no_thread_is_left_and_the_models_are_freed_once() -> None:
    rig = Rig(workers=2)
    rig.open()
    rig.feed(0.5)
    rig.perception.stop()
    rig.perception.stop()
    assert not any(thread.is_alive() for thread in rig.perception._threads)
    assert rig.unloaded == 1
    rig.perception.open(Fence("late", 1, 0), LISTEN, Events())
    rig.perception.feed("late", 0, bytes(320), 16_000)


def test_capabilities_say_what_the_recognizer_can(rig: Rig) -> None:
    said = rig.perception.capabilities
    assert (said.window, said.languages, said.end_of_turn, said.transcripts) == (1536, ("en", "de"), True, True)


# --- noise reduction -----------------------------------------------------------------------------------------------

CLEAN = OpenPerception(speech=True, language="en", denoise=True)


class Damper:
    """Halves everything and gives it as late as the real one; made only when the test says so."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.made = 0
        self.fails = False

    def __call__(self) -> Suppressor:
        assert self.gate.wait(PATIENCE)
        if self.fails:
            raise RuntimeError("no memory")
        self.made += 1
        return Halver()


class Halver:
    def __init__(self) -> None:
        self._line = np.zeros(DELAY, np.float32)

    def frame(self, samples: np.ndarray) -> np.ndarray:
        self._line = np.concatenate((self._line, samples * 0.5))
        out, self._line = self._line[:HOP], self._line[HOP:]
        return out


@pytest.fixture
def damped() -> Iterator[tuple[Rig, Damper]]:
    damper = Damper()
    rig = Rig(denoiser=damper)
    yield rig, damper
    damper.gate.set()
    rig.scribe.gate.set()
    rig.perception.stop()


def loudness(events: Events, windows: int) -> list[float]:
    heard = events.until(SpeechProbability, windows)
    return [event.level for event in heard if isinstance(event, SpeechProbability)]


def test_a_session_that_asks_for_it_is_heard_with_less_noise_and_another_is_not(damped: tuple[Rig, Damper]) -> None:
    rig, damper = damped
    clean, plain = rig.open("clean", CLEAN), rig.open("plain")
    for session in ("clean", "plain"):
        rig.feed(0.6, 0.25, session)
    assert loudness(plain, 16)[10] - loudness(clean, 16)[10] == pytest.approx(6.0, abs=0.2)
    assert damper.made == 1


def test_windows_are_reported_under_their_own_spans_with_it_too(damped: tuple[Rig, Damper]) -> None:
    rig, _ = damped
    events = rig.open("s", CLEAN)
    rig.feed(0.32)
    rig.feed(0.64, 0.25)
    heard = [event for event in events.until(SpeechProbability, 27) if isinstance(event, SpeechProbability)]
    assert [event.start for event in heard] == [n * WINDOW_TICKS for n in range(len(heard))]
    assert heard[9].level < -60 < -20 < heard[11].level


def test_audio_waits_in_order_until_it_is_ready(damped: tuple[Rig, Damper]) -> None:
    rig, damper = damped
    damper.gate.clear()
    events = rig.open("s", CLEAN)
    rig.feed(0.6, 0.25)
    other = rig.open("other")
    rig.feed(0.6, 0.25, "other")
    other.until(SpeechProbability, 16)
    assert not events.of(SpeechProbability)
    damper.gate.set()
    assert loudness(events, 16)[10] == pytest.approx(loudness(other, 16)[10] - 6.0, abs=0.2)


def test_it_is_made_once_however_often_it_is_switched(damped: tuple[Rig, Damper]) -> None:
    rig, damper = damped
    events = rig.open("s", CLEAN)
    rig.feed(0.32, 0.25)
    rig.perception.open(Fence("s", 1, 0), LISTEN, events)
    rig.feed(0.64, 0.25)
    rig.perception.open(Fence("s", 1, 0), CLEAN, events)
    rig.feed(0.64, 0.25)
    levels = loudness(events, 47)
    assert levels[20] - levels[5] == pytest.approx(6.0, abs=0.2)
    assert levels[45] == pytest.approx(levels[5], abs=0.2)
    assert damper.made == 1


def test_a_long_stretch_of_it_does_not_keep_the_others_waiting(damped: tuple[Rig, Damper]) -> None:
    rig, damper = damped
    damper.gate.clear()
    events = rig.open("s", CLEAN)
    rig.feed(30.0, 0.25)
    rig.perception.transcribe("s", Transcribe(1, 0, 30 * TICK_RATE))
    with rig.perception._changed:
        ear = rig.perception._ears["s"]
        taken = rig.perception._take(ear)
        assert sum(len(command.pcm) for command in taken if isinstance(command, _Feed)) == 2 * 1600
        ear.inbox.extendleft(reversed(taken))
        ear.waiting += 4800
        rig.perception._busy.discard(ear)
    damper.gate.set()
    (transcript,) = events.until(Transcript)
    assert isinstance(transcript, Transcript)
    assert transcript.end == 30 * TICK_RATE


def test_one_that_cannot_be_made_costs_the_noise_reduction_and_nothing_else(damped: tuple[Rig, Damper]) -> None:
    rig, damper = damped
    damper.fails = True
    events, plain = rig.open("s", CLEAN), rig.open("plain")
    rig.feed(0.6, 0.25)
    rig.feed(0.6, 0.25, "plain")
    assert loudness(events, 16)[10] == loudness(plain, 16)[10]


def test_whether_it_is_offered_is_said(rig: Rig, damped: tuple[Rig, Damper]) -> None:
    assert not rig.perception.capabilities.noise_reduction
    assert damped[0].perception.capabilities.noise_reduction


def test_without_it_the_wish_changes_nothing(rig: Rig) -> None:
    events = rig.open("s", CLEAN)
    rig.feed(0.6, 0.25)
    assert len(loudness(events, 16)) >= 16


# --- who owns the session ---------------------------------------------------------------------------------------------


def test_a_former_owner_is_refused_and_counted_and_the_present_one_goes_on(rig: Rig) -> None:
    present = Events()
    rig.perception.open(Fence("s", 2, 0), LISTEN, present)
    former = Events()
    rig.perception.open(Fence("s", 1, 9), LISTEN, former)
    rig.fed["s"] = 0
    rig.feed(0.5)
    present.until(SpeechProbability, 15)
    assert rig.perception.opens_refused == 1
    assert former.all == []


def test_under_a_new_owner_nothing_is_answered_that_the_former_asked(rig: Rig) -> None:
    former = rig.open()
    rig.feed(1.0, 0.3)
    former.until(SpeechProbability, 31)
    rig.scribe.gate.clear()
    rig.perception.transcribe("s", Transcribe(7, 0, SECOND * 9 // 10, True))
    assert rig.scribe.entered.acquire(timeout=PATIENCE)
    present = Events()
    rig.perception.open(Fence("s", 2, 0), LISTEN, present)
    rig.scribe.gate.set()
    rig.feed(1.0, 0.3)
    present.until(SpeechProbability, 31)
    rig.perception.transcribe("s", Transcribe(7, SECOND, SECOND * 19 // 10, True))
    (answer,) = present.until(Transcript)
    assert isinstance(answer, Transcript)
    assert (answer.request, answer.start) == (7, SECOND)
    assert former.of(Transcript) == []
    # The epoch is no concern of what listens: the words of an interruption begin before it.
    rig.perception.open(Fence("s", 2, 5), LISTEN, present)
    rig.feed(0.5, 0.3)
    present.until(SpeechProbability, 46)


@pytest.mark.parametrize("rate", [8_000, 16_000, 24_000])
def test_the_intake_takes_audio_when_a_window_is_whole_and_not_before(
    rig: Rig, rate: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths: list[int] = []
    append = InputTrack.append

    def noted(track: InputTrack, start: Ticks, pcm: bytes, rate: int) -> bool:
        lengths.append(len(pcm))
        return append(track, start, pcm, rate)

    monkeypatch.setattr(InputTrack, "append", noted)
    rested = threading.Semaphore(0)
    rest = rig.perception._rest

    def noted_rest(ear: _Ear) -> None:
        rest(ear)
        rested.release()

    monkeypatch.setattr(rig.perception, "_rest", noted_rest)
    events = rig.open()
    ear = rig.perception._ears["s"]
    whole = 0
    for step in range(200):
        rig.feed(0.01, rate=rate)
        # 4 ms at 8 kHz are held back, 2 ms at 24 kHz, so a window is whole at the same step in all of them.
        if ((step + 1) * 480 - {8_000: 192, 16_000: 0, 24_000: 96}[rate]) // WINDOW_TICKS > whole:
            whole += 1
            events.until(SpeechProbability, whole)
            while ear.wanted_at < (whole + 1) * WINDOW_TICKS:
                assert rested.acquire(timeout=PATIENCE)
    assert [getattr(event, "end", None) for event in events.until(SpeechProbability, whole)] == [
        (number + 1) * WINDOW_TICKS for number in range(whole)
    ]
    assert len(lengths) <= whole + 5, "one stretch a window, but for the beginning"


def test_audio_that_does_not_follow_is_taken_at_once_however_far_the_next_window_was(rig: Rig) -> None:
    events = rig.open()
    rig.feed(2.0)
    events.until(SpeechProbability, 62)
    rig.fed["s"] = 0
    rig.feed(0.04, level=0.5)
    assert events.until(SpeechProbability, 63)[-1] == SpeechProbability(0, WINDOW_TICKS, 0.5, -6.0)


def test_speech_that_is_looked_for_again_is_found_at_once(rig: Rig) -> None:
    events = rig.open()
    rig.feed(1.0)
    events.until(SpeechProbability, 31)
    rig.perception.open(Fence("s", 1, 0), DEAF, events)
    rig.feed(0.3)
    rig.perception.open(Fence("s", 1, 0), LISTEN, events)
    rig.feed(0.04, level=0.5)
    assert events.until(SpeechProbability, 32)[-1] == SpeechProbability(
        round(1.3 * SECOND), round(1.3 * SECOND) + WINDOW_TICKS, 0.5, -6.0
    )
