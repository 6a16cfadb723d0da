"""Clients that others wrote, each family in a virtual environment of its own, made when first needed.

They cannot share one: their pins exclude each other. A family is a folder here with a `requirements.txt`; its
environment lies under `.conformance/`, named by what it was made from.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.servers import ROOT

CACHE = ROOT / ".conformance"
HERE = Path(__file__).parent


class VenvFailed(Exception):
    """pip could not install a family's requirements; the message ends with what pip said."""


class ClientFailed(Exception):
    """A client's scenario ended with an error; the message ends with what it printed."""


def interpreter(family: str) -> Path:
    """The Python of the family's environment, which is made first where there is none. Raises VenvFailed."""
    requirements = HERE / family / "requirements.txt"
    made_from = f"{sys.version_info.major}.{sys.version_info.minor}\n{requirements.read_text()}"
    folder = CACHE / f"{family}-{hashlib.sha256(made_from.encode()).hexdigest()[:12]}"
    python = folder / "bin" / "python"
    CACHE.mkdir(exist_ok=True)
    with (CACHE / f"{family}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # The marker is written last: an environment whose making was interrupted is made again.
        if not (folder / "ready").exists():
            shutil.rmtree(folder, ignore_errors=True)
            _make(family, folder, python, requirements)
            (folder / "ready").touch()
    return python


def _make(family: str, folder: Path, python: Path, requirements: Path) -> None:
    _say(f"conformance: making the environment of {family} (once)")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]
    output: list[str] = []
    with subprocess.Popen(
        [*pip, "-r", str(requirements)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            output.append(line.rstrip())
            if line.startswith(("Collecting", "Installing", "Successfully")):
                _say(f"conformance: {family}: {line.strip()[:110]}")
    if process.returncode:
        tail = "\n".join(output[-15:])
        raise VenvFailed(
            f"pip could not install {requirements.relative_to(ROOT)} (status {process.returncode}). Is a package index "
            f"reachable? Try: {python} -m pip install -r {requirements}\n{tail}"
        )


def _say(text: str) -> None:
    # Past pytest's capture: making an environment takes long enough to wonder.
    print(text, file=sys.__stderr__, flush=True)


def run_client(
    family: str, scenario: str, arguments: Mapping[str, object], timeout: float = 120.0
) -> dict[str, object]:
    """Run `<family>/<scenario>.py` in its environment with `arguments` as JSON; returns the JSON that it prints last.

    Raises ClientFailed where it fails, prints no JSON or takes longer than `timeout` seconds.
    """
    script = HERE / family / f"{scenario}.py"
    command = [str(interpreter(family)), str(script), json.dumps(arguments)]
    try:
        ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=timeout, cwd=script.parent)
    except subprocess.TimeoutExpired as expired:
        said = "".join(
            part.decode() if isinstance(part, bytes) else part or "" for part in (expired.stdout, expired.stderr)
        )
        raise ClientFailed(f"{family}/{scenario} did not end within {timeout:.0f} s\n{said[-3000:]}") from None
    if ended.returncode:
        raise ClientFailed(
            f"{family}/{scenario} ended with {ended.returncode}\n{ended.stdout[-1500:]}{ended.stderr[-4000:]}"
        )
    try:
        result = json.loads(ended.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        raise ClientFailed(
            f"{family}/{scenario} printed no result\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}"
        ) from None
    return dict(result)
