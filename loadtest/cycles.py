"""`python -m loadtest.cycles`: does a server come back to where it was after many sessions?

    python -m loadtest.cycles --cycles 200                      # calls over WebRTC
    python -m loadtest.cycles --carrier twilio --cycles 1000
    python -m loadtest.cycles --carrier ws --cycles 1000 --redis

Starts a server of its own with the scripted engine, makes and ends sessions, and compares what the server holds in
between with what it held after the first of them: memory (its slope, and how sure that is), tasks, threads, file
descriptors, files; with `--redis` what is left in a directory too. At the end as many sessions as it takes are opened
at once: a slot that was lost would be missing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx

from loadtest.lines import Line, RealtimeLine, TwilioLine
from tests.bench.report import progress
from tests.caller import Caller
from tests.servers import ServerProcess

SCRIPT = "[[reply]]\ntone_hz = 440\nseconds = 3.0\n"
WARM_UP = 600
"""Sessions before the first look. By then the allocators have found their size, and full is what Python keeps of the
512 newest regular expressions: of a telephone call one is made, of two kilobytes, by which its events are read."""
AT_ONCE = 4
LOOKS = 20
"""How often the server is looked at in a run."""
ROOM = 12
"""Sessions that it takes at a time."""
SETTLE = 5.0
"""Seconds that tasks and descriptors have to go whose session is over; what is there then is left."""
SURE = 3.0
"""Standard errors from which a slope is one."""
SMALL = 0.5
"""Kilobytes a session under which a slope is none: a GB after two million sessions. What is kept on purpose lies below
it: uvloop remembers the last 2,048 addresses that packets went to, each in about as much as this."""
CARRIERS = ("webrtc", "ws", "twilio")


@dataclass(frozen=True, slots=True)
class Holdings:
    """What a server process holds. `resident`: bytes."""

    threads: int
    descriptors: int
    tasks: int
    resident: int
    sessions: int
    calls: int
    files: int


@dataclass(frozen=True, slots=True)
class Slope:
    """Of a line through points, per unit of x, and its standard error."""

    value: float
    error: float

    @classmethod
    def of(cls, points: Sequence[tuple[float, float]]) -> Slope:
        """By least squares. Raises ValueError for fewer than three points, or where all have one x."""
        count = len(points)
        middle = (sum(x for x, _ in points) / count, sum(y for _, y in points) / count) if count else (0.0, 0.0)
        across = sum((x - middle[0]) ** 2 for x, _ in points)
        if count < 3 or not across:
            raise ValueError("a slope needs three points and two places")
        value = sum((x - middle[0]) * (y - middle[1]) for x, y in points) / across
        left = sum((y - middle[1] - value * (x - middle[0])) ** 2 for x, y in points)
        return cls(value, math.sqrt(left / (count - 2) / across))

    @property
    def grows(self) -> bool:
        """Whether it is a growth in kilobytes a session, and not noise."""
        return self.value > SMALL and self.value > SURE * self.error


class _Deaf:
    """Listens to a line and keeps nothing of it but that something came."""

    def __init__(self) -> None:
        self.spoken = asyncio.Event()
        self.reasons: list[str] = []

    def piece(self, at: float, payload: str | bytes, seconds: float) -> None:
        self.spoken.set()

    def cleared(self, at: float) -> None: ...

    def failed(self, at: float, reason: str) -> None:
        self.reasons.append(reason)


async def holdings(
    server: ServerProcess, http: httpx.AsyncClient, scratch: Path, like: Holdings | None = None
) -> Holdings:
    """As soon as no session is left, and as few tasks and descriptors as in `like`. It waits `SETTLE` seconds for that:
    the last ones of a connection go behind its session."""
    proc = Path(f"/proc/{server.pid}")
    loop = asyncio.get_running_loop()
    settled = loop.time() + SETTLE
    async with asyncio.timeout(60):
        while True:
            lines = dict(
                line.rsplit(" ", 1)
                for line in (await http.get("/metrics")).text.splitlines()
                if not line.startswith("#") and line
            )
            calls, sessions = int(lines["talkover_calls"]), int(lines["talkover_sessions"])
            calls += int(lines["talkover_phone_calls"])
            tasks, descriptors = int(lines["talkover_tasks"]), len(os.listdir(proc / "fd"))
            few = like is not None and tasks <= like.tasks and descriptors <= like.descriptors
            if not calls and not sessions and (few or loop.time() > settled):
                break
            await asyncio.sleep(0.05)
    threads = len(os.listdir(proc / "task"))
    files = sum(len(names) for _, _, names in os.walk(scratch))
    return Holdings(threads, descriptors, tasks, server.rss, sessions, calls, files)


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


async def one_session(server: ServerProcess, carrier: str, number: int) -> None:
    """A session in which the agent speaks first, and somebody leaves in the middle of it."""
    line: Line
    if carrier == "ws":
        line = RealtimeLine(server.realtime_url, {"audio": {"input": {"turn_detection": None}}})
    else:
        line = TwilioLine(f"ws://127.0.0.1:{server.port}/telephony/twilio", number)
    deaf = _Deaf()
    await line.connect(deaf)
    try:
        for _ in range(5):
            line.send(b"/" * 216)
        if isinstance(line, RealtimeLine):
            line.say({"type": "response.create"})
        async with asyncio.timeout(20):
            await deaf.spoken.wait()
    finally:
        await line.close()
    if deaf.reasons:
        raise ConnectionError(deaf.reasons[0])


async def cycle(
    server: ServerProcess, cycles: int, carrier: str = "webrtc", scratch: Path | None = None, warm_up: int = WARM_UP
) -> list[tuple[int, Holdings]]:
    """What the server holds after the warm-up, and each time after some more of `cycles` sessions."""
    base = server.base_url.removesuffix("/v1")
    # Connections of its own that it kept for later would count as what the server holds.
    ours = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=base, trust_env=False, timeout=60, limits=ours) as http:
        room = asyncio.Semaphore(AT_ONCE)

        async def limited(number: int) -> None:
            async with room:
                if carrier == "webrtc":
                    await one_call(http, number)
                else:
                    await one_session(server, carrier, number)

        async def some(first: int, count: int) -> None:
            await asyncio.gather(*(limited(number) for number in range(first, first + count)))

        where = scratch or Path(server.log_path).parent
        idle = await holdings(server, http, where)
        await some(0, warm_up)
        looks = [(0, await holdings(server, http, where, idle))]
        done = 0
        while done < cycles:
            count = min(max(1, cycles // LOOKS), cycles - done)
            await some(warm_up + done, count)
            done += count
            looks.append((done, await holdings(server, http, where, looks[0][1])))
            progress(f"{done} of {cycles} sessions, {looks[-1][1].resident / 1e6:.1f} MB")
        return looks


async def all_at_once(server: ServerProcess, count: int) -> int:
    """How many of `count` sessions the server takes at a time."""
    lines = [RealtimeLine(server.realtime_url, {"audio": {"input": {"turn_detection": None}}}) for _ in range(count)]
    taken = await asyncio.gather(*(line.connect(_Deaf()) for line in lines), return_exceptions=True)
    for line, refused in zip(lines, taken, strict=True):
        if refused is None:
            await line.close()
    return sum(refused is None for refused in taken)


@contextlib.contextmanager
def _directory(wanted: bool, scratch: Path) -> Iterator[str | None]:
    if not wanted:
        yield None
        return
    from tests.redis_server import RedisServer

    with RedisServer(scratch) as redis:
        yield redis.url


def _keys(url: str | None) -> int | None:
    """What is left in the directory of sessions."""
    if url is None:
        return None
    import redis

    with redis.Redis.from_url(url) as client:
        return sum(b"session" in key or b"lease" in key for key in client.scan_iter())


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.cycles", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cycles", type=int, default=200, metavar="N", help="sessions (default: 200)")
    parser.add_argument("--carrier", choices=CARRIERS, default="webrtc", help="how they come (default: webrtc)")
    parser.add_argument("--redis", action="store_true", help="with a directory of sessions (needs redis-server)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was seen there as well")
    options = parser.parse_args()
    if options.cycles < 3:
        parser.error("--cycles must be at least 3, or there is no slope")
    with tempfile.TemporaryDirectory(prefix="t") as folder, _directory(options.redis, Path(folder)) as url:
        scratch = Path(folder) / "server"
        scratch.mkdir()
        phone = Path(folder) / "phone.json"
        phone.write_text('{"type": "realtime", "audio": {"input": {"turn_detection": null}}}')
        arguments = ["--max-sessions", str(ROOM), "--phone-session", str(phone), "--phone-greet-ms", "0"]
        arguments += ["--directory", url] if url is not None else []
        with ServerProcess("scripted", SCRIPT, arguments=arguments, env={"TMPDIR": str(scratch)}) as server:
            looks = asyncio.run(cycle(server, options.cycles, options.carrier, scratch))
            taken = asyncio.run(all_at_once(server, ROOM))
            keys = _keys(url)
    before, after = looks[0][1], looks[-1][1]
    slope = Slope.of([(done, seen.resident / 1024) for done, seen in looks])
    figures = {
        "carrier": options.carrier,
        "before": asdict(before),
        "after": asdict(after),
        "kilobytes_per_session": round(slope.value, 2),
        "standard_error": round(slope.error, 2),
        "grows": slope.grows,
        "room_at_the_end": taken,
        "keys_left": keys,
    }
    progress("")
    print(json.dumps(figures, indent=1))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    held = all(
        getattr(after, name) <= getattr(before, name)
        for name in ("threads", "descriptors", "tasks", "sessions", "files")
    )
    return 0 if held and not slope.grows and taken == ROOM and not keys else 1


if __name__ == "__main__":
    sys.exit(main())
