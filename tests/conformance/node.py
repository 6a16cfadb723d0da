"""Clients that others wrote in JavaScript, each family with packages of its own, installed when first needed.

A family is a folder here with a `package.json` and the lock file that `npm install --package-lock-only` made from it.
Its packages lie below `.conformance/`; no package's own scripts are run.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.conformance.environments import HERE, EnvironmentFailed, environment, run_logged, run_script
from tests.servers import ROOT

FILES = ("package.json", "package-lock.json")

needs_node = pytest.mark.skipif(
    not (shutil.which("node") and shutil.which("npm")), reason="node and npm (20 or newer) are not installed"
)


def packages(family: str) -> Path:
    """The folder with the family's `node_modules`, installed first where they are not. Raises EnvironmentFailed."""
    made_from = "\n".join((HERE / family / name).read_text() for name in FILES)
    return environment(family, made_from, lambda folder: _install(family, folder))


def _install(family: str, folder: Path) -> None:
    folder.mkdir()
    for name in FILES:
        shutil.copy(HERE / family / name, folder)
    # The scenarios stay where they are; seen from here they find the packages beside them.
    (folder / "scenarios").symlink_to(HERE / family, target_is_directory=True)
    status, said = run_logged(family, ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder)
    if status:
        raise EnvironmentFailed(
            f"npm could not install {(HERE / family / FILES[0]).relative_to(ROOT)} (status {status}). Is a package "
            f"registry reachable?\n{said}"
        )


def run_node(
    family: str,
    scenario: str,
    arguments: Mapping[str, object],
    timeout: float = 120.0,
    env: Mapping[str, str] | None = None,
) -> dict[str, object]:
    """Run `<family>/<scenario>.mjs` with `arguments` as JSON; returns the JSON that it prints last.

    Raises ClientFailed where it fails, prints no JSON or takes longer than `timeout` seconds.
    """
    script = packages(family) / "scenarios" / f"{scenario}.mjs"
    command = ["node", "--preserve-symlinks", "--preserve-symlinks-main"]
    return run_script(command, script, arguments, timeout, env)
