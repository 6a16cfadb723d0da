"""Clients that others wrote in Python, each family in a virtual environment of its own, made when first needed.

They cannot share one: their pins exclude each other. A family is a folder here with a `requirements.txt`. What stands
in a `requirements-bare.txt` beside it is installed without what it requires, for a client that comes in one package
with much that a client does not need. What the families share lies in `shared/`, which is on their path.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.conformance.environments import HERE, EnvironmentFailed, environment, run_logged, run_script
from tests.servers import ROOT

SHARED = HERE / "shared"


def interpreter(family: str) -> Path:
    """The Python of the family's environment, which is made first where there is none. Raises EnvironmentFailed."""
    requirements = [HERE / family / name for name in ("requirements.txt", "requirements-bare.txt")]
    given = [path for path in requirements if path.exists()]
    made_from = [f"{sys.version_info.major}.{sys.version_info.minor}", *(path.read_text() for path in given)]
    folder = environment(family, "\n".join(made_from), lambda folder: _make(family, folder, given))
    return folder / "bin" / "python"


def _make(family: str, folder: Path, requirements: list[Path]) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check"]
    for path in requirements:
        bare = ["--no-deps"] if path.name == "requirements-bare.txt" else []
        command = [*pip, *bare, "-r", str(path)]
        status, said = run_logged(family, [*command, "--progress-bar", "off"])
        if status:
            raise EnvironmentFailed(
                f"pip could not install {path.relative_to(ROOT)} (status {status}). Is a package index reachable? "
                f"Try: {' '.join(command)}\n{said}"
            )


def run_client(
    family: str, scenario: str, arguments: Mapping[str, object], timeout: float = 120.0
) -> dict[str, object]:
    """Run `<family>/<scenario>.py` in its environment with `arguments` as JSON; returns the JSON that it prints last.

    Raises ClientFailed where it fails, prints no JSON or takes longer than `timeout` seconds.
    """
    script = HERE / family / f"{scenario}.py"
    return run_script([str(interpreter(family))], script, arguments, timeout, {"PYTHONPATH": str(SHARED)})
