"""A session whose model ran in a process of its own is run again in this one: seed and codes crossed the border."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from models.families.moshi.engine import moshi_engine
from models.families.moshi.worker import build
from models.workers.engine import WorkerEngine
from models.workers.process import ProcessLaunch
from server.cli import main
from sessions.codes_track import FILE, read_codes
from sessions.core.config import SessionConfig
from sessions.core.events import DuplexFrame, Event, ResponseCancel
from sessions.core.fence import Fence
from sessions.journal import Recorder
from sessions.manager import SessionManager
from sessions.ports import Emit
from sessions.replay.reader import read_manifest
from sessions.replay.regenerate import regenerate
from tests.sessions.fakes import LoudnessPerception, NotebookCarrier

pytestmark = pytest.mark.models

FRAME_BYTES = 1920 * 2
PATIENCE = 120.0
"""Seconds; only a worker that is dead takes so long for a frame."""


class Watched(WorkerEngine):
    """`came` counts the frames that came back."""

    def __init__(self, launch: ProcessLaunch) -> None:
        self.came = threading.Semaphore(0)
        super().__init__(launch)

    def open(self, fence: Fence, config: SessionConfig, emit: Emit) -> None:
        def told(event: Event, pcm: bytes | None = None) -> None:
            emit(event, pcm)
            if isinstance(event, DuplexFrame):
                self.came.release()

        super().open(fence, config, told)


async def talk(root: Path, engine: Watched) -> Path:
    """A session that is cut in its middle; returns its folder."""
    recorder = Recorder(root)
    manager = SessionManager(engine, LoudnessPerception(), recorder=recorder, engine_named={"engine": "moshi"})
    handle = manager.open(NotebookCarrier(), SessionConfig())

    async def speak(frames: int) -> None:
        for _ in range(frames):
            handle.audio(bytes(FRAME_BYTES), 24_000)
            # Each is answered before the next one, so that no frame is on its way at the cut.
            assert await asyncio.to_thread(engine.came.acquire, timeout=PATIENCE)

    await speak(18)
    handle.post(ResponseCancel())
    await speak(18)
    await manager.close()
    recorder.close()
    (folder,) = root.iterdir()
    return folder


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    launch = ProcessLaunch(partial(build, None, 1, None), "talkover-moshi-test")
    engine = Watched(launch)
    try:
        return asyncio.run(talk(tmp_path_factory.mktemp("recordings"), engine))
    finally:
        engine.shutdown()


def test_seed_policy_and_codes_of_a_worker_are_recorded(recorded: Path) -> None:
    told = read_manifest(recorded).engine
    assert told is not None
    assert (told["engine"], told["policy"]) == ("moshi", "rewind")
    assert isinstance(told["seed"], int)
    assert sum(len(stream.frames) for stream in read_codes(recorded / FILE).streams) > 10


def test_what_a_worker_said_is_said_again_code_for_code(recorded: Path) -> None:
    engine = moshi_engine(None, slots=1, worker=False)
    try:
        result = regenerate(recorded, engine)
    finally:
        engine.shutdown()
    assert result.identical, result.difference
    assert result.frames >= 25
    assert result.coded > 10
    assert result.lost == 0


def test_the_command_says_how_many_were_compared_by_their_codes(recorded: Path, capsys: Any) -> None:
    assert main(["replay", str(recorded), "--engine", "same", "--random-weights", "tiny"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("identical (")
    assert "compared by their codes" in said
