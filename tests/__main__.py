"""`python -m tests`: all tests, in two lanes at once.

Tests that talk to a server, a browser or a client mostly wait; those of the core, the codecs and the models mostly
compute. So both run at the same time, the computing ones with lowered priority, and each lane is one pytest run whose
output is shown whole: first the lane that waits, as it goes, then the other. Arguments go to both.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
WAITING = ("browser", "chaos", "conformance", "server")
ASIDE = (
    "server/carriers",
    "server/dialects",
    "server/security",
    "server/test_codes_command.py",
    "server/test_models_command.py",
    "server/test_plan_command.py",
    "server/test_replay_command.py",
    "server/test_say.py",
)
"""What computes among those that wait, so that both lanes take about as long."""
NO_TESTS = 5
"""pytest's exit status where nothing was chosen."""


def lanes() -> tuple[list[str], list[str]]:
    """Arguments that choose the tests that wait and those that compute."""
    found = sorted(path for path in HERE.iterdir() if _holds_tests(path))
    aside = [HERE / path for path in ASIDE]
    waiting = [*(path for path in found if path.name in WAITING), *(f"--ignore={path}" for path in aside)]
    computing = [*(path for path in found if path.name not in WAITING), *aside]
    return [str(path) for path in waiting], [str(path) for path in computing]


def _holds_tests(path: Path) -> bool:
    if path.is_dir():
        return any(path.rglob("test_*.py"))
    return path.name.startswith("test_") and path.suffix == ".py"


def _pytest(paths: list[str], arguments: list[str]) -> list[str]:
    return [sys.executable, "-m", "pytest", *arguments, *paths]


def main(arguments: list[str]) -> int:
    waiting, computing = lanes()
    with tempfile.TemporaryFile() as output:
        aside = subprocess.Popen(
            ["nice", "-n", "10", *_pytest(computing, arguments)],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            print("tests that wait for others:", flush=True)
            first = subprocess.run(_pytest(waiting, arguments), check=False).returncode
            print("\ntests that compute, meanwhile:", flush=True)
            second = _follow(aside, output.fileno())
        except KeyboardInterrupt:
            os.killpg(aside.pid, signal.SIGINT)
            aside.wait()
            return 130
    failed = [status for status in (first, second) if status not in (0, NO_TESTS)]
    if failed:
        return failed[0]
    return NO_TESTS if first == second == NO_TESTS else 0


def _follow(process: subprocess.Popen[bytes], output: int) -> int:
    """Show what `process` has written and writes, until it ends; its exit status."""
    shown = 0
    while True:
        status = process.poll()
        while text := os.pread(output, 65_536, shown):
            shown += len(text)
            sys.stdout.buffer.write(text)
            sys.stdout.buffer.flush()
        if status is not None:
            return status
        time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
