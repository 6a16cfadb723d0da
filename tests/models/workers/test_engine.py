"""The port over a worker: frames there and back, and what becomes of sessions when the worker is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from models.envelope import Versions
from models.slots.origin import Origin, session_seed
from models.workers.backoff import Backoff
from models.workers.engine import WorkerEngine
from models.workers.errors import WorkerChanged
from models.workers.messages import Frame, Loading, Told
from models.workers.pool import WorkerPool
from models.workers.supervisor import Watch
from sessions.core.config import SessionConfig
from sessions.core.effects import StartResponse
from sessions.core.events import DuplexFrame, EngineFailed, EngineStage, Event
from sessions.core.fence import Fence
from sessions.core.timeline import from_ms
from sessions.ports import Busy, Rewinds
from tests.models.workers.local import LocalLaunch, LocalLink
from tests.models.workers.puppet import CAPABILITIES, FRAME, HOP, RATE, Puppet

CONFIG = SessionConfig(tenant="t")
SOON = Watch(backoff=Backoff(first=0.01, longest=0.01))
NEVER = Watch(backoff=Backoff(first=900, longest=900))


class Stage:
    """An engine over local links, and what its sessions were told."""

    def __init__(self, watch: Watch = NEVER, launch: LocalLaunch | None = None) -> None:
        self.launch = launch or LocalLaunch()
        self.engine = WorkerEngine(self.launch, watch=watch)
        self.events: dict[str, list[tuple[Event, bytes | None]]] = {}
        self.changed = threading.Condition()

    def open(self, session: str, fence: Fence | None = None) -> Fence:
        told = self.events.setdefault(session, [])
        fence = fence or Fence(session, 1, 0)
        self.engine.open(fence, CONFIG, lambda event, pcm=None: told.append((event, pcm)))
        return fence

    def speak(self, session: str, first: int, frames: int = 1, level: int = 0) -> None:
        for number in range(first, first + frames):
            self.engine.append(session, number * FRAME, np.full(HOP, level, "<i2").tobytes(), RATE)

    def frames(self, session: str) -> list[DuplexFrame]:
        return [event for event, _ in self.events[session] if isinstance(event, DuplexFrame)]

    def failures(self, session: str) -> list[EngineFailed]:
        return [event for event, _ in self.events[session] if isinstance(event, EngineFailed)]


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_audio_goes_out_in_whole_aligned_frames_and_comes_back_at_its_place(stage: Stage) -> None:
    stage.open("a")
    for n in range(20):
        stage.engine.append("a", 480 + n * 960, bytes(960), RATE)
    spans = [(frame.start, frame.end) for frame in stage.frames("a")]
    assert spans == [(480 + n * FRAME, 480 + (n + 1) * FRAME) for n in range(5)]
    assert all(len(pcm or b"") == 2 * HOP for _, pcm in stage.events["a"])
    assert stage.engine.capabilities == CAPABILITIES
    assert isinstance(stage.engine, Rewinds)


def test_another_rate_is_brought_to_the_models_before_it_leaves(stage: Stage) -> None:
    stage.open("a")
    for n in range(50):
        stage.engine.append("a", n * 960, bytes(320), 8000)
    (puppet,) = [link.puppet for link in stage.launch.links]
    assert isinstance(puppet, Puppet)
    sizes = {entry[2] for entry in puppet.log if entry[0] == "append"}
    assert sizes == {HOP}
    assert len(stage.frames("a")) in (11, 12)


def test_a_full_engine_is_busy_at_once_with_a_guess_and_takes_the_next_when_one_left(stage: Stage) -> None:
    stage.open("a")
    stage.open("b")
    with pytest.raises(Busy, match="all 2 slots") as refused:
        stage.open("c")
    assert refused.value.retry_after > 1
    stage.engine.close("a")
    stage.open("c")
    stage.speak("c", 0)
    assert len(stage.frames("c")) == 1
    assert (stage.engine.active, stage.engine.room) == (2, 0)


def test_after_a_cut_nothing_of_the_old_epoch_comes_through(stage: Stage) -> None:
    stage.open("a")
    stage.speak("a", 0)
    late: list[Frame] = []
    link = stage.launch.link

    def keep(frame: Frame) -> bool:
        late.append(frame)
        return True

    link.loses = keep
    stage.speak("a", 1, 2)
    link.loses = lambda frame: False
    stage.engine.rewind(Fence("a", 1, 1), FRAME)
    for frame in late:
        link.tell(frame)
    stage.speak("a", 3)
    places = [(frame.fence.epoch, frame.start // FRAME) for frame in stage.frames("a")]
    assert places == [(0, 0), (1, 1), (1, 2), (1, 3)]
    # In the place of what was stale is silence of the new epoch.
    assert [any(pcm or b"") for _, pcm in stage.events["a"]] == [True, False, False, True]
    assert stage.engine.counters["frames_stale"] == 2
    stage.engine.advance(Fence("a", 1, 0))
    assert stage.engine.counters["requests_stale"] == 1


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda e: replace(e, shape=(1, HOP // 2)), "shape"),
        (lambda e: replace(e, tenant="other"), "tenant"),
        (lambda e: replace(e, versions=Versions(model="puppet-2")), "model"),
        (lambda e: replace(e, sequence=7), "sequence"),
    ],
)
def test_a_malformed_frame_of_the_worker_ends_the_session_and_is_not_heard(
    change: Callable[..., object], field: str, stage: Stage
) -> None:
    stage.open("a")
    stage.open("b")
    stage.launch.link.changes = lambda frame: replace(frame, envelope=change(frame.envelope))  # type: ignore[arg-type]
    stage.speak("a", 0)
    assert stage.frames("a") == []
    (failed,) = stage.failures("a")
    assert failed.code == "transfer_refused"
    assert f"session.said: {field}: " in failed.message
    stage.launch.link.changes = lambda frame: frame
    stage.speak("b", 0)
    assert len(stage.frames("b")) == 1
    assert (stage.engine.counters["frames_refused"], stage.engine.active) == (1, 1)


def test_frames_that_were_dropped_on_their_way_are_holes_in_what_is_said(stage: Stage) -> None:
    stage.open("a")
    stage.launch.link.loses = lambda frame: frame.envelope.start // FRAME in (2, 3)
    stage.speak("a", 0, 6)
    assert [frame.start // FRAME for frame in stage.frames("a")] == [0, 1, 2, 3, 4, 5]
    assert [frame.text for frame in stage.frames("a")] == [" word", " word", "", "", " word", " word"]
    assert all(frame.speaking for frame in stage.frames("a"))
    assert stage.engine.counters["frames_missing"] == 2


def test_what_the_engine_says_of_a_session_is_passed_on_and_its_end_frees_the_slot(stage: Stage) -> None:
    fence = stage.open("a")
    stage.launch.link.tell(Told(EngineStage(fence, "", "ends_soon")))
    stage.launch.link.tell(Told(EngineStage(Fence("a", 0, 0), "", "of a former owner")))
    stage.speak("a", 0, level=Puppet.FAIL)
    assert [type(event) for event, _ in stage.events["a"]] == [EngineStage, EngineFailed]
    assert stage.failures("a")[0].code == "not_finite"
    assert (stage.engine.active, stage.engine.room) == (0, 2)
    assert stage.engine.counters["requests_unknown"] == 1


def test_a_session_is_gone_on_with_under_a_newer_fence_and_not_under_an_older(stage: Stage) -> None:
    stage.open("a")
    stage.open("a", owner := Fence("a", 2, 0))
    stage.open("a", Fence("a", 1, 7))
    stage.speak("a", 0)
    assert [frame.fence for frame in stage.frames("a")] == [owner]
    assert stage.engine.active == 1


def test_it_owns_its_turns_and_knows_only_its_sessions(stage: Stage) -> None:
    fence = stage.open("a")
    order = StartResponse(fence, "resp", (), "", "audio", "default", 1.0, (), "auto", None, 0.8, from_ms(5000))
    stage.engine.start(order)
    assert [failed.code for failed in stage.failures("a")] == ["engine_owns_turns"]
    stage.speak("nobody", 0)
    stage.engine.close("nobody")
    assert stage.engine.counters["requests_unknown"] == 1


def test_half_a_sample_is_refused_and_a_gap_is_counted(stage: Stage) -> None:
    stage.open("a")
    with pytest.raises(ValueError, match="even number"):
        stage.engine.append("a", 0, b"\0\0\0", RATE)
    stage.speak("a", 0)
    stage.speak("a", 3)
    assert stage.engine.counters["input_gap_ticks"] == 2 * FRAME
    assert len(stage.frames("a")) == 4


# --- the worker is lost ----------------------------------------------------------------------------------------------


def test_a_lost_worker_ends_its_sessions_and_what_it_still_says_is_not_heard(stage: Stage) -> None:
    stage.open("a")
    stage.open("b")
    stage.speak("a", 0, 3)
    link = stage.launch.link
    last = next(note for note in reversed(link.said) if isinstance(note, Frame))
    link.die("SIGKILL")
    assert [failed.code for name in "ab" for failed in stage.failures(name)] == ["worker_lost"] * 2
    assert "SIGKILL" in stage.failures("a")[0].message
    ahead = replace(last.envelope, sequence=3, start=3 * FRAME, end=4 * FRAME)
    link._hear(replace(last, envelope=ahead))
    assert len(stage.frames("a")) == 3
    assert isinstance(stage.events["a"][-1][0], EngineFailed)
    assert stage.engine.counters["notes_stale"] == 1
    assert stage.engine.counters["sessions_lost"] == 2
    assert (stage.engine.active, stage.engine.room) == (0, 0)


def test_until_another_worker_is_ready_it_is_busy_and_says_for_how_long(stage: Stage) -> None:
    stage.launch.link.die("exit status 1")
    with pytest.raises(Busy, match="started again") as refused:
        stage.open("a")
    assert 890 < refused.value.retry_after <= 900
    vitals = stage.engine.vitals
    assert (vitals.state, vitals.pid, vitals.restarts) == ("restarting", None, 0)
    assert "exit status 1" in vitals.trouble
    stage.engine.shutdown()


class Restarts:
    """Lets a test wait until a launch has happened so many times."""

    def __init__(self, wanted: int) -> None:
        self.seen = 0
        self.done = threading.Event()
        self._wanted = wanted

    def __call__(self, link: LocalLink) -> None:
        self.seen += 1
        if self.seen == self._wanted:
            self.done.set()


def until_ready(stage: Stage, session: str) -> None:
    """Open it as soon as there is room: a link is made a moment before it is taken for ready."""
    ready = threading.Event()
    for _ in range(2000):
        try:
            stage.open(session)
        except Busy:
            ready.wait(0.01)
        else:
            return
    raise AssertionError("it was never ready")


def test_another_worker_takes_new_sessions(stage: Stage) -> None:
    restarts = Restarts(2)
    stage = Stage(SOON, LocalLaunch(restarts))
    stage.open("a")
    stage.launch.link.die("SIGSEGV")
    assert restarts.done.wait(20)
    until_ready(stage, "b")
    stage.speak("b", 0)
    stage.speak("a", 1)
    assert len(stage.frames("b")) == 1
    assert stage.frames("a") == []
    assert stage.engine.vitals.restarts == 1
    assert stage.engine.counters["workers_lost"] == 1
    assert stage.engine.counters["frames_dropped"] == 2
    stage.engine.shutdown()
    assert stage.engine.vitals.state == "stopped"


def test_a_worker_that_says_nothing_any_more_is_killed() -> None:
    restarts = Restarts(2)
    watch = Watch(backoff=Backoff(first=0.01), silence=0.05)
    stage = Stage(watch, LocalLaunch(restarts))
    stage.open("a")
    assert restarts.done.wait(20)
    assert stage.failures("a")[0].code == "worker_lost"
    assert stage.launch.links[0].ended
    assert stage.engine.counters["workers_silent"] >= 1
    stage.engine.shutdown()


def test_a_worker_that_lives_but_does_not_tick_is_killed() -> None:
    restarts = Restarts(2)
    stage = Stage(Watch(backoff=Backoff(first=0.01), silence=0.5, stuck=100), LocalLaunch(restarts))
    stage.open("a")
    stage.speak("a", 0, level=Puppet.HANG)
    stage.launch.link.beat()
    assert restarts.done.wait(20)
    assert stage.failures("a")[0].code == "worker_lost"
    stage.engine.shutdown()


def test_another_model_after_a_restart_is_not_let_in() -> None:
    restarts = Restarts(3)

    def changed(link: LocalLink) -> None:
        restarts(link)
        if restarts.seen > 1:
            link.host.ready = replace(link.host.ready, versions=Versions(model="puppet-2"))

    stage = Stage(SOON, LocalLaunch(changed))
    stage.launch.link.die("SIGSEGV")
    assert restarts.done.wait(20)
    with pytest.raises(Busy):
        stage.open("a")
    stage.engine.shutdown()
    assert "another model" in stage.engine.vitals.trouble


def test_progress_is_passed_on_and_may_say_that_nobody_wants_it() -> None:
    told: list[tuple[str, float]] = []
    WorkerEngine(
        LocalLaunch(lambda link: link.tell(Loading("half", 0.5))), progress=lambda *stage: told.append(stage)
    ).shutdown()
    assert told == [("half", 0.5)]

    class Unwanted(Exception):
        pass

    def refuse(stage: str, fraction: float) -> None:
        raise Unwanted

    launch = LocalLaunch(lambda link: setattr(link, "begin", lambda: link.tell(Loading("half", 0.5))))
    with pytest.raises(Unwanted):
        WorkerEngine(launch, progress=refuse)
    assert launch.link.ended


# --- its end ---------------------------------------------------------------------------------------------------------


def test_a_drain_takes_nobody_lets_sessions_finish_and_stops(stage: Stage) -> None:
    stage.open("a")
    done: list[int] = []
    drain = threading.Thread(target=lambda: done.append(stage.engine.drain(600)))
    drain.start()

    def open_until_refused() -> None:
        while drain.is_alive():
            stage.open("b")
            stage.engine.close("b")

    with pytest.raises(Busy, match="no more sessions"):
        open_until_refused()
    stage.speak("a", 0)
    assert len(stage.frames("a")) == 1
    stage.engine.close("a")
    drain.join(20)
    assert done == [0]
    assert stage.failures("a") == []
    assert stage.engine.vitals.state == "stopped"


def test_a_drain_ends_who_does_not_finish_in_time(stage: Stage) -> None:
    stage.open("a")
    assert stage.engine.drain(0.01) == 1
    assert [failed.code for failed in stage.failures("a")] == ["worker_drained"]
    assert stage.launch.link.ended


def test_a_shutdown_closes_its_sessions_and_kills_who_does_not_end() -> None:
    stage = Stage(Watch(stop=0.01))
    stage.launch.link.refuses_to_end = True
    stage.open("a")
    stage.engine.shutdown()
    stage.engine.shutdown()
    assert stage.launch.link.ended
    assert stage.failures("a") == []


# --- several ---------------------------------------------------------------------------------------------------------


def test_what_its_sessions_draw_from_is_what_the_worker_says() -> None:
    def drawing(link: LocalLink) -> None:
        link.host.ready = replace(link.host.ready, origin=Origin(7, "keep"))

    engine = Stage(launch=LocalLaunch(drawing)).engine
    assert engine.origin("a") == {"seed": session_seed(7, "a"), "policy": "keep"}
    assert WorkerPool([engine]).origin("a") == engine.origin("a")
    assert Stage().engine.origin("a") == {}


def test_a_pool_spreads_sessions_and_is_busy_when_all_are() -> None:
    stages = [Stage(), Stage()]
    pool = WorkerPool([stage.engine for stage in stages])
    told: list[Event] = []
    fences = [Fence(name, 1, 0) for name in "abcd"]
    for fence in fences:
        pool.open(fence, CONFIG, lambda event, pcm=None: told.append(event))
    assert [stage.engine.active for stage in stages] == [2, 2]
    with pytest.raises(Busy) as refused:
        pool.open(Fence("e", 1, 0), CONFIG, lambda event, pcm=None: None)
    assert refused.value.retry_after > 1
    pool.open(Fence("a", 2, 0), CONFIG, lambda event, pcm=None: told.append(event))
    pool.append("a", 0, bytes(2 * HOP), RATE)
    pool.rewind(Fence("a", 2, 1), 0)
    pool.advance(Fence("a", 2, 2))
    pool.append("a", FRAME, bytes(2 * HOP), RATE)
    assert [event.fence.order for event in told if isinstance(event, DuplexFrame)] == [(2, 0), (2, 2)]
    # One device is lost: its sessions end, the others' go on, and there is room for new ones.
    pool.close("b")
    stages[0].launch.link.die("SIGKILL")
    lost = {event.fence.session for event in told if isinstance(event, EngineFailed)}
    assert lost == {"a", "c"}
    pool.open(Fence("f", 1, 0), CONFIG, lambda event, pcm=None: None)
    assert (pool.active, [vitals.state for vitals in pool.vitals]) == (2, ["restarting", "ready"])
    assert pool.counters["sessions_lost"] == 2
    pool.shutdown()
    assert [vitals.state for vitals in pool.vitals] == ["stopped", "stopped"]


def test_workers_of_different_models_make_no_pool() -> None:
    def deaf(link: LocalLink) -> None:
        link.host.ready = replace(link.host.ready, capabilities=replace(CAPABILITIES, interruption="keep"))

    with pytest.raises(WorkerChanged, match="different models"):
        WorkerPool([Stage().engine, Stage(launch=LocalLaunch(deaf)).engine])
    with pytest.raises(ValueError, match="at least one"):
        WorkerPool([])
