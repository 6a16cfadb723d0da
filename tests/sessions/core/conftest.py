"""Reports of the property tests, printed at the end of the run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

REPORTS = pytest.StashKey[list[str]]()
Publish = Callable[[str], None]


@pytest.fixture
def publish(request: pytest.FixtureRequest) -> Publish:
    """Adds a text to the summary of the run, and to the file that TALKOVER_PROPERTY_REPORT names."""

    def add(report: str) -> None:
        request.config.stash.setdefault(REPORTS, []).append(report)
        path = os.environ.get("TALKOVER_PROPERTY_REPORT")
        if path:
            with Path(path).open("a", encoding="utf-8") as file:
                file.write(report + "\n\n")

    return add


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for report in config.stash.get(REPORTS, []):
        terminalreporter.section("session core", sep="-")
        terminalreporter.write_line(report)
