"""Sessions that the property tests drive, recorded, and run again in other processes with other hash seeds.

The long form, 1,000 sessions: `python -m pytest -m wide tests/sessions/replay/test_random_sessions.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sessions.recording.steps import drive, write

ROOT = Path(__file__).parents[3]
CODE = """
import hashlib, sys
from pathlib import Path
from sessions.replay.reader import Recording, full_lines
from sessions.replay.rerun import rerun
digest, events = hashlib.sha256(), 0
for folder in sorted(path.parent for path in Path(sys.argv[1]).glob("*/*/manifest.json")):
    result = rerun(folder)
    assert result.identical, f"{folder}: {result.difference}"
    events += result.events
    for line in full_lines(Recording(folder)):
        digest.update(repr(line).encode())
print(events, digest.hexdigest())
"""


def again(root: Path, seed: str) -> tuple[int, str]:
    """Re-run everything below `root` in another process; how many events, and a digest of all records."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(root)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    events, digest = done.stdout.split()
    return int(events), digest


@pytest.mark.parametrize("count", [25, pytest.param(1000, marks=pytest.mark.wide)])
def test_sessions_of_every_kind_replay_identically_in_every_process(tmp_path: Path, count: int) -> None:
    driven = drive(count, seed=11)
    for number, one in enumerate(driven):
        write(tmp_path / f"{number:04}", one)
    results = {again(tmp_path, seed) for seed in ("0", "1", "4242")}
    ((events, _),) = results
    parts = [part for one in driven for part in one.parts]
    assert events == sum(len(part.steps) for part in parts)
    assert len(driven) == count
    assert any(part.state is not None and not part.behind for part in parts), "no session was taken over as it was"
    assert any(part.behind for part in parts), "no session was taken over without its last events"
