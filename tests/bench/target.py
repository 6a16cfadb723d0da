"""Which server a benchmark measures: one that runs, or one of its own."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.report import progress
from tests.servers import Engine, ServerProcess


@dataclass(frozen=True, slots=True)
class Target:
    """A server: its WebSocket, and its process where it is one of ours."""

    url: str
    process: ServerProcess | None


def arguments(description: str | None) -> argparse.ArgumentParser:
    """A parser with the options that every benchmark has."""
    parser = argparse.ArgumentParser(description=(description or "").split("\n")[0])
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--url", metavar="ws://…", help="the Realtime WebSocket of a server that runs")
    where.add_argument("--spawn", action="store_true", help="start a server for the benchmark")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N clips")
    return parser


@contextlib.contextmanager
def server(
    options: argparse.Namespace, engine: Engine, script: str | None, extra: Sequence[str] = ()
) -> Iterator[Target]:
    """The server to measure: `--url`, or one started with `engine` and `script` and stopped afterwards."""
    if options.url:
        yield Target(options.url, None)
        return
    process = ServerProcess(engine, script, arguments=extra)
    progress(f"starting {' '.join(process.command[2:])}")
    with process:
        yield Target(process.realtime_url, process)
