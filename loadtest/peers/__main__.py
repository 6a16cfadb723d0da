"""`python -m loadtest.peers`: the same callers at Talkover, Pipecat and FastRTC, one after the other, side by side.

All with fake models: tones as replies, the same Silero model, 200 ms of silence that end a turn. Each server has the
first core to itself while its turn lasts. Pipecat and FastRTC are installed into environments of their own when first
needed (about 2 GB).
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import cast

from loadtest.peers.processes import SERVERS
from loadtest.scenarios import SCENARIOS, Crowd, Outcome, load
from tests.bench.report import progress, table, write

EPILOG = """
examples:
  python -m loadtest.peers --carrier twilio --sessions 10
  python -m loadtest.peers --carrier webrtc --sessions 5 --scenario bargein
  python -m loadtest.peers --carrier twilio --sessions 25 --servers talkover,fastrtc-fastest --rounds 2
"""
_HEAD = (
    "server", "CPU ms/s", "ratio", "first p50", "first p95", "stop p50", "stop p95",
    "stale", "missed", "unanswered", "gaps", "failures",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.peers",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--carrier", choices=("twilio", "webrtc"), default="twilio", help="(default: twilio)")
    parser.add_argument("--sessions", type=int, default=10, metavar="N", help="calls at a time (default: 10)")
    parser.add_argument("--scenario", choices=tuple(SCENARIOS), default="bargein", help="(default: bargein)")
    parser.add_argument("--seconds", type=float, default=20.0, metavar="S", help="for each server (default: 20)")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="how often each has its turn (default: 1)")
    parser.add_argument(
        "--servers", default=",".join(SERVERS), metavar="A,B", help=f"which of {', '.join(SERVERS)} (default: all)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    options = parser.parse_args()
    names = options.servers.split(",")
    if unknown := [name for name in names if name not in SERVERS]:
        parser.error(f"--servers: no server {unknown[0]!r}; there are {', '.join(SERVERS)}")
    crowd = Crowd(options.scenario, options.carrier)
    runs: dict[str, list[dict[str, object]]] = {name: [] for name in names}
    for _ in range(options.rounds):
        for name in names:
            progress(f"{name}")
            with SERVERS[name](options.carrier, crowd.scenario, options.sessions) as server:

                async def one() -> Outcome:
                    return await load(crowd, server.lines, options.sessions, options.seconds, server.pid, server.health)

                runs[name].append(asyncio.run(one()).figures())
    progress("")
    print(f"{options.carrier}, {options.scenario}, {options.sessions} at a time, {options.seconds:.0f} s each; in ms")
    cost = {name: _mean(figures, "cpu_ms_per_s_per_session") for name, figures in runs.items()}
    ours = cost.get("talkover", float("nan"))
    rows = [
        [name, round(cost[name], 1), f"{cost[name] / ours:.2f}", *_row(several[-1])] for name, several in runs.items()
    ]
    print(table(rows, _HEAD))
    write({"carrier": options.carrier, "sessions": options.sessions, "cpu_ms_per_s": cost, "runs": runs}, options.json)
    return 0


def _mean(figures: list[dict[str, object]], name: str) -> float:
    return sum(cast(float, one[name]) for one in figures) / len(figures)


def _row(figures: dict[str, object]) -> list[object]:
    def of(name: str, share: str) -> object:
        values = figures[name]
        return values[share] if isinstance(values, dict) else "–"

    return [
        of("first_audio", "p50"),
        of("first_audio", "p95"),
        of("barge_in_stop", "p50"),
        of("barge_in_stop", "p95"),
        *(
            figures[name]
            for name in ("stale_pieces", "interruptions_missed", "unanswered", "gaps_over_200_ms", "failures")
        ),
    ]


if __name__ == "__main__":
    sys.exit(main())
