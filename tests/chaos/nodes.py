"""Scenes with server processes of their own: what is done to them is done by the system."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx

from tests.redis_server import RedisServer
from tests.server.test_resumable import Client, ask
from tests.servers import ServerProcess

from .witness import DELTA, back, begin, deltas, history, neighbour, speaking, stale

SCRIPT = """
[[reply]]
text = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
"""
LIBFAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
"""Of Debian's package libfaketime."""
BATCH = 0.5
"""Seconds after which the owner of a session has surely written what happened."""


@contextlib.asynccontextmanager
async def servers(
    number: int, arguments: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> AsyncIterator[list[ServerProcess]]:
    """So many servers, started side by side."""
    found = [ServerProcess("scripted", SCRIPT, env, arguments) for _ in range(number)]
    with contextlib.ExitStack() as running:
        await asyncio.gather(*(asyncio.to_thread(server.start) for server in found))
        for server in found:
            running.push(server)  # started already
        yield found


async def metrics(server: ServerProcess) -> str:
    async with httpx.AsyncClient(trust_env=False) as http:
        return (await http.get(f"http://127.0.0.1:{server.port}/metrics")).text


@dataclass(frozen=True, slots=True)
class TakenOver:
    """`seconds`: from the death of the owner to the first audio of an answer that was asked for afterwards."""

    seconds: float
    stale: int
    history: list[str]


async def killed_owner(redis: RedisServer) -> TakenOver:
    """kill -9 of the server that has the session; its client comes back to another one."""
    async with servers(2, ("--directory", redis.url)) as (here, there), neighbour(there.realtime_url):
        client, created = await begin(here.realtime_url)
        await speaking(client, 20)
        await asyncio.sleep(BATCH)
        os.kill(here.pid, signal.SIGKILL)
        died = time.monotonic()
        await client.ended()
        again = await back(there.realtime_url, created, created["resume_token"], client.last)
        resumed = await again.hear("session.resumed")
        assert (resumed["attachment_generation"], resumed["x_talkover"]) == (2, {"owner_changed": True})
        assert resumed["session"]["audio"]["input"]["turn_detection"] is None
        await ask(again, "go on")
        await again.hear(DELTA)
        seconds = time.monotonic() - died
        told = await history(again, client)
        await again.hear("response.done")
        assert again.numbers()[0] == client.last + 1
        assert {one["response_id"] for one in deltas(again)}.isdisjoint(one["response_id"] for one in deltas(client))
        return TakenOver(seconds, stale(client, again), told)


async def stopped_owner(redis: RedisServer, seconds: float) -> tuple[Client, Client, str]:
    """The owner is stopped for so long (more than its lease holds) and wakes up when another one has the session.

    What was heard on both connections, and the metrics of the one that woke up.
    """
    async with servers(2, ("--directory", redis.url)) as (here, there):
        client, created = await begin(here.realtime_url)
        await speaking(client, 10)
        await asyncio.sleep(BATCH)
        os.kill(here.pid, signal.SIGSTOP)
        stopped = time.monotonic()
        try:
            async with neighbour(there.realtime_url):
                again = await back(there.realtime_url, created, created["resume_token"], client.last)
                await again.hear("session.resumed")
                await ask(again, "go on")
                await again.hear("response.done")
            await asyncio.sleep(max(0.0, stopped + seconds - time.monotonic()))
        finally:
            os.kill(here.pid, signal.SIGCONT)
        await client.ended()
        return client, again, await metrics(here)


@dataclass(frozen=True, slots=True)
class Lost:
    """From the death of the worker: `told`: seconds until its client knows, when the session has its next worker;
    `seconds`: until the first audio of an answer that was asked for then. `status`: of the response that was being
    said. `neighbour`: of the one that another worker was saying."""

    told: float
    seconds: float
    stale: int
    status: str
    neighbour: str
    history: list[str]


async def killed_worker() -> Lost:
    """kill -9 of the process that speaks; the session and its connection stay where they are."""
    question = "Count from one to twelve in words."
    server = ServerProcess("embedded", arguments=("--worker", "process", "--max-sessions", "4"))
    await asyncio.to_thread(server.start)
    with contextlib.ExitStack() as running:
        running.push(server)
        pids = [int(str(one["pid"])) for one in await _workers(server)]
        talks = [(await begin(server.realtime_url))[0] for _ in pids]
        for client in talks:
            await ask(client, question)
        for client in talks:
            await client.hear(DELTA)
        endings = {asyncio.create_task(client.hear("response.done")): client for client in talks}
        os.kill(pids[0], signal.SIGKILL)
        died = time.monotonic()
        (first,), (second,) = await asyncio.wait(endings, return_when=asyncio.FIRST_COMPLETED)
        heard = time.monotonic() - died
        mine = endings[first]
        await ask(mine, "Say hello.")
        await mine.hear(DELTA)
        seconds = time.monotonic() - died
        await mine.hear("response.done")
        told = await history(mine)
        status, other = (one["response"]["status"] for one in (first.result(), await second))
        return Lost(heard, seconds, sum(map(stale, talks)), status, other, told)


async def _workers(server: ServerProcess) -> list[dict[str, object]]:
    async with httpx.AsyncClient(trust_env=False) as http:
        body = (await http.get(f"http://127.0.0.1:{server.port}/healthz")).json()
    return list(body["workers"])


async def full_disk(folder: Path) -> tuple[list[str], Client, dict[str, object], str]:
    """From the middle of an answer on no file may grow beyond 4 KB: every write of the recorder fails.

    The history, what was heard, the manifest of the recording, and the server's log.
    """
    async with servers(1, ("--record", str(folder))) as (server,):
        client, created = await begin(server.realtime_url)
        await speaking(client, 10)
        async with neighbour(server.realtime_url):
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (4096, 4096))
            await client.hear("response.done")
            await ask(client, "go on")
            assert (await client.hear("response.done"))["response"]["status"] == "completed"
        told = await history(client)
        await client.say("session.close")
        await client.ended()
        session = created["session"]["id"]
        log = server.log
    manifest = json.loads((folder / session / "manifest.json").read_text())
    return told, client, manifest, log


async def clock_steps(folder: Path) -> tuple[list[str], Client, list[float]]:
    """The wall clock jumps an hour ahead and a day back in the middle of an answer.

    The history, what was heard, and what the server's clock was ahead of ours after each step, in seconds.
    """
    assert LIBFAKETIME is not None
    file = folder / "offset"
    file.write_text("+0s")
    env = {
        "LD_PRELOAD": str(LIBFAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    ahead = []
    async with servers(1, env=env) as (server,), neighbour(server.realtime_url):
        client, _ = await begin(server.realtime_url)
        await speaking(client, 5)
        for step in ("+3600s", "-86400s"):
            file.write_text(step)
            ahead.append(await _ahead(server))
            for _ in range(5):
                await client.hear(DELTA)
        assert (await client.hear("response.done"))["response"]["status"] == "completed"
        await ask(client, "go on")
        assert (await client.hear("response.done"))["response"]["status"] == "completed"
        return await history(client), client, ahead


async def _ahead(server: ServerProcess) -> float:
    # The date in an answer may be a second old: the HTTP server does not make a new one for each.
    await asyncio.sleep(1.1)
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = await http.get(f"http://127.0.0.1:{server.port}/healthz")
    return parsedate_to_datetime(answer.headers["Date"]).timestamp() - time.time()
