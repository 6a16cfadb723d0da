"""Runs of recordings that take longer than a request waits."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from server.recording_runs import UNCLAIMED_MOST, WAITING_MOST, Overloaded, Runs, StillRunning
from sessions.recording.format import JournalError


def until(folder: Path, word: str = "done") -> str:
    """Waits for a file in the folder, in the process that runs."""
    while not (folder / word).exists():
        pass
    return f"{word} {os.getpid()}"


def fails(folder: Path, kind: str) -> None:
    raise {"memory": MemoryError(), "journal": JournalError("of a newer version")}.get(kind) or KeyError(kind)


async def test_who_asks_again_waits_on_for_the_same_run(tmp_path: Path) -> None:
    runs = Runs(patience=0.05)
    with pytest.raises(StillRunning):
        await runs.run(until, tmp_path)
    with pytest.raises(StillRunning) as running:
        await runs.run(until, tmp_path)
    assert running.value.seconds >= 0.05
    (tmp_path / "done").touch()
    answers = []
    while not answers:
        try:
            answers.append(await runs.run(until, tmp_path))
        except StillRunning:
            continue
    assert answers[0].startswith("done ")
    assert answers[0] != f"done {os.getpid()}"
    await runs.close()


async def test_so_many_wait_and_no_more(tmp_path: Path) -> None:
    runs = Runs(patience=0)
    for number in range(WAITING_MOST):
        with pytest.raises(StillRunning):
            await runs.run(until, tmp_path, f"{number}")
    with pytest.raises(Overloaded):
        await runs.run(until, tmp_path, "one too many")
    await runs.close()


async def test_results_that_nobody_fetches_are_forgotten(tmp_path: Path) -> None:
    runs = Runs(patience=0)
    for number in range(UNCLAIMED_MOST + 3):
        (tmp_path / f"{number}").touch()
        with pytest.raises(StillRunning):
            await runs.run(until, tmp_path, f"{number}")
        await asyncio.wait([one.result for one in runs._runs.values()])
    assert len(runs._runs) == UNCLAIMED_MOST + 1
    await runs.close()


@pytest.mark.parametrize(
    ("kind", "said"), [("memory", "memory"), ("journal", "of a newer version"), ("else", "not those of a session")]
)
async def test_what_goes_wrong_in_a_run_is_said_and_the_next_one_runs(tmp_path: Path, kind: str, said: str) -> None:
    runs = Runs()
    with pytest.raises(JournalError, match=said):
        await runs.run(fails, tmp_path, kind)
    (tmp_path / "done").touch()
    assert (await runs.run(until, tmp_path)).startswith("done")
    await runs.close()


async def test_the_end_of_the_server_ends_a_run(tmp_path: Path) -> None:
    runs = Runs(patience=0.05)
    with pytest.raises(StillRunning):
        await runs.run(until, tmp_path)
    await runs.close()
