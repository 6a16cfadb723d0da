"""What is done to whole server processes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sessions.replay.reader import Recording
from tests.redis_server import RedisServer, needs_redis

from .nodes import LIBFAKETIME, clock_steps, full_disk, killed_owner, killed_worker, stopped_owner
from .witness import QUESTION, deltas, stale

pytestmark = pytest.mark.models


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with tempfile.TemporaryDirectory(prefix="r") as folder, RedisServer(Path(folder)) as server:
        yield server


@needs_redis
async def test_a_client_whose_server_is_killed_goes_on_at_another_with_its_history(redis: RedisServer) -> None:
    taken = await killed_owner(redis)
    assert taken.stale == 0
    assert taken.history[0] == QUESTION
    assert taken.history[1].startswith("one two")


@needs_redis
@pytest.mark.wide
async def test_a_server_that_was_stopped_for_ten_seconds_is_no_owner_any_more(redis: RedisServer) -> None:
    before, after, metrics = await stopped_owner(redis, 10.0)
    assert before.events[-1]["type"] == "session.closed"
    assert stale(before, after) == 0
    assert {one["response_id"] for one in deltas(after)}.isdisjoint(one["response_id"] for one in deltas(before))
    assert 'talkover_events_total{event="sessions_lost"} 1' in metrics
    assert 'talkover_events_total{event="ledger_fault"} 0' in metrics


async def test_a_disk_that_takes_no_more_ends_the_recording_and_no_conversation(tmp_path: Path) -> None:
    told, client, manifest, log = await full_disk(tmp_path)
    assert stale(client) == 0
    assert told[:3:2] == [QUESTION, "go on"]
    assert manifest["stopped"] == "write_failed"
    assert "recording of" in log
    # What was written until then can be read.
    faults: list[str] = []
    recording = Recording(tmp_path / str(manifest["session"]))
    assert sum(1 for _ in recording.steps(faults)) > 0


@pytest.mark.wide
@pytest.mark.skipif(LIBFAKETIME is None, reason="libfaketime is not installed")
async def test_a_wall_clock_that_jumps_is_noticed_by_nobody(tmp_path: Path) -> None:
    told, client, ahead = await clock_steps(tmp_path)
    assert stale(client) == 0
    assert told[:3:2] == [QUESTION, "go on"]
    assert [round(one / 600) for one in ahead] == [6, -144]


@pytest.mark.wide
async def test_a_session_goes_on_at_another_worker_when_its_own_is_killed_in_mid_utterance() -> None:
    lost = await killed_worker()
    assert (lost.status, lost.neighbour, lost.stale) == ("failed", "completed", 0)
    assert lost.history[0].startswith("Count")
    assert lost.history[2] == "Say hello."
