"""All scenes, over and over, and the figures of those that have one:

    python -m tests.chaos                        # every scene once, the long ones too
    python -m tests.chaos --rounds 20
    python -m tests.chaos takeover --rounds 10   # only figures: how long until a client hears something again
    python -m tests.chaos worker --rounds 5

Status 1 where a scene failed or a figure was missed. Wants redis-server and the prepared model files; without
libfaketime the scene of the clock is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from tests.bench.report import percentile, table
from tests.redis_server import RedisServer

from .nodes import killed_owner, killed_worker

HERE: Final = Path(__file__).parent
Figures = dict[str, tuple[float, float | None]]
"""Seconds by what they are of, and below what they are wanted."""


async def takeover() -> Figures:
    with tempfile.TemporaryDirectory(prefix="r") as folder, RedisServer(Path(folder)) as redis:
        taken = await killed_owner(redis)
    if taken.stale:
        raise SystemExit(f"{taken.stale} pieces of stale audio")
    return {"a server's death to audio at another": (taken.seconds, 3.0)}


async def worker() -> Figures:
    lost = await killed_worker()
    if lost.stale:
        raise SystemExit(f"{lost.stale} pieces of stale audio")
    # How long an answer takes is the models' own speed, and that of the machine.
    return {
        "a worker's death to the event; the session is at another": (lost.told, 2.0),
        "a worker's death to audio of the next answer": (lost.seconds, None),
    }


FIGURES: Final[dict[str, Callable[[], Awaitable[Figures]]]] = {"takeover": takeover, "worker": worker}


def measure(name: str, rounds: int) -> bool:
    """Print what was measured; whether it stayed below its bounds."""

    async def once() -> Figures:
        return await FIGURES[name]()

    runs = [asyncio.run(once()) for _ in range(rounds)]
    rows: list[list[object]] = []
    met = True
    for figure, (_, bound) in runs[0].items():
        seconds = [run[figure][0] for run in runs]
        met = met and (bound is None or max(seconds) < bound)
        shares = (round(percentile(seconds, share), 2) for share in (0.5, 0.95))
        rows.append([figure, rounds, *shares, round(max(seconds), 2), "" if bound is None else bound])
    print(table(rows, ("from", "rounds", "p50 s", "p95 s", "max s", "wanted below s")), flush=True)
    return met


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "what", nargs="?", default="scenes", choices=("scenes", *FIGURES), help="(default: %(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=1, help="(default: %(default)s)")
    options = parser.parse_args()
    if options.what in FIGURES:
        return 0 if measure(options.what, options.rounds) else 1
    command = [sys.executable, "-m", "pytest", "-q", "-m", "wide or not wide", str(HERE)]
    failed = sum(subprocess.run(command, check=False).returncode != 0 for _ in range(options.rounds))
    print(f"{failed} of {options.rounds} rounds failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
