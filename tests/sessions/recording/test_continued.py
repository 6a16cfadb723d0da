"""A session that another process takes over is recorded by both, and each part can be run again."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest

from sessions.core.effects import AdmitFrame
from sessions.core.events import AudioArrived, OwnershipTaken
from sessions.core.timeline import TICK_RATE
from sessions.journal import Recorder
from sessions.recording.format import MANIFEST, STATE, JournalError, session_of
from sessions.recording.retention import entries
from sessions.replay.account import account
from sessions.replay.alterations import Alterations
from sessions.replay.explain import explain
from sessions.replay.export import FORMATS
from sessions.replay.reader import Recording
from sessions.replay.rerun import rerun
from sessions.replay.what_if import what_if
from sessions.virtual_clock import run
from tests.sessions.fakes import NotebookCarrier
from tests.sessions.test_manager import microphone
from tests.sessions.test_takeover import CONFIG, Cluster


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """What the first process recorded and what the second did, below the same folder."""
    root = tmp_path_factory.mktemp("recordings")

    async def scenario() -> str:
        cluster = Cluster()
        here, there = cluster.node(), cluster.node()
        here.manager.recorder, there.manager.recorder = Recorder(root), Recorder(root)
        handle = here.manager.open(NotebookCarrier(), CONFIG)
        await microphone(handle, (0.5, False), (1.0, True), (2.0, False))
        here.dies()
        await asyncio.sleep(1.0)
        joined = await there.take_over(handle.session, "acme", handle.resume_token, NotebookCarrier())
        await microphone(joined, (0.5, False), (1.0, True), (1.5, False), (0.6, True), (2.5, False))
        await there.manager.close()
        await here.manager.close()
        return handle.session

    session = run(scenario())
    return root / session, root / f"{session}-2"


def test_both_parts_lie_side_by_side_and_say_where_they_come_from(parts: tuple[Path, Path]) -> None:
    first, second = parts
    assert {entry.session for entry in entries(first.parent)} == {first.name, second.name}
    assert session_of(second.name) == session_of(first.name) == first.name
    assert "continues" not in json.loads((first / MANIFEST).read_text())
    manifest = json.loads((second / MANIFEST).read_text())
    assert (manifest["session"], manifest["incarnation"], manifest["tenant"]) == (first.name, 2, "acme")
    assert manifest["continues"]["incarnation"] == 1
    assert manifest["continues"]["now"] == Recording(second).manifest.begins > 3 * TICK_RATE


def test_each_part_is_run_again_identically(parts: tuple[Path, Path]) -> None:
    for folder in parts:
        result = rerun(folder)
        assert result.identical, str(result.difference)
        assert result.events > 100
    begun = next(Recording(parts[1]).steps())
    assert isinstance(begun.event, OwnershipTaken)


def test_the_second_part_is_told_and_run_otherwise(parts: tuple[Path, Path]) -> None:
    recording = Recording(parts[1])
    told = account(recording.manifest.config, recording.steps())
    assert [cut.cause for cut in told.interruptions if cut.cause == "barge_in"] == ["barge_in"]
    assert "the user spoke over the agent" in explain(told)
    assert what_if(parts[1], Alterations.parse([], [], [])).same
    assert not what_if(parts[1], Alterations.parse(["turn.silence_ms=900"], [], [])).same


def test_its_tracks_begin_where_it_begins_and_hold_what_was_said_there(parts: tuple[Path, Path]) -> None:
    recording = Recording(parts[1])
    begins = recording.manifest.begins
    told = json.loads((parts[1] / MANIFEST).read_text())["tracks"]
    assert told["user_in"]["first"] > 3 * TICK_RATE
    assert begins <= told["user_in"]["starts"] < begins + TICK_RATE
    assert told["agent_heard"]["starts"] == told["agent_heard"]["first"] == begins
    loud = [
        step.event
        for step in recording.steps()
        if isinstance(step.event, AudioArrived) and recording.samples("user_in", step.event.start, step.event.end).any()
    ]
    assert sum(event.end - event.start for event in loud) == round(1.6 * TICK_RATE)
    admitted = [effect for step in recording.steps() for effect in step.effects if isinstance(effect, AdmitFrame)]
    place = admitted[0].placed_at
    assert recording.samples("agent_heard", place, place + TICK_RATE // 10).any()
    # The file holds what the events say, at its own positions.
    import soundfile

    samples, rate = soundfile.read(parts[1] / "agent_heard.flac", dtype="int16")
    tick = TICK_RATE // rate
    assert np.array_equal(samples, recording.samples("agent_heard", begins, begins + len(samples) * tick))


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_every_export_begins_with_the_part(parts: tuple[Path, Path], tmp_path: Path, name: str) -> None:
    suffix, write = FORMATS[name]
    out = tmp_path / f"x{suffix}"
    write(Recording(parts[1]), out)
    assert out.stat().st_size
    if name == "wav":
        import soundfile

        recording = Recording(parts[1])
        length = json.loads((parts[1] / MANIFEST).read_text())["length"] - recording.manifest.begins
        assert abs(soundfile.info(str(out)).duration - length / TICK_RATE) < 1.0
    if name == "audacity":
        starts = [float(line.split("\t")[0]) for line in out.read_text().splitlines()]
        assert min(starts) < 3.0


def test_without_its_state_it_is_refused_by_name(parts: tuple[Path, Path], tmp_path: Path) -> None:
    import shutil

    copy = Path(shutil.copytree(parts[1], tmp_path / "copy"))
    (copy / STATE).write_text("{}")
    with pytest.raises(JournalError, match=r"state\.json is damaged"):
        Recording(copy)
    (copy / STATE).unlink()
    with pytest.raises(JournalError, match=r"state\.json cannot be read") as refused:
        Recording(copy)
    assert refused.value.known["session"] == parts[0].name
