"""The scenario "stream": the agent speaks all the time while the microphone sends room noise."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import httpx

from loadtest.baseline import EchoProcess
from loadtest.measure import LoadOf, Used, measure, talking
from loadtest.server_cpu import confine
from loadtest.sessions import EchoSession, LoadSession, room_noise
from tests.servers import ServerProcess

SCRIPT = "[[reply]]\ntone_hz = 440\nseconds = 30.0\n"
GAP_S = 0.2
"""A gap is a longer time between two frames: that much is ahead of the ear."""


def _sessions(server: ServerProcess, carrier: str, count: int, vad: bool) -> Sequence[LoadOf]:
    if carrier == "ws":
        noise = room_noise()
        return [LoadSession(server.realtime_url, vad, noise, seed) for seed in range(count)]
    from loadtest import calls
    from server.carriers.webrtc.pacer import Pacer

    packets, pacer = calls.room_noise(), Pacer()
    url = server.base_url.removesuffix("/v1")
    return [calls.CallSession(url, vad, packets, seed, pacer) for seed in range(count)]


async def load(
    server: ServerProcess, carrier: str, sessions: int, seconds: float, vad: bool
) -> tuple[dict[str, object], float]:
    """Load the server and return the figures, and CPU in µs per frame. `carrier`: "ws" or "webrtc"."""
    running = _sessions(server, carrier, sessions, vad)
    print(f"{sessions} sessions, {seconds:.0f} s", file=sys.stderr)
    async with talking(running) as failed:
        used = await measure(running, server.pid, seconds)
        gaps = [one.tally.gap for one in running]
        async with httpx.AsyncClient(trust_env=False) as client:
            state = (await client.get(f"http://127.0.0.1:{server.port}/healthz")).json()
    tallies = [one.tally for one in running]
    figures: dict[str, object] = {
        "carrier": carrier,
        "sessions": sessions,
        "vad": vad,
        "cpu_ms_per_s_per_session": round(used.per_session(sessions), 2),
        "cpu_us_per_frame": round(used.per_frame, 1),
        "of_it_in_other_threads": round(used.cpu.others / seconds / sessions * 1000, 2),
        "core_share": round(used.cpu.total / seconds, 3),
        "frames_per_s_per_session": round(used.frames / seconds / sessions, 1),
        "longest_gap_ms": round(max(gaps) * 1000, 1),
        "gaps_over_200_ms": sum(gap > GAP_S for gap in gaps),
        "loop_lag_ms_p99": state["loop_lag_ms_p99_10s"],
        "resident_mb": state["resident_mb"],
        "errors": sum(len(tally.errors) for tally in tallies),
        "failed": [str(failure) for failure in failed][:3],
        "late_sends": sum(tally.late_sends for tally in tallies),
    }
    return figures, used.per_frame


async def echo(server: EchoProcess, sessions: int, seconds: float) -> Used:
    """What the echo server uses for so many sessions that send what `load`'s send and get it back."""
    noise = room_noise()
    running = [EchoSession(server.url, noise, seed) for seed in range(sessions)]
    async with talking(running):
        return await measure(running, server.pid, seconds)


def main(carrier: str, sessions: int, seconds: float, vad: bool, baseline: bool, path: Path | None) -> int:
    """Load a server of its own and print the figures."""
    with ServerProcess("scripted", SCRIPT) as server, EchoProcess() as bare:
        confine(bare.pid, server.pid)
        yardstick = [asyncio.run(echo(bare, sessions, seconds / 2))] if baseline else []
        figures, cost_per_frame = asyncio.run(load(server, carrier, sessions, seconds, vad))
        if baseline:
            yardstick.append(asyncio.run(echo(bare, sessions, seconds / 2)))
            per_frame = [used.per_frame for used in yardstick]
            figures["echo_ms_per_s_per_session"] = [round(used.per_session(sessions), 2) for used in yardstick]
            figures["echo_us_per_frame"] = [round(cost, 1) for cost in per_frame]
            figures["ratio_to_echo"] = round(cost_per_frame / (sum(per_frame) / len(per_frame)), 2)
    print(json.dumps(figures, indent=1))
    if path is not None:
        path.write_text(json.dumps(figures, indent=1) + "\n")
    return 0
