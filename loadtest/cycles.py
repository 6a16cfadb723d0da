"""`python -m loadtest.cycles`: does a server come back to where it was after many calls?

    python -m loadtest.cycles --cycles 200

Starts a server of its own with the scripted engine, makes and ends calls, and compares what the server then holds with
what it held after the first of them: threads, file descriptors, memory, sessions, calls.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx

from tests.caller import Caller
from tests.servers import ServerProcess

SCRIPT = "[[reply]]\ntone_hz = 440\nseconds = 3.0\n"
WARM_UP = 150
"""Calls before the first look: allocators and caches fill, and the collector has found its rhythm."""
AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Holdings:
    """What a server process holds. `resident`: bytes."""

    threads: int
    descriptors: int
    resident: int
    sessions: int
    calls: int


async def holdings(server: ServerProcess, http: httpx.AsyncClient) -> Holdings:
    """As soon as no call is left."""
    async with asyncio.timeout(60):
        while True:
            lines = dict(
                line.rsplit(" ", 1)
                for line in (await http.get("/metrics")).text.splitlines()
                if not line.startswith("#") and line
            )
            calls, sessions = int(lines["talkover_calls"]), int(lines["talkover_sessions"])
            if not calls and not sessions:
                break
            await asyncio.sleep(0.05)
    proc = Path(f"/proc/{server.pid}")
    threads = len(os.listdir(proc / "task"))
    return Holdings(threads, len(os.listdir(proc / "fd")), server.rss, sessions, calls)


async def one_call(http: httpx.AsyncClient, number: int) -> None:
    """A call in which something is said; every third one leaves without a word, every third by hanging up."""
    caller = Caller()
    try:
        await caller.call(http, {"type": "realtime", "audio": {"input": {"turn_detection": None}}})
        await caller.event("session.created")
        caller.say({"type": "response.create"})
        await caller.event("output_audio_buffer.started")
        for _ in range(5):
            caller.send_sound(bytes(640))
        if number % 3 == 0:
            await http.post(f"/v1/realtime/calls/{caller.call_id}/hangup")
    finally:
        await caller.close()


async def cycle(server: ServerProcess, cycles: int) -> tuple[Holdings, Holdings]:
    """What the server holds after the warm-up, and after `cycles` more calls."""
    async with httpx.AsyncClient(base_url=server.base_url.removesuffix("/v1"), trust_env=False, timeout=60) as http:
        room = asyncio.Semaphore(AT_ONCE)

        async def limited(number: int) -> None:
            async with room:
                await one_call(http, number)

        await asyncio.gather(*(limited(number) for number in range(WARM_UP)))
        before = await holdings(server, http)
        await asyncio.gather(*(limited(number) for number in range(cycles)))
        return before, await holdings(server, http)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtest.cycles", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cycles", type=int, default=200, metavar="N", help="calls (default: 200)")
    options = parser.parse_args()
    with ServerProcess("scripted", SCRIPT) as server:
        before, after = asyncio.run(cycle(server, options.cycles))
        kilobytes = (after.resident - before.resident) / 1024 / options.cycles
    print(json.dumps({"before": asdict(before), "after": asdict(after), "kilobytes_per_call": round(kilobytes, 1)}))
    return 0 if (after.threads, after.descriptors) <= (before.threads, before.descriptors) else 1


if __name__ == "__main__":
    sys.exit(main())
