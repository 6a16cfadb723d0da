"""A model in slots behind the engine port: places on the track, fences, failures, the worker."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

from models.slots.duplex import DuplexEngine, DuplexOptions
from models.slots.engine import SlotOptions
from models.slots.model import StepInput, StepOutput
from models.slots.origin import session_seed
from models.slots.speech import SpeechGate
from sessions.core.config import SessionConfig
from sessions.core.effects import StartResponse
from sessions.core.events import DuplexFrame, EngineFailed, EngineStage, Event
from sessions.core.fence import Fence
from sessions.core.timeline import from_ms
from sessions.ports import Busy, Rewinds
from tests.models.slots.recorder import RecorderModel

FRAME = from_ms(80)
RATE = 24_000
HOP = 1920
CONFIG = SessionConfig()


class Words:
    """Says the frame that the model stood at."""

    def feed(self, token: int) -> str:
        return f" {token}"


class Stage:
    """An engine that is ticked by hand, and what its sessions were told."""

    def __init__(self, batch: int = 2, *, longest: float | None = None, warning: float = 0.16, **slots: object) -> None:
        self.model = RecorderModel(batch, hop=HOP, sample_rate=RATE)
        options = DuplexOptions(slots=SlotOptions(**slots), longest=longest, warning=warning)  # type: ignore[arg-type]
        self.engine = DuplexEngine(self.model, Words, options, worker=False)
        self.events: dict[str, list[tuple[Event, bytes | None]]] = {}

    def open(self, session: str) -> Fence:
        fence = Fence(session, 1, 0)
        told = self.events.setdefault(session, [])
        self.engine.open(fence, CONFIG, lambda event, pcm=None: told.append((event, pcm)))
        return fence

    def speak(self, session: str, start: int, samples: int, level: int = 1000, rate: int = RATE) -> None:
        self.engine.append(session, start, np.full(samples, level, "<i2").tobytes(), rate)

    def frames(self, session: str) -> list[DuplexFrame]:
        return [event for event, _ in self.events[session] if isinstance(event, DuplexFrame)]

    def failures(self, session: str) -> list[EngineFailed]:
        return [event for event, _ in self.events[session] if isinstance(event, EngineFailed)]

    def minute(self, session: str, frames: int, start: int = 0) -> None:
        """So many frames of the user, a tick after each."""
        for n in range(start, start + frames):
            self.speak(session, n * FRAME, HOP, level=100 * (n + 1))
            self.engine.tick()


def test_every_frame_of_the_user_is_answered_at_its_place() -> None:
    stage = Stage()
    stage.open("a")
    stage.speak("a", 480, 1000)
    stage.engine.tick()
    assert stage.frames("a") == []
    stage.speak("a", 480 + 2000, HOP * 2)
    stage.engine.tick()
    spans = [(frame.start, frame.end) for frame in stage.frames("a")]
    assert spans == [(480, 480 + FRAME), (480 + FRAME, 480 + 2 * FRAME)]
    assert all(len(pcm or b"") == 2 * HOP for _, pcm in stage.events["a"])
    assert [frame.text for frame in stage.frames("a")] == [" 0", " 1"]
    assert all(frame.speaking for frame in stage.frames("a"))


def test_audio_comes_out_at_full_scale_as_it_went_in() -> None:
    stage = Stage()
    stage.open("a")
    stage.speak("a", 0, HOP, level=-32768)
    stage.engine.tick()
    pcm = np.frombuffer(stage.events["a"][0][1] or b"", "<i2")
    assert set(pcm.tolist()) == {-32767}


@pytest.mark.parametrize("rate", [8000, 16_000, 48_000])
def test_other_rates_are_brought_to_the_models_and_stay_in_time(rate: int) -> None:
    stage = Stage()
    stage.open("a")
    tick = 48_000 // rate
    for n in range(100):
        stage.speak("a", n * 960, 960 // tick, rate=rate)
        stage.engine.tick()
    # Two seconds are 25 frames; the resampler holds back a few milliseconds.
    assert len(stage.frames("a")) in (24, 25)
    heard = [value for _, value in stage.model.history[0]]
    assert heard[5:] == [round(1000 / 32768 * 1000)] * len(heard[5:])


def test_a_change_of_rate_loses_no_time() -> None:
    stage = Stage()
    stage.open("a")
    at = 0
    for rate in (8000, 48_000, 24_000):
        for _ in range(50):
            stage.speak("a", at, 960 // (48_000 // rate), rate=rate)
            at += 960
    while stage.model.steps == [] or stage.model.steps[-1]:
        before = len(stage.model.steps)
        stage.engine.tick()
        if len(stage.model.steps) == before:
            break
    assert len(stage.frames("a")) in (36, 37)


def test_a_gap_is_silence_and_an_overlap_is_heard_once() -> None:
    stage = Stage(catch_up=9)
    stage.open("a")
    stage.speak("a", 0, HOP)
    stage.speak("a", 3 * FRAME, HOP)
    stage.speak("a", 3 * FRAME + 960, HOP)
    stage.speak("a", 4 * FRAME + 960, HOP - 480)
    stage.engine.tick()
    loud = round(1000 / 32768 * 1000)
    assert [value for _, value in stage.model.history[0]] == [loud, 0, 0, loud, loud]
    assert stage.engine.counters["input_gap_ticks"] == 2 * FRAME


def test_a_frame_that_came_too_late_to_be_heard_is_a_hole_in_what_is_said() -> None:
    stage = Stage(waiting=2)
    stage.open("a")
    stage.minute("a", 2)
    stage.speak("a", 2 * FRAME, 4 * HOP)
    stage.engine.tick()
    frames = stage.frames("a")
    assert [frame.start // FRAME for frame in frames] == [0, 1, 2, 3, 4, 5]
    assert [bool(frame.text) for frame in frames] == [True, True, False, False, True, True]
    assert all(frame.speaking for frame in frames)
    assert stage.engine.counters["frames_lost"] == 2


def test_half_a_sample_is_refused() -> None:
    stage = Stage()
    stage.open("a")
    with pytest.raises(ValueError, match="even number"):
        stage.engine.append("a", 0, b"\0\0\0", RATE)


def test_a_full_engine_is_busy_at_once_and_free_again_with_the_next_tick() -> None:
    stage = Stage(batch=1)
    stage.open("a")
    with pytest.raises(Busy) as refused:
        stage.open("b")
    assert refused.value.retry_after > 0
    assert stage.engine.counters["sessions_refused"] == 1
    stage.engine.close("a")
    stage.open("b")
    stage.minute("b", 2)
    assert [frame.start for frame in stage.frames("b")] == [0, FRAME]
    assert stage.model.history[0] == [("heard", 3), ("heard", 6)]
    assert stage.engine.active == 1


def test_frames_carry_the_fence_under_which_they_were_made() -> None:
    stage = Stage()
    old = stage.open("a")
    stage.minute("a", 1)
    stage.speak("a", FRAME, HOP)
    stage.engine.advance(new := Fence("a", 1, 1))
    stage.engine.tick()
    assert [frame.fence for frame in stage.frames("a")] == [old, new]
    stage.engine.advance(old)
    assert stage.engine.counters["requests_stale"] == 1
    # An advance in the middle of a step: what the step makes was begun under the old fence.
    stage.model.during = lambda: stage.engine.advance(Fence("a", 1, 2))
    stage.minute("a", 1, 2)
    stage.model.during = lambda: None
    stage.minute("a", 1, 3)
    assert [frame.fence.epoch for frame in stage.frames("a")] == [0, 1, 1, 2]


def test_a_cut_takes_the_model_back_to_what_was_heard() -> None:
    stage = Stage(policy="rewind", hush=1, catch_up=9)
    stage.open("a")
    stage.minute("a", 4)
    assert isinstance(stage.engine, Rewinds)
    stage.engine.rewind(Fence("a", 1, 1), 2 * FRAME + 100)
    stage.minute("a", 2, 4)
    assert [what for what, _ in stage.model.history[0]] == [
        *["heard"] * 2,
        *["replayed, hushed"] * 2,
        "heard, hushed",
        "heard",
    ]
    assert [frame.speaking for frame in stage.frames("a")] == [True] * 4 + [False, True]
    assert [frame.text for frame in stage.frames("a")][4:] == ["", " 5"]
    assert stage.engine.capabilities.interruption == "rewind"


def test_numbers_that_are_not_finite_end_the_session_and_no_other() -> None:
    stage = Stage()
    stage.open("ill")
    stage.open("well")
    stage.speak("ill", 0, HOP, level=16_384)
    stage.speak("well", 0, HOP)
    stage.engine.tick()
    (failed,) = stage.failures("ill")
    assert (failed.response, failed.code) == ("", "not_finite")
    assert len(stage.frames("well")) == 1
    stage.minute("well", 1, 1)
    assert len(stage.frames("well")) == 2
    stage.open("heir")
    stage.minute("heir", 1)
    assert stage.failures("heir") == []


def test_a_failure_of_the_model_ends_its_sessions_with_a_reason_and_later_ones_work() -> None:
    stage = Stage()
    stage.open("a")
    stage.open("b")
    step: Callable[[StepInput], StepOutput] = stage.model.step

    def fail(given: StepInput) -> StepOutput:
        raise RuntimeError("the device is gone")

    stage.model.step = fail  # type: ignore[method-assign]
    stage.minute("a", 1)
    assert [failed.code for name in "ab" for failed in stage.failures(name)] == ["engine_failed"] * 2
    assert stage.engine.active == 0
    stage.model.step = step  # type: ignore[method-assign, assignment]
    stage.open("c")
    stage.minute("c", 2)
    assert len(stage.frames("c")) == 2
    assert stage.engine.counters["worker_faults"] == 1


def test_a_session_as_long_as_the_model_holds_is_ended_by_its_name() -> None:
    stage = Stage(longest=0.4)
    stage.open("a")
    assert stage.engine.capabilities.bounded == 5 * FRAME
    stage.minute("a", 2)
    assert [event for event, _ in stage.events["a"] if isinstance(event, EngineStage)] == []
    stage.minute("a", 4, 2)
    # Warned of once, 160 ms before.
    warnings = [place for place, (event, _) in enumerate(stage.events["a"]) if isinstance(event, EngineStage)]
    assert warnings == [3]
    assert len(stage.frames("a")) == 5
    assert [failed.code for failed in stage.failures("a")] == ["session_too_long"]
    assert stage.engine.active == 0


@pytest.mark.wide
@pytest.mark.parametrize("longest", [None, 3 * 3600.0], ids=["a window slides", "it ends with a warning"])
def test_three_hours_of_ticks_end_as_the_model_declares_and_nothing_heaps_up(longest: float | None) -> None:
    ticks = 135_000
    stage = Stage(batch=1, longest=longest, warning=60, policy="rewind")
    frames: list[int] = []
    others: list[tuple[int, Event]] = []

    def told(event: Event, pcm: bytes | None = None) -> None:
        if isinstance(event, DuplexFrame):
            frames.append(event.start)
        else:
            others.append((len(frames), event))

    stage.engine.open(Fence("a", 1, 0), CONFIG, told)
    pcm = np.full(HOP, 1000, "<i2").tobytes()
    for number in range(ticks + 1):
        stage.engine.append("a", number * FRAME, pcm, RATE)
        stage.engine.tick()
        stage.model.history[0].clear()
        stage.model.steps.clear()
    assert frames[:ticks] == [number * FRAME for number in range(ticks)]
    (seat,) = stage.engine._slots._seats.values() or (None,)
    if longest is None:
        assert (len(frames), others) == (ticks + 1, [])
        assert seat is not None
        assert (len(seat.waiting), len(seat.heard)) == (0, stage.model.margin)
        return
    assert len(frames) == ticks
    (warned, warning), (ended, end) = others
    assert isinstance(warning, EngineStage)
    assert isinstance(end, EngineFailed)
    assert (warning.stage, end.code, ended) == ("ends_soon", "session_too_long", ticks)
    assert (ticks - warned) * 0.08 == pytest.approx(60, abs=0.1)
    assert (seat, stage.engine.active) == (None, 0)


def test_it_owns_its_turns() -> None:
    stage = Stage()
    fence = stage.open("a")
    order = StartResponse(fence, "resp", (), "", "audio", "default", 1.0, (), "auto", None, 0.8, from_ms(5000))
    stage.engine.start(order)
    assert [failed.code for failed in stage.failures("a")] == ["engine_owns_turns"]
    assert (stage.engine.capabilities.turns, stage.engine.capabilities.listens) == ("engine", "audio")


def test_what_belongs_to_no_session_is_counted() -> None:
    stage = Stage()
    stage.speak("nobody", 0, HOP)
    stage.engine.advance(Fence("nobody", 1, 1))
    stage.engine.close("nobody")
    assert stage.engine.counters["requests_unknown"] == 2


def test_a_session_opened_again_keeps_its_slot() -> None:
    stage = Stage()
    stage.open("a")
    stage.minute("a", 1)
    stage.engine.open(Fence("a", 2, 0), CONFIG, lambda event, pcm=None: stage.events["a"].append((event, pcm)))
    stage.minute("a", 1, 1)
    assert [frame.fence.incarnation for frame in stage.frames("a")] == [1, 2]
    assert stage.engine.active == 1


def test_a_former_owner_who_wakes_up_does_not_take_the_voice_with_it() -> None:
    stage = Stage()
    stage.engine.open(Fence("a", 2, 0), CONFIG, lambda event, pcm=None: stage.events["a"].append((event, pcm)))
    stage.events["a"], former = [], []
    stage.engine.open(Fence("a", 1, 5), CONFIG, lambda event, pcm=None: former.append(event))
    stage.minute("a", 1)
    assert [frame.fence.incarnation for frame in stage.frames("a")] == [2]
    assert former == []
    assert stage.engine.counters["requests_stale"] == 1


def test_seeds_follow_the_session_and_the_engine() -> None:
    assert session_seed(0, "a") == session_seed(0, "a")
    seeds = {session_seed(engine, name) for engine in range(20) for name in "abcdefgh"}
    assert len(seeds) == 160
    assert all(0 <= seed < 2**31 for seed in seeds)


# --- the worker -------------------------------------------------------------------------------------------------------


class JumpingClock:
    """A clock that, once started, is there at once when somebody waits, until a limit; then it stands still."""

    def __init__(self, limit: float) -> None:
        self.time = 0.0
        self.limit = limit
        self.started = threading.Event()
        self.reached = threading.Event()

    def now(self) -> float:
        return self.time

    def wait(self, until: float, wake: threading.Event) -> None:
        self.started.wait()
        if until > self.limit:
            self.reached.set()
            wake.wait()
            return
        self.time = max(self.time, until)


def test_the_worker_ticks_by_its_clock_and_ends() -> None:
    clock = JumpingClock(limit=10.0)
    model = RecorderModel(1, hop=HOP, sample_rate=RATE)
    engine = DuplexEngine(model, Words, clock=clock)
    frames: list[Event] = []
    done = threading.Event()

    def told(event: Event, pcm: bytes | None = None) -> None:
        frames.append(event)
        if len(frames) == 3:
            done.set()

    engine.open(Fence("a", 1, 0), CONFIG, told)
    engine.append("a", 0, bytes(2 * HOP * 3), RATE)
    clock.started.set()
    assert done.wait(20)
    assert clock.reached.wait(20)
    # 10 s of ticks, the first at 0.
    assert engine.counters["ticks"] == 126
    engine.shutdown()
    engine.shutdown()
    assert engine.active == 0


def test_a_tick_that_ends_after_the_next_was_due_is_counted() -> None:
    clock = JumpingClock(limit=1.0)
    model = RecorderModel(1, hop=HOP, sample_rate=RATE)
    slow = 2

    def delay() -> None:
        nonlocal slow
        if slow:
            slow -= 1
            clock.time += 0.1

    model.during = delay
    engine = DuplexEngine(model, Words, clock=clock)
    engine.open(Fence("a", 1, 0), CONFIG, lambda event, pcm=None: None)
    engine.append("a", 0, bytes(2 * HOP * 6), RATE)
    clock.started.set()
    assert clock.reached.wait(20)
    assert engine.counters["ticks_late"] == 2
    ticked = [engine.last_tick]
    engine.close("a")
    ticked.append(engine.last_tick)
    assert [tick is None for tick in ticked] == [False, True]
    engine.shutdown()


def test_an_idle_worker_does_not_tick() -> None:
    clock = JumpingClock(limit=1.0)
    clock.started.set()
    engine = DuplexEngine(RecorderModel(1, hop=HOP, sample_rate=RATE), Words, clock=clock)
    engine.shutdown()
    assert "ticks" not in engine.counters


# --- speech or silence ------------------------------------------------------------------------------------------------


def test_short_quiet_belongs_to_speech_and_long_quiet_does_not() -> None:
    gate = SpeechGate(hangover=2)
    loud, quiet = np.full(HOP, 0.1, np.float32), np.zeros(HOP, np.float32)
    heard = [gate.feed(pcm, word=False) for pcm in (quiet, loud, quiet, loud, quiet, quiet, quiet)]
    assert heard == [False, True, True, True, True, False, False]
    assert gate.feed(quiet, word=True)
    gate.close()
    assert not gate.feed(quiet, word=False)
