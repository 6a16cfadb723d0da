"""`python -m loadtest`: what a server needs for N sessions at a time.

    python -m loadtest --sessions 100 --seconds 20              # push to talk
    python -m loadtest --sessions 100 --seconds 20 --vad        # with speech detection
    python -m loadtest --carrier webrtc --sessions 50           # calls instead of WebSockets

Starts a server of its own with the scripted engine, confined to one core, and loads it from this process on another.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from loadtest.server_cpu import cpu_seconds, threads
from loadtest.sessions import LoadSession, room_noise
from tests.servers import ServerProcess

if TYPE_CHECKING:
    from loadtest.calls import CallSession

SCRIPT = "[[reply]]\ntone_hz = 440\nseconds = 30.0\n"
SETTLE = 3.0


def _sessions(server: ServerProcess, carrier: str, count: int, vad: bool) -> Sequence[LoadSession | CallSession]:
    if carrier == "websocket":
        noise = room_noise()
        return [LoadSession(server.realtime_url, vad, noise, seed) for seed in range(count)]
    from loadtest import calls
    from server.carriers.webrtc.pacer import Pacer

    packets, pacer = calls.room_noise(), Pacer()
    url = server.base_url.removesuffix("/v1")
    return [calls.CallSession(url, vad, packets, seed, pacer) for seed in range(count)]


async def load(server: ServerProcess, carrier: str, sessions: int, seconds: float, vad: bool) -> dict[str, object]:
    """Load the server and return the figures. `carrier`: "websocket" or "webrtc"."""
    began, until = asyncio.Event(), asyncio.Event()
    health, pid = f"http://127.0.0.1:{server.port}/healthz", server.pid
    running = _sessions(server, carrier, sessions, vad)
    tasks = [asyncio.create_task(one.run(began, until)) for one in running]
    print(f"{sessions} sessions connect", file=sys.stderr)
    await asyncio.sleep(0.5 + sessions * (0.01 if carrier == "websocket" else 0.1))
    began.set()
    await asyncio.sleep(SETTLE)
    frames = sum(one.tally.frames for one in running)
    cpu, by_thread = cpu_seconds(pid), threads(pid)
    print(f"measuring for {seconds:.0f} s", file=sys.stderr)
    await asyncio.sleep(seconds)
    used = cpu_seconds(pid) - cpu
    spent = {name: value - by_thread.get(name, 0.0) for name, value in threads(pid).items()}
    got = sum(one.tally.frames for one in running) - frames
    async with httpx.AsyncClient(trust_env=False) as client:
        state = (await client.get(health)).json()
    until.set()
    failed = [result for result in await asyncio.gather(*tasks, return_exceptions=True) if result is not None]
    tallies = [one.tally for one in running]
    return {
        "carrier": carrier,
        "sessions": sessions,
        "vad": vad,
        "cpu_ms_per_s_per_session": round(used / seconds / sessions * 1000, 2),
        "core_share": round(used / seconds, 3),
        "by_thread_ms_per_s_per_session": {
            name: round(value / seconds / sessions * 1000, 2) for name, value in spent.items() if value > 0.01 * seconds
        },
        "frames_per_s_per_session": round(got / seconds / sessions, 1),
        "longest_gap_ms": round(max(tally.gap for tally in tallies) * 1000, 1),
        "gaps_over_200_ms": sum(tally.gap > 0.2 for tally in tallies),
        "loop_lag_ms_p99": state["loop_lag_ms_p99"],
        "resident_mb": state["resident_mb"],
        "errors": sum(len(tally.errors) for tally in tallies),
        "failed": [str(failure) for failure in failed][:3],
        "late_sends": sum(tally.late_sends for tally in tallies),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest", description=(__doc__ or "").partition("\n")[0], epilog="Needs Linux and two cores."
    )
    parser.add_argument("--sessions", type=int, default=100, metavar="N", help="sessions at a time (default: 100)")
    parser.add_argument("--seconds", type=float, default=20.0, metavar="S", help="how long to measure (default: 20)")
    parser.add_argument(
        "--carrier", choices=("websocket", "webrtc"), default="websocket", help="how they connect (default: websocket)"
    )
    parser.add_argument("--vad", action="store_true", help="with speech detection (default: push to talk)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    with ServerProcess("scripted", SCRIPT) as server:
        if len(cores) > 1:
            for task in Path(f"/proc/{server.pid}/task").iterdir():
                os.sched_setaffinity(int(task.name), {cores[0]})
            os.sched_setaffinity(0, set(cores[1:]))
        figures = asyncio.run(load(server, options.carrier, options.sessions, options.seconds, options.vad))
    print(json.dumps(figures, indent=1))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
