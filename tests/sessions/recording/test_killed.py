"""A process that is killed leaves a recording that can be read up to its last second."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from sessions.core.timeline import TICK_RATE
from sessions.replay.reader import Recording

ROOT = Path(__file__).parents[3]


def test_a_session_is_there_up_to_the_last_second_before_the_kill(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.sessions.recording.killed", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        reached = 0
        for line in process.stdout:
            reached = int(line)
            if reached >= 2 * TICK_RATE:
                break
        process.kill()
        reached = max([reached, *(int(line) for line in process.stdout.read().split())])
    recording = Recording(tmp_path / "sess_killed")
    faults: list[str] = []
    steps = list(recording.steps(faults))
    assert faults == []
    assert recording.manifest.ended is None
    assert steps[-1].now >= reached - TICK_RATE
    tracks = recording.tracks()
    assert set(tracks) == {"user_in", "agent_generated", "agent_sent", "agent_heard"}
    dice = np.random.default_rng(0)
    for track in tracks.values():
        assert track.length >= reached - TICK_RATE, track
    said = np.concatenate([dice.normal(0, 3000, 480).astype("<i2") for _ in range(tracks["user_in"].length // 960 + 1)])
    for name, track in tracks.items():
        count = min(track.length, tracks["agent_generated"].length) // 2
        assert np.array_equal(recording.samples(name, 0, count * 2), said[:count]), name
