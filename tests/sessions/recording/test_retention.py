from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sessions.recording.format import EVENTS, MANIFEST
from sessions.recording.policy import DAY, RecordingPolicy
from sessions.recording.retention import delete, entries, sweep

NOW = 1_000_000_000.0


def put(root: Path, session: str, days_ago: float, size: int = 1000, tenant: str = "") -> Path:
    folder = root / session
    folder.mkdir(parents=True)
    (folder / MANIFEST).write_text(json.dumps({"version": 2, "tenant": tenant, "ended": "closed", "length": 48_000}))
    (folder / EVENTS).write_bytes(bytes(size))
    for path in folder.iterdir():
        os.utime(path, (NOW - days_ago * DAY,) * 2)
    return folder


def left(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def test_recordings_are_listed_oldest_first_and_strange_folders_passed_over(tmp_path: Path) -> None:
    put(tmp_path, "new", 1)
    put(tmp_path, "old", 3, tenant="acme")
    (tmp_path / "strange").mkdir()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / MANIFEST).write_text("{")
    (tmp_path / "file").write_text("")
    found = entries(tmp_path)
    assert [entry.session for entry in found] == ["old", "new"]
    assert (found[0].tenant, found[0].ended, found[0].length) == ("acme", "closed", 48_000)
    assert found[0].size > 1000


def test_what_is_kept_too_long_goes_each_tenant_by_its_own_time(tmp_path: Path) -> None:
    for tenant in ("", "short", "long"):
        for days in (1, 5, 20):
            put(tmp_path, f"{tenant or 'any'}{days}", days, tenant=tenant)
    policy = RecordingPolicy(keep_days=10, tenant_days={"short": 3, "long": 100})
    assert sorted(sweep(tmp_path, policy, NOW)) == ["any20", "short20", "short5"]
    assert left(tmp_path) == ["any1", "any5", "long1", "long20", "long5", "short1"]


def test_of_too_much_the_oldest_goes(tmp_path: Path) -> None:
    for days in range(1, 6):
        put(tmp_path, f"d{days}", days, size=1000)
    assert sweep(tmp_path, RecordingPolicy(total_bytes=3300), NOW) == ["d5", "d4"]
    assert sweep(tmp_path, RecordingPolicy(total_bytes=3300), NOW) == []


def test_a_session_that_is_being_recorded_stays(tmp_path: Path) -> None:
    put(tmp_path, "open", 30)
    put(tmp_path, "over", 30)
    assert sweep(tmp_path, RecordingPolicy(keep_days=1), NOW, {"open"}) == ["over"]


def test_without_rules_nothing_goes(tmp_path: Path) -> None:
    put(tmp_path, "old", 10_000)
    assert sweep(tmp_path, RecordingPolicy(), NOW) == []


def test_only_a_recording_can_be_deleted(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "one.jpg").write_text("")
    for folder in (tmp_path / "photos", tmp_path / "nowhere", tmp_path):
        with pytest.raises(FileNotFoundError):
            delete(folder)
    assert (tmp_path / "photos" / "one.jpg").exists()
    delete(put(tmp_path, "one", 1))
    assert left(tmp_path) == ["photos"]


def test_what_another_process_writes_stays(tmp_path: Path) -> None:
    for name, seconds in (("being written", 10.0), ("killed", 120.0)):
        folder = put(tmp_path, name, seconds / DAY)
        (folder / MANIFEST).write_text(json.dumps({"version": 2}))
        os.utime(folder / MANIFEST, (NOW - seconds,) * 2)
    assert sweep(tmp_path, RecordingPolicy(total_bytes=0), NOW) == ["killed"]
