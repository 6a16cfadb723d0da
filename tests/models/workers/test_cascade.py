"""Sessions of a cascade outlive its workers: real processes, killed in the middle of what they do."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from models.workers.backoff import Backoff
from models.workers.cascade import HEARD_MOST, CascadeWorkers
from models.workers.cascade_host import Cascade, CascadeHost
from models.workers.errors import WorkerChanged
from models.workers.link import Launch
from models.workers.messages import Advance, Call, Note, Said, Stop
from models.workers.process import ProcessLaunch
from models.workers.supervisor import Watch
from sessions.core.config import SessionConfig
from sessions.core.effects import AssessTurn, GrantCredit, OpenPerception, StartResponse, Transcribe
from sessions.core.events import EngineAudio, EngineDone, Event, SpeechProbability, Transcript
from sessions.core.fence import Fence
from sessions.core.timeline import from_ms
from sessions.ports import Busy, Retains
from tests.models.workers import puppet, puppet_cascade
from tests.models.workers.puppet import voice
from tests.models.workers.puppet_cascade import PIECE, RATE, SLOTS
from tests.models.workers.test_process import PATIENCE, Ear, is_failure

SOON = Watch(backoff=Backoff(first=0.01, longest=0.01))
LATER = Watch(backoff=Backoff(first=1000.0, longest=1000.0))
"""A worker that died stays away for as long as a test lasts."""
A = Fence("sess_a", 1, 0)
STRETCH = from_ms(100)


@contextlib.contextmanager
def cascade(number: int = 2, watch: Watch = LATER, launches: Sequence[Launch] = ()) -> Iterator[CascadeWorkers]:
    workers = CascadeWorkers(launches or [ProcessLaunch(puppet_cascade.build)] * number, watch=watch)
    try:
        yield workers
    finally:
        workers.shutdown()


def begun(workers: CascadeWorkers, fence: Fence = A) -> tuple[Ear, Ear]:
    """An open session: what its engine says, and what its perception does."""
    mouth, ear = Ear(), Ear()
    workers.engine.open(fence, SessionConfig(), mouth)
    workers.perception.open(fence, OpenPerception(True, "en"), ear)
    return mouth, ear


def ask(workers: CascadeWorkers, response: str, fence: Fence = A, instructions: str = "") -> None:
    credit = 10 * PIECE
    request = StartResponse(fence, response, (), instructions, "audio", "default", 1.0, (), "auto", None, 0.8, credit)
    workers.engine.start(request)


def talk(workers: CascadeWorkers, first: int, last: int, session: str = "sess_a") -> None:
    for number in range(first, last):
        workers.perception.feed(session, number * STRETCH, bytes(4800), RATE)


def voices(mouth: Ear) -> list[int]:
    return [int(np.frombuffer(pcm, "<i2")[0]) for event, pcm in mouth.told if pcm and isinstance(event, EngineAudio)]


def is_audio(event: Event) -> bool:
    return isinstance(event, EngineAudio)


def is_done(event: Event) -> bool:
    return isinstance(event, EngineDone)


def is_words(event: Event) -> bool:
    return isinstance(event, Transcript)


def is_probability(event: Event) -> bool:
    return isinstance(event, SpeechProbability)


def living(workers: CascadeWorkers) -> list[int]:
    return [vitals.pid for vitals in workers.vitals if vitals.state == "ready" and vitals.pid is not None]


def kill_speaker(workers: CascadeWorkers, mouth: Ear) -> int:
    """Kill the process whose voice was heard; its number."""
    (pid,) = [pid for pid in living(workers) if voice(pid) == voices(mouth)[0]]
    os.kill(pid, signal.SIGKILL)
    return pid


def until(true: Callable[[], bool]) -> None:
    wait = threading.Event()
    for _ in range(round(PATIENCE / 0.02)):
        if true():
            return
        wait.wait(0.02)
    raise AssertionError("it did not come about")


def test_both_ports_answer_from_another_process_and_nothing_is_left_behind() -> None:
    with cascade(1) as workers:
        mouth, ear = begun(workers)
        talk(workers, 0, 3)
        workers.perception.transcribe("sess_a", Transcribe(7, 0, 3 * STRETCH))
        workers.perception.assess("sess_a", AssessTurn(8, 0, 3 * STRETCH))
        ear.until(is_words)
        ask(workers, "r1")
        workers.engine.grant(GrantCredit(A, "r1", 10 * PIECE))
        mouth.until(is_done)
        (pid,) = living(workers)
        assert voices(mouth) == [voice(pid)] * 2
        assert [event.text for event, _ in ear.told if isinstance(event, Transcript)] == [f"{pid} {3 * STRETCH}"]
        workers.engine.close("sess_a")
        assert workers.active == 1
        workers.perception.close("sess_a")
        assert workers.active == 0
    until(lambda: not os.path.exists(f"/proc/{pid}"))


def test_a_response_in_mid_utterance_ends_by_name_and_the_session_goes_on_at_another_worker() -> None:
    with cascade(2) as workers:
        mouth, _ = begun(workers)
        ask(workers, "r1")
        mouth.until(is_audio)
        killed = kill_speaker(workers, mouth)
        mouth.until(is_failure)
        assert mouth.failures == ["worker_lost"]
        ask(workers, "r2")
        workers.engine.grant(GrantCredit(A, "r2", 10 * PIECE))
        mouth.until(is_done)
        assert voices(mouth)[0] == voice(killed)
        (other,) = living(workers)
        assert voices(mouth)[1:] == [voice(other)] * 2
        assert (workers.counters["responses_lost"], workers.counters["sessions_moved"]) == (1, 1)


def test_a_response_of_which_nothing_was_said_is_begun_again_and_nobody_notices() -> None:
    with cascade(2) as workers:
        mouth, _ = begun(workers)
        ask(workers, "r1")
        mouth.until(is_audio)
        workers.engine.cancel(A, "r1")
        ask(workers, "r2", instructions="wait")
        kill_speaker(workers, mouth)
        until(lambda: workers.counters["responses_begun_again"] == 1)
        workers.engine.grant(GrantCredit(A, "r2", 10 * PIECE))
        mouth.until(is_done)
        (other,) = living(workers)
        assert voices(mouth)[1:] == [voice(other)]
        assert mouth.failures == []


def test_words_are_not_lost_with_the_worker_that_heard_them() -> None:
    with cascade(2) as workers:
        mouth, ear = begun(workers)
        ask(workers, "r1")
        mouth.until(is_audio)
        talk(workers, 0, 5)
        ear.until(is_probability, 5)
        workers.perception.forget("sess_a", 2 * STRETCH)
        workers.perception.transcribe("sess_a", Transcribe(7, 2 * STRETCH, 5 * STRETCH, final=False))
        kill_speaker(workers, mouth)
        mouth.until(is_failure)
        talk(workers, 5, 8)
        workers.perception.transcribe("sess_a", Transcribe(8, 2 * STRETCH, 8 * STRETCH))
        ear.until(is_words)
        (other,) = living(workers)
        assert [event.text for event, _ in ear.told if isinstance(event, Transcript)] == [f"{other} {6 * STRETCH}"]
        # Nobody is told twice how probable speech was, and nothing is missing.
        spans = [(event.start, event.end) for event, _ in ear.told if isinstance(event, SpeechProbability)]
        assert spans == [(number * STRETCH, (number + 1) * STRETCH) for number in range(8)]


def test_a_session_waits_for_the_only_worker_to_come_back() -> None:
    with cascade(1, SOON) as workers:
        mouth, ear = begun(workers)
        ask(workers, "r1")
        mouth.until(is_audio)
        killed = kill_speaker(workers, mouth)
        mouth.until(is_failure)
        talk(workers, 0, 3)
        workers.perception.transcribe("sess_a", Transcribe(7, 0, 3 * STRETCH))
        ask(workers, "r2")
        workers.engine.grant(GrantCredit(A, "r2", 10 * PIECE))
        mouth.until(is_done)
        ear.until(is_words)
        (other,) = living(workers)
        assert other != killed
        assert voices(mouth)[1:] == [voice(other)] * 2
        assert [event.text for event, _ in ear.told if isinstance(event, Transcript)] == [f"{other} {3 * STRETCH}"]


def test_sessions_are_spread_and_one_too_many_is_refused_until_one_ends() -> None:
    with cascade(2) as workers:
        mouths = [begun(workers, Fence(f"sess_{number}", 1, 0))[0] for number in range(2 * SLOTS)]
        for number, mouth in enumerate(mouths):
            ask(workers, "r", Fence(f"sess_{number}", 1, 0))
            mouth.until(is_audio)
        spread = [voices(mouth)[0] for mouth in mouths]
        assert {spread.count(one) for one in spread} == {SLOTS}
        with pytest.raises(Busy):
            begun(workers, Fence("sess_late", 1, 0))
        workers.engine.close("sess_0")
        workers.perception.close("sess_0")
        begun(workers, Fence("sess_late", 1, 0))


def test_a_session_for_which_the_other_workers_have_no_room_waits_for_some() -> None:
    with cascade(2) as workers:
        fences = [Fence(f"sess_{number}", 1, 0) for number in range(SLOTS + 1)]
        mouths = [begun(workers, fence)[0] for fence in fences]
        for fence, mouth in zip(fences, mouths, strict=True):
            ask(workers, "r", fence)
            mouth.until(is_audio)
        alone = min(
            range(len(mouths)), key=lambda one: [voices(mouth)[0] for mouth in mouths].count(voices(mouths[one])[0])
        )
        crowd = next(number for number in range(len(mouths)) if number != alone)
        kill_speaker(workers, mouths[crowd])
        mouths[crowd].until(is_failure)
        # Of the two that lost their worker one finds room; the other does when the first session there ends.
        until(lambda: workers.counters["sessions_moved"] == SLOTS - 1)
        workers.engine.close(fences[alone].session)
        workers.perception.close(fences[alone].session)
        assert workers.counters["sessions_moved"] == SLOTS


def test_an_interruption_ends_what_was_to_be_begun_again_and_an_old_owner_is_refused() -> None:
    with cascade(1) as workers:
        mouth, ear = begun(workers)
        ask(workers, "r1", instructions="wait")
        workers.engine.advance(Fence("sess_a", 1, 1))
        ask(workers, "r2")  # under the epoch before
        workers.engine.open(Fence("sess_a", 2, 1), SessionConfig(), mouth)
        workers.perception.open(Fence("sess_a", 2, 1), OpenPerception(True, "en"), ear)
        workers.engine.advance(Fence("sess_a", 1, 7))
        workers.perception.open(Fence("sess_a", 1, 7), OpenPerception(True, "en"), Ear())
        assert workers.counters["requests_stale"] == 3
        talk(workers, 0, 1)
        ear.until(is_probability)
        assert mouth.told == []


def test_no_more_audio_is_kept_than_could_be_asked_about() -> None:
    with cascade(1) as workers:
        begun(workers)
        talk(workers, 0, HEARD_MOST // STRETCH + 50)
        kept = workers._sessions["sess_a"].ear
        assert kept is not None
        assert kept.held == HEARD_MOST == len(kept.heard) * STRETCH


def test_draining_lets_a_session_finish_and_ends_the_rest_by_name() -> None:
    with cascade(1) as workers:
        mouth, _ = begun(workers)
        other, _ = begun(workers, Fence("sess_b", 1, 0))
        ended: list[int] = []
        draining = threading.Thread(target=lambda: ended.append(workers.drain(0.5)))
        draining.start()
        until(lambda: workers._draining)
        with pytest.raises(Busy):
            begun(workers, Fence("sess_c", 1, 0))
        workers.engine.close("sess_a")
        workers.perception.close("sess_a")
        draining.join(PATIENCE)
        assert (ended, mouth.failures, other.failures) == ([1], [], ["worker_drained"])


def test_an_engine_that_holds_more_than_the_history_is_no_cascade() -> None:
    with pytest.raises(WorkerChanged, match="more of a session than its history"):
        CascadeWorkers([ProcessLaunch(puppet.build)], watch=SOON)


# --- the other end, in this process -----------------------------------------------------------------------------------


def hosted() -> tuple[CascadeHost, list[Note]]:
    return Cascade(puppet_cascade.Mouth(), puppet_cascade.Ear(), SLOTS, lambda: None).host(), []


def test_what_may_not_be_called_is_not() -> None:
    host, said = hosted()
    for command in (
        Call("engine", "__init__", ()),
        Call("perception", "capabilities", ()),
        Call("engine", "open", ("sess_a",)),
        Advance(A),
    ):
        host.receive(command, said.append)
    assert (said, host.beat().counters["calls_unknown"]) == ([], 4)


def test_a_call_that_fails_harms_no_other_and_an_engine_without_room_says_so() -> None:
    host, said = hosted()
    for number in range(SLOTS + 1):
        host.receive(Call("engine", "open", (Fence(f"sess_{number}", 1, 0), SessionConfig()), number), said.append)
    (refused,) = said
    assert isinstance(refused, Said)
    assert is_failure(refused.event)
    assert refused.placing == SLOTS
    host.receive(Call("engine", "advance", (Fence("sess_broken", 1, 1),)), said.append)
    assert host.beat().counters["calls_failed"] == 1
    host.receive(Stop(), said.append)
    host.receive(Call("engine", "open", (A, SessionConfig()), 9), said.append)
    assert len(said) == 1


def test_what_is_kept_of_a_tenant_is_forgotten_by_every_worker() -> None:
    mouth = puppet_cascade.Mouth()
    Cascade(mouth, puppet_cascade.Ear(), SLOTS, lambda: None).host().receive(
        Call("engine", "forget", ("acme",)), lambda note: None
    )
    assert mouth.forgotten == ["acme"]
    with cascade(2) as workers:
        assert isinstance(workers.engine, Retains)
        workers.engine.forget("acme")
        mouth_here, _ = begun(workers)
        ask(workers, "r1")
        mouth_here.until(is_audio)
        assert workers.counters["calls_failed"] == 0
