"""Where clients that others wrote are installed, and how their scenarios are run."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.servers import ROOT

CACHE = ROOT / ".conformance"
HERE = Path(__file__).parent


class EnvironmentFailed(Exception):
    """A family's packages could not be installed; the message ends with what the installer said."""


class ClientFailed(Exception):
    """A client's scenario ended with an error; the message ends with what it printed."""


def environment(family: str, made_from: str, make: Callable[[Path], None]) -> Path:
    """The folder of the family's environment below `.conformance/`, named by what it was made from.

    `make` fills it where there is none yet, one process at a time.
    """
    folder = CACHE / f"{family}-{hashlib.sha256(made_from.encode()).hexdigest()[:12]}"
    CACHE.mkdir(exist_ok=True)
    with (CACHE / f"{family}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # The marker is written last: an environment whose making was interrupted is made again.
        if not (folder / "ready").exists():
            shutil.rmtree(folder, ignore_errors=True)
            _say(f"conformance: making the environment of {family} (once)")
            make(folder)
            (folder / "ready").touch()
    return folder


def run_logged(family: str, command: Sequence[str], cwd: Path | None = None) -> tuple[int, str]:
    """Run an installer and tell its steps as they come; returns its status and the end of what it said."""
    output: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=cwd) as process:
        assert process.stdout is not None
        for line in process.stdout:
            output.append(line.rstrip())
            if line.startswith(("Collecting", "Installing", "Successfully", "added")):
                _say(f"conformance: {family}: {line.strip()[:110]}")
    return process.returncode, "\n".join(output[-15:])


def run_script(
    command: Sequence[str],
    script: Path,
    arguments: Mapping[str, object],
    timeout: float,
    env: Mapping[str, str] | None = None,
) -> dict[str, object]:
    """Run `command` with `script` and `arguments` as JSON; returns the JSON object on the last line that it prints.

    `env` is added to this process's environment. Raises ClientFailed where the script fails, prints no JSON or takes
    longer than `timeout` seconds.
    """
    name = f"{script.parent.name}/{script.stem}"
    try:
        ended = subprocess.run(
            [*command, str(script), json.dumps(arguments)],
            check=False,
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=script.parent,
            env={**os.environ, **(env or {})},
        )
    except subprocess.TimeoutExpired as expired:
        said = "".join(
            part.decode() if isinstance(part, bytes) else part or "" for part in (expired.stdout, expired.stderr)
        )
        raise ClientFailed(f"{name} did not end within {timeout:.0f} s\n{said[-3000:]}") from None
    if ended.returncode:
        raise ClientFailed(f"{name} ended with {ended.returncode}\n{ended.stdout[-1500:]}{ended.stderr[-4000:]}")
    try:
        result = json.loads(ended.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        raise ClientFailed(f"{name} printed no result\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}") from None
    return dict(result)


def _say(text: str) -> None:
    # Past pytest's capture: making an environment takes long enough to wonder.
    print(text, file=sys.__stderr__, flush=True)
