"""Moshi in whole sessions, on virtual time: turns, interruptions, recordings, and the same again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from models.families.moshi.engine import moshi_engine
from models.slots.duplex import DuplexEngine
from models.slots.engine import Policy
from sessions.core.config import SessionConfig
from sessions.core.events import DuplexFrame, Event
from sessions.core.fence import Fence
from sessions.core.notices import EpochBegan, PlaybackCleared, ResponseClosed, ResponseOpened
from sessions.core.timeline import from_ms
from sessions.handle import SessionHandle
from sessions.journal import Recorder
from sessions.manager import SessionManager
from sessions.replay.rerun import rerun
from sessions.virtual_clock import run
from tests.sessions.fakes import LoudnessPerception, NotebookCarrier

FRAME = from_ms(80)
LOUD = b"\x00\x20" * 480
QUIET = bytes(960)


@contextlib.asynccontextmanager
async def ticking(policy: Policy) -> AsyncIterator[DuplexEngine]:
    """An engine that is ticked on the loop's own time."""
    engine = moshi_engine(None, slots=2, policy=policy, worker=False)

    async def tick() -> None:
        while True:
            await asyncio.sleep(0.08)
            engine.tick()

    task = asyncio.create_task(tick())
    try:
        yield engine
    finally:
        task.cancel()
        engine.shutdown()


async def microphone(handle: SessionHandle, *stretches: tuple[float, bool]) -> None:
    for seconds, speaking in stretches:
        for _ in range(round(seconds * 50)):
            await asyncio.sleep(0.02)
            handle.audio(LOUD if speaking else QUIET, 24_000)


@pytest.mark.parametrize("policy", ["keep", "annotate", "rewind"])
def test_an_interruption_silences_it_and_it_speaks_again_as_its_policy_says(policy: Policy, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with ticking(policy) as engine:
            carrier = NotebookCarrier()
            manager = SessionManager(engine, LoudnessPerception(), recorder=Recorder(tmp_path))
            handle = manager.open(carrier, SessionConfig())
            await microphone(handle, (0.8, False), (1.0, True), (2.2 if policy == "keep" else 0.9, False))
            opened = [notice for notice in carrier.notices if isinstance(notice, ResponseOpened)]
            assert len(opened) >= 2
            assert any(isinstance(notice, EpochBegan) and notice.cause == "barge_in" for notice in carrier.notices)
            epochs = [frame.fence.epoch for _, frame in carrier.frames]
            assert epochs == sorted(epochs)
            assert epochs[-1] > epochs[0]
            assert np.frombuffer(b"".join(frame.pcm for _, frame in carrier.frames), "<i2").std() > 100
            assert engine.capabilities.interruption == policy
            # What was made and not heard the model has not said.
            assert (engine.counters.get("frames_replayed", 0) >= 1) == (policy == "rewind")
            cleared = next(notice for notice in carrier.notices if isinstance(notice, PlaybackCleared))
            assert cleared.heard > 0
            closed = next(notice for notice in carrier.notices if isinstance(notice, ResponseClosed))
            assert closed.response.items[0].text.startswith("#")
            await manager.close()
            for name in ("ledger_fault", "stale_admitted", "engine_fault", "session_fault"):
                assert manager.counters[name] == 0, name
            assert engine.active == 0

    run(scenario())
    (folder,) = tmp_path.iterdir()
    assert rerun(folder).identical


def say(
    engine: DuplexEngine, session: str, frames: int, seed: int, *, cut: int | None = None
) -> list[tuple[bool, bytes]]:
    """A session's frames, as (speaking, PCM): each is taken, and answered with the next tick."""
    out: list[tuple[bool, bytes]] = []

    def told(event: Event, pcm: bytes | None = None) -> None:
        assert isinstance(event, DuplexFrame)
        out.append((event.speaking, pcm or b""))

    dice = np.random.default_rng(seed)
    engine.open(Fence(session, 1, 0), SessionConfig(), told)
    for frame in range(frames):
        pcm = dice.normal(0, 3000, 1920).astype("<i2").tobytes()
        engine.append(session, frame * FRAME, pcm, 24_000)
        if frame == cut:
            engine.rewind(Fence(session, 1, 1), (frame - 3) * FRAME)
        engine.tick()
    return out


def test_a_session_played_again_is_the_same_bit_for_bit_beside_others_and_after_them() -> None:
    engine = moshi_engine(None, slots=3, worker=False)
    first = say(engine, "sess_a", 17, seed=1, cut=8)
    engine.close("sess_a")
    say(engine, "sess_b", 6, seed=2, cut=4)
    again = say(engine, "sess_c", 3, seed=3)
    assert len(again) == 3
    # Another slot, with two neighbours that have been there for a while and one of them in the middle of a word.
    assert say(engine, "sess_a", 17, seed=1, cut=8) == first
    assert len(first) == 17
    assert [speaking for speaking, _ in first[:2]] == [False, True]
    assert not first[8][0]
    assert first[-1][0]
    other = moshi_engine(None, slots=3, worker=False)
    assert say(other, "sess_a", 17, seed=1, cut=8) == first
    assert say(other, "sess_d", 17, seed=1, cut=8) != first
