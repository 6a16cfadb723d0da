"""Whole sessions: an image and speech in, text and sound out, an interruption, and the recording played again."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from pathlib import Path

import numpy as np
import pytest
import torch

from models.families.qwen3_omni.loading import omni_engine
from sessions.core.config import SessionConfig
from sessions.core.context import ImageRef
from sessions.core.events import ItemCreate, ResponseCancel, ResponseCreate
from sessions.core.notices import CommandFailed, EpochBegan, OutputDraft, ResponseClosed, StageReached
from sessions.journal import Recorder
from sessions.manager import SessionManager
from sessions.replay.rerun import rerun
from sessions.virtual_clock import run
from tests.models.families.qwen3_omni.scene import png
from tests.sessions.fakes import LoudnessPerception, NotebookCarrier

PICTURE = png(96, 64)
REF = ImageRef(hashlib.sha256(PICTURE).hexdigest(), "image/png", 96, 64)
SPEECH = np.random.default_rng(1).normal(0, 2000, 24_000).astype("<i2").tobytes()


def test_a_session_with_an_image_and_speech_is_interrupted_goes_on_and_replays_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What the model draws hangs on the session's name: with this one neither answer is over before it is cut.
    monkeypatch.setattr(secrets, "token_hex", lambda _: "0c" * 8)
    torch.set_num_threads(1)

    async def scenario() -> None:
        engine = omni_engine(None, 2, worker=False)

        async def stepping() -> None:
            while True:
                await asyncio.sleep(0.02)
                engine.step()

        steps = asyncio.create_task(stepping())
        carrier = NotebookCarrier()
        manager = SessionManager(engine, LoudnessPerception(), recorder=Recorder(tmp_path))
        handle = manager.open(carrier, SessionConfig(turns=None))
        for _ in range(2):
            handle.image(REF, PICTURE)
            handle.item(ItemCreate("user", images=(REF,)), SPEECH, 24_000)
            handle.post(ItemCreate("user", text="what is it"))
            handle.post(ResponseCreate())
            for _ in range(500):
                await asyncio.sleep(0.02)
                if any(frame.fence.epoch == handle_epoch(carrier) for _, frame in carrier.frames[-1:]):
                    break
            handle.post(ResponseCancel())
            await asyncio.sleep(0.1)
            assert engine.rows_busy == 0
        closed = [notice.response for notice in carrier.notices if isinstance(notice, ResponseClosed)]
        assert [response.status for response in closed] == ["cancelled", "cancelled"]
        assert any(isinstance(notice, OutputDraft) for notice in carrier.notices)
        stages = [notice.stage for notice in carrier.notices if isinstance(notice, StageReached)]
        assert stages.count("features") == 1
        assert stages.count("first_audio") == 2
        assert not [notice for notice in carrier.notices if isinstance(notice, CommandFailed)]
        epochs = [frame.fence.epoch for _, frame in carrier.frames]
        assert epochs == sorted(epochs)
        assert epochs[0] < epochs[-1]
        await manager.close()
        for name in ("ledger_fault", "stale_admitted", "engine_fault", "session_fault"):
            assert manager.counters[name] == 0, name
        steps.cancel()
        engine.shutdown()

    def handle_epoch(carrier: NotebookCarrier) -> int:
        return sum(isinstance(notice, EpochBegan) for notice in carrier.notices)

    run(scenario())
    (folder,) = tmp_path.iterdir()
    assert rerun(folder).identical
