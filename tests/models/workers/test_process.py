"""Workers in real processes: they load, speak, die and are replaced, and none is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from codec.mimi.errors import CheckpointTruncated
from models.families.moshi.errors import OutOfMemory
from models.workers.backoff import Backoff
from models.workers.engine import WorkerEngine
from models.workers.errors import WorkerError, WorkerLost
from models.workers.process import ProcessLaunch
from models.workers.serving import Build
from models.workers.supervisor import Watch
from sessions.core.config import SessionConfig
from sessions.core.events import DuplexFrame, EngineFailed, Event
from sessions.core.fence import Fence
from sessions.manager import SessionManager
from tests.models.workers import puppet
from tests.models.workers.puppet import FRAME, HOP, RATE, voice
from tests.sessions.fakes import LoudnessPerception, NotebookCarrier

ROOT = Path(__file__).resolve().parents[3]
SOON = Watch(backoff=Backoff(first=0.01, longest=0.01))
PATIENCE = 30.0


@contextlib.contextmanager
def worker(build: Build = puppet.build, watch: Watch = SOON) -> Iterator[WorkerEngine]:
    engine = WorkerEngine(ProcessLaunch(build), watch=watch)
    try:
        yield engine
    finally:
        engine.shutdown()


class Ear:
    """Keeps what a session is told; a test waits for it."""

    def __init__(self) -> None:
        self.told: list[tuple[Event, bytes | None]] = []
        self._changed = threading.Condition()

    def __call__(self, event: Event, pcm: bytes | None = None) -> None:
        with self._changed:
            self.told.append((event, pcm))
            self._changed.notify_all()

    def until(self, what: Callable[[Event], bool], times: int = 1) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: sum(what(event) for event, _ in self.told) >= times, PATIENCE)

    @property
    def failures(self) -> list[str]:
        return [event.code for event, _ in self.told if isinstance(event, EngineFailed)]


def is_frame(event: Event) -> bool:
    return isinstance(event, DuplexFrame)


def is_failure(event: Event) -> bool:
    return isinstance(event, EngineFailed)


def running(pid: int | None) -> bool:
    """Whether there is such a process that has not ended."""
    try:
        return pid is not None and "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def until_there_is_room(engine: WorkerEngine) -> None:
    wait = threading.Event()
    for _ in range(round(PATIENCE / 0.02)):
        if engine.room:
            return
        wait.wait(0.02)
    raise AssertionError("no worker came")


def test_frames_come_from_another_process_and_it_ends_with_the_engine() -> None:
    told: list[tuple[str, float]] = []
    engine = WorkerEngine(ProcessLaunch(puppet.build), progress=lambda *stage: told.append(stage))
    assert told[-1] == ("painting its face", 0.5)
    pid = engine.vitals.pid
    assert pid is not None
    ear = Ear()
    engine.open(Fence("a", 1, 0), SessionConfig(), ear)
    engine.append("a", 480, bytes(2 * 3 * HOP), RATE)
    ear.until(is_frame, 3)
    samples = {int(np.frombuffer(pcm or b"", "<i2")[0]) for _, pcm in ear.told}
    assert samples == {voice(pid)} != {voice(os.getpid())}
    assert [event.start for event, _ in ear.told if isinstance(event, DuplexFrame)] == [
        480 + n * FRAME for n in range(3)
    ]
    engine.shutdown()
    assert not running(pid)
    assert engine.vitals.state == "stopped"


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (puppet.truncated, CheckpointTruncated, "is cut off; download it again"),
        (puppet.too_large, OutOfMemory, "about 16.0 GB are needed on cuda:0"),
        (puppet.foreign, WorkerError, "KeyError: 'dim'"),
        (puppet.dies, WorkerLost, "exit status 3"),
    ],
)
def test_what_goes_wrong_while_loading_arrives_as_the_same_error(
    build: Build, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        WorkerEngine(ProcessLaunch(build))
    assert type(caught.value) is error


def test_a_worker_that_does_not_get_ready_is_given_up() -> None:
    # How far it gets in that time is the machine's affair.
    with pytest.raises(WorkerError, match="not ready after 2 s"):
        WorkerEngine(ProcessLaunch(puppet.never), watch=Watch(loading=2, stop=0.1))


def test_kill_9_in_mid_utterance_ends_the_session_by_name_with_no_stale_audio_and_the_next_one_works() -> None:
    """In whole sessions: the carrier gets nothing of the dead process after the end is told."""

    async def scenario(engine: WorkerEngine) -> None:
        manager = SessionManager(engine, LoudnessPerception())

        async def talk(carrier: NotebookCarrier, until: Callable[[], bool]) -> None:
            handle = manager.open(carrier, SessionConfig(turns=None))
            async with asyncio.timeout(PATIENCE):
                while not until():
                    handle.audio(bytes(960), RATE)
                    await asyncio.sleep(0.002)

        killed = engine.vitals.pid
        assert killed is not None
        first = NotebookCarrier()

        def kill_when_it_speaks() -> bool:
            if len(first.frames) >= 4 and running(killed):
                os.kill(killed, signal.SIGKILL)
            return first.ended is not None

        await talk(first, kill_when_it_speaks)
        assert first.ended == "worker_lost"
        count = len(first.frames)
        second = NotebookCarrier()
        await asyncio.to_thread(until_there_is_room, engine)
        await talk(second, lambda: len(second.frames) >= 4)
        heir = engine.vitals.pid
        assert heir not in (None, killed)
        assert len(first.frames) == count
        for carrier, pid in ((first, killed), (second, heir)):
            heard = np.frombuffer(b"".join(frame.pcm for _, frame in carrier.frames), "<i2")
            assert set(heard.tolist()) == {voice(pid or 0)}
        await manager.close()
        for name in ("ledger_fault", "stale_admitted", "engine_fault", "session_fault"):
            assert manager.counters[name] == 0, name

    with worker() as engine:
        asyncio.run(scenario(engine))
        assert engine.counters["workers_lost"] == 1
        assert engine.counters["sessions_lost"] == 1
        assert engine.vitals.restarts == 1


def test_a_stopped_process_is_taken_for_dead_and_what_it_says_when_it_wakes_is_nobodys() -> None:
    with worker(watch=Watch(backoff=Backoff(first=0.01), silence=1.5)) as engine:
        pid = engine.vitals.pid
        assert pid is not None
        ear, heir = Ear(), Ear()
        engine.open(Fence("a", 1, 0), SessionConfig(), ear)
        os.kill(pid, signal.SIGSTOP)
        engine.append("a", 0, bytes(2 * HOP), RATE)
        ear.until(is_failure)
        assert ear.failures == ["worker_lost"]
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        until_there_is_room(engine)
        engine.open(Fence("b", 1, 0), SessionConfig(), heir)
        engine.append("b", 0, bytes(2 * HOP), RATE)
        heir.until(is_frame)
        assert [type(event) for event, _ in ear.told] == [EngineFailed]
        assert not running(pid)


PARENT = """
import sys, threading
from models.workers.engine import WorkerEngine
from models.workers.process import ProcessLaunch
from tests.models.workers import puppet

