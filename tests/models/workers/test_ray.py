"""Workers as actors of a Ray cluster on this machine: they load, speak, die and are replaced."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from codec.mimi.errors import CheckpointTruncated
from models.workers.backoff import Backoff
from models.workers.cascade import CascadeWorkers
from models.workers.engine import WorkerEngine
from models.workers.errors import WorkerLost
from models.workers.supervisor import Watch
from sessions.core.config import SessionConfig
from sessions.core.effects import GrantCredit, Transcribe
from sessions.core.events import Transcript
from sessions.core.fence import Fence
from tests.models.workers import puppet, puppet_cascade
from tests.models.workers.puppet import HOP, RATE, voice
from tests.models.workers.puppet_cascade import PIECE
from tests.models.workers.test_cascade import (
    STRETCH,
    A,
    ask,
    begun,
    is_audio,
    is_done,
    is_words,
    kill_speaker,
    living,
    talk,
    voices,
)
from tests.models.workers.test_process import Ear, is_failure, is_frame, until_there_is_room

ray = pytest.importorskip("ray")

from models.workers.ray import NAMESPACE, RayLaunch  # noqa: E402 - only where Ray is installed

SOON = Watch(backoff=Backoff(first=0.01, longest=0.01), loading=120)
LATER = Watch(backoff=Backoff(first=1000.0, longest=1000.0), loading=120)


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """A cluster of one node that has the tests' own modules."""
    environment = {"env_vars": {"PYTHONPATH": os.getcwd()}}
    ray.init(
        address="local",
        num_cpus=4,
        namespace=NAMESPACE,
        runtime_env=environment,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=100_000_000,
    )
    yield
    ray.shutdown()


def test_frames_come_from_an_actor_and_it_ends_with_the_engine() -> None:
    told: list[str] = []
    engine = WorkerEngine(RayLaunch(puppet.build), watch=SOON, progress=lambda stage, _: told.append(stage))
    assert told[-1] == "painting its face"
    pid = engine.vitals.pid
    assert pid not in (None, os.getpid())
    ear = Ear()
    engine.open(Fence("a", 1, 0), SessionConfig(), ear)
    engine.append("a", 0, bytes(2 * 3 * HOP), RATE)
    ear.until(is_frame, 3)
    assert {int(np.frombuffer(pcm or b"", "<i2")[0]) for _, pcm in ear.told} == {voice(pid or 0)}
    engine.shutdown()
    gone = threading.Event()
    for _ in range(500):
        if not os.path.exists(f"/proc/{pid}"):
            break
        gone.wait(0.02)
    assert not os.path.exists(f"/proc/{pid}")


def test_an_actor_that_is_killed_in_mid_utterance_ends_its_sessions_by_name_and_is_replaced() -> None:
    engine = WorkerEngine(RayLaunch(puppet.build), watch=SOON)
    try:
        killed = engine.vitals.pid
        assert killed is not None
        ear, heir = Ear(), Ear()
        engine.open(Fence("a", 1, 0), SessionConfig(), ear)
        engine.append("a", 0, bytes(2 * HOP), RATE)
        ear.until(is_frame)
        os.kill(killed, signal.SIGKILL)
        ear.until(is_failure)
        assert ear.failures == ["worker_lost"]
        heard = len(ear.told)
        until_there_is_room(engine)
        engine.open(Fence("b", 1, 0), SessionConfig(), heir)
        engine.append("b", 0, bytes(2 * HOP), RATE)
        heir.until(is_frame)
        assert len(ear.told) == heard
        assert (engine.vitals.restarts, engine.counters["workers_lost"]) == (1, 1)
        assert engine.vitals.pid != killed
    finally:
        engine.shutdown()


def test_what_goes_wrong_while_loading_arrives_as_the_same_error() -> None:
    with pytest.raises(CheckpointTruncated, match="is cut off"):
        WorkerEngine(RayLaunch(puppet.truncated), watch=SOON)
    with pytest.raises(WorkerLost):
        WorkerEngine(RayLaunch(puppet.dies), watch=SOON)


def test_a_session_of_a_cascade_outlives_its_actor_with_its_words() -> None:
    workers = CascadeWorkers([RayLaunch(puppet_cascade.build)] * 2, watch=LATER)
    try:
        mouth, ear = begun(workers)
        ask(workers, "r1")
        mouth.until(is_audio)
        talk(workers, 0, 3)
        killed = kill_speaker(workers, mouth)
        mouth.until(is_failure)
        assert mouth.failures == ["worker_lost"]
        workers.perception.transcribe("sess_a", Transcribe(7, 0, 3 * STRETCH))
        ask(workers, "r2")
        workers.engine.grant(GrantCredit(A, "r2", 10 * PIECE))
        mouth.until(is_done)
        ear.until(is_words)
        (other,) = living(workers)
        assert [event.text for event, _ in ear.told if isinstance(event, Transcript)] == [f"{other} {3 * STRETCH}"]
        assert voices(mouth) == [voice(killed), voice(other), voice(other)]
    finally:
        workers.shutdown()
