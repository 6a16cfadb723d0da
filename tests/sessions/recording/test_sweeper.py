"""What must not be kept any longer goes while a server runs, whether anybody talks or not."""

from __future__ import annotations

import threading
from collections.abc import Collection
from pathlib import Path

import pytest

from sessions.journal import Recorder
from sessions.recording import sweeper
from sessions.recording.policy import RecordingPolicy
from sessions.recording.sweeper import Sweeper

from .test_retention import left, put

LONG_AGO = 0.0
"""`put` counts from long before now."""


def test_a_server_that_starts_deletes_what_is_too_old(tmp_path: Path) -> None:
    put(tmp_path, "old", LONG_AGO)
    put(tmp_path, "kept", LONG_AGO, tenant="archive")
    policy = RecordingPolicy(keep_days=30, tenant_days={"archive": 100_000})
    Recorder(tmp_path, policy).close()
    assert left(tmp_path) == ["kept"]


def test_one_tenant_can_have_rules_where_the_others_have_none(tmp_path: Path) -> None:
    put(tmp_path, "theirs", LONG_AGO, tenant="short")
    put(tmp_path, "kept", LONG_AGO)
    Recorder(tmp_path, RecordingPolicy(tenant_days={"short": 30})).close()
    assert left(tmp_path) == ["kept"]


def test_what_ends_while_the_server_runs_is_looked_at_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeper, "APART_SECONDS", 0.0)
    asked = threading.Semaphore(0)
    ended = threading.Event()

    def busy() -> Collection[str]:
        asked.release()
        return () if ended.is_set() else ("talk",)

    folder = put(tmp_path, "talk", LONG_AGO)
    looking = Sweeper(tmp_path, RecordingPolicy(keep_days=30), busy)
    assert asked.acquire(timeout=60)
    ended.set()
    looking.ended()
    assert asked.acquire(timeout=60)
    looking.close()
    assert not folder.exists()


def test_a_fault_ends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    looking = Sweeper(tmp_path / "nowhere", RecordingPolicy(keep_days=30), tuple)
    looking.close()
    assert "were not looked after" in caplog.text


def test_without_limits_nobody_looks(tmp_path: Path) -> None:
    looking = Sweeper(tmp_path, RecordingPolicy(), lambda: pytest.fail("nothing has to go"))
    looking.close()
