"""A virtual environment with the packages that others wrote for these models, to compare ours with.

The `moshi` package pins an old torch and much that a comparison does not need, so it is installed without what it
requires, and finds torch in the environment that runs the tests. Scripts beside this file run there; the repository is
on their path, so that they can import both sides.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from tests.conformance.environments import EnvironmentFailed, environment, run_logged, run_script
from tests.servers import ROOT

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "requirements-bare.txt"


def compare(script: str, timeout: float = 600.0, **arguments: object) -> Mapping[str, object]:
    """Run `<script>.py` with `arguments`; returns the JSON that it prints. Raises ClientFailed, EnvironmentFailed."""
    return run_script(
        [str(interpreter())],
        HERE / f"{script}.py",
        arguments,
        timeout,
        {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )


def interpreter() -> Path:
    """The Python of the environment, which is made first where there is none. Raises EnvironmentFailed."""
    made_from = f"{sys.version_info.major}.{sys.version_info.minor}\n{REQUIREMENTS.read_text()}"
    return environment("oracle", made_from, _make) / "bin" / "python"


def _make(folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--no-deps", "--progress-bar", "off"]
    status, said = run_logged("oracle", [*command, "-r", str(REQUIREMENTS)])
    if status:
        raise EnvironmentFailed(f"pip could not install {REQUIREMENTS.relative_to(ROOT)} (status {status})\n{said}")
    site = subprocess.run(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    # After its own packages on the path, so that those win.
    (Path(site) / "tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