if __name__ == "__main__":
    engine = WorkerEngine(ProcessLaunch(puppet.{build}), progress=lambda stage, fraction: print(stage, flush=True))
    try:
        print("pid", engine.vitals.pid, flush=True)
        threading.Event().wait()
    except KeyboardInterrupt:
        engine.shutdown()
        print("ended", flush=True)
"""


@contextlib.contextmanager
def parent(tmp_path: Path, build: str = "build") -> Iterator[subprocess.Popen[str]]:
    """A process in a group of its own that has a worker."""
    script = tmp_path / "parent.py"
    script.write_text(PARENT.format(build=build))
    process = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def line(process: subprocess.Popen[str], beginning: str) -> str:
    assert process.stdout is not None
    return next(text for text in process.stdout if text.startswith(beginning)).strip()


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def await_end(pid: int) -> None:
    wait = threading.Event()
    for _ in range(round(PATIENCE / 0.02)):
        if not running(pid):
            return
        wait.wait(0.02)
    raise AssertionError(f"process {pid} is still there")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="looks at processes in /proc")
@pytest.mark.parametrize("build", ["build", "never"], ids=["while it serves", "while it loads"])
def test_a_worker_does_not_outlive_a_parent_that_was_killed(build: str, tmp_path: Path) -> None:
    with parent(tmp_path, build) as process:
        line(process, "pid" if build == "build" else "waiting for ever")
        workers = children(process.pid)
        assert workers
        process.kill()
        process.wait()
        for pid in workers:
            await_end(pid)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="looks at processes in /proc")
def test_ctrl_c_reaches_the_whole_group_and_ends_it_without_a_word_of_the_worker(tmp_path: Path) -> None:
    with parent(tmp_path) as process:
        pid = int(line(process, "pid").split()[1])
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=PATIENCE)
        assert output == "ended\n"
        assert process.returncode == 0
        assert not running(pid)
