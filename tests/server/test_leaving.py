"""How a process ends in which models are still being loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from server import leaving

ROOT = Path(leaving.__file__).parents[1]
LOADS = """
import sys, threading, time
from server.leaving import LOADING, leave
print("said before")
threading.Thread(target=time.sleep, args=(120,), name={name}).start()
code = leave(7)
print("came back")
import os; sys.stdout.flush(); os._exit(code + 1)
"""


def ended(name: str) -> tuple[int, str]:
    code = LOADS.format(name=name)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_while_models_are_loaded_the_process_ends_at_once_and_has_said_everything() -> None:
    assert ended("LOADING") == (7, "said before\n")


def test_else_it_ends_as_any_process() -> None:
    assert ended("'another'") == (8, "said before\ncame back\n")
