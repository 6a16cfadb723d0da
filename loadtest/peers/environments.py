"""The environments of the peers, made when first needed and kept in `.conformance/` beside those of other tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.conformance.environments import EnvironmentFailed, environment, run_logged

HERE = Path(__file__).parent


def interpreter(peer: str) -> Path:
    """The Python that has the packages of `peer`/requirements.txt. Raises EnvironmentFailed."""
    requirements = HERE / peer / "requirements.txt"
    made_from = f"{sys.version_info.major}.{sys.version_info.minor}\n{requirements.read_text()}"

    def make(folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        command = [str(folder / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check"]
        command += ["-r", str(requirements)]
        status, said = run_logged(peer, [*command, "--progress-bar", "off"])
        if status:
            raise EnvironmentFailed(
                f"pip could not install {requirements} (status {status}). Is a package index reachable? "
                f"Try: {' '.join(command)}\n{said}"
            )

    return environment(f"peer-{peer}", made_from, make) / "bin" / "python"
