"""The embedded models in workers, as settings ask for them; the models are puppets."""

from __future__ import annotations

import pytest

from models.workers.health import reports
from server import cascade_loading
from server.cascade_loading import PROCESSES, cascade
from server.settings import Settings, SettingsError
from sessions.core.config import SessionConfig
from sessions.core.fence import Fence
from sessions.ports import Busy
from tests.models.workers.puppet_cascade import build_for
from tests.models.workers.test_process import Ear


def test_sessions_are_shared_out_among_the_processes_and_their_health_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cascade_loading, "build", build_for)
    told: list[str] = []
    settings = Settings(engine="embedded", worker="process", max_sessions=3).check()
    workers = cascade(settings, 3, lambda stage, _: told.append(stage))
    try:
        assert [report["state"] for report in reports(workers.engine)] == ["ready"] * PROCESSES
        assert len({report["pid"] for report in reports(workers.engine)}) == PROCESSES
        assert told
        for number in range(2 * PROCESSES):
            workers.engine.open(Fence(f"sess_{number}", 1, 0), SessionConfig(), Ear())
        with pytest.raises(Busy):
            workers.engine.open(Fence("sess_late", 1, 0), SessionConfig(), Ear())
    finally:
        workers.shutdown()


@pytest.mark.parametrize("engine", ["scripted", "qwen3-omni"])
def test_engines_that_hold_more_than_a_history_compute_here(engine: str) -> None:
    given = {"script": __file__} if engine == "scripted" else {"random_weights": "tiny"}
    with pytest.raises(SettingsError, match="moshi and embedded"):
        Settings(engine=engine, worker="process", **given).check()  # type: ignore[arg-type]
