"""Two hundred connects and drops in each state: what a session took, it gave back.

The server is a process of its own. Its tasks, threads and file descriptors must be as many as before, and its memory
must not grow with the number of sessions that there were.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from tests.servers import ServerProcess

TIMES = 200
AT_ONCE = 10
SCRIPT = "[[reply]]\ntone_hz = 440\nseconds = 20.0\n"
APPEND = json.dumps({"type": "input_audio_buffer.append", "audio": "AAAA" * 320})
UPDATE = json.dumps({"type": "session.update", "session": {"type": "realtime", "audio": {"input": {}}}})
GROWTH = 1e6
"""Bytes by which the process may grow in a round of 200 sessions: 5 kB for each, less than any of them holds."""
ROUNDS = 10
"""An allocator takes memory in steps, and now and then one falls into a round. A leak grows in every one."""

STATES = (
    "refused",
    "greeted",
    "configured",
    "listening",
    "speaking",
    "not reading",
    "cancelled",
    "waiting for a return",
)


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with ServerProcess("scripted", SCRIPT, arguments=["--resume-grace-s", "1"]) as running:
        yield running


async def _until(connection: ClientConnection, *kinds: str) -> None:
    async with asyncio.timeout(30):
        while json.loads(await connection.recv())["type"] not in kinds:
            pass


async def _walk(connection: ClientConnection, state: str) -> None:
    await _until(connection, "session.created")
    if state == "greeted":
        return
    await connection.send(UPDATE)
    await _until(connection, "session.updated")
    if state == "configured":
        return
    for _ in range(20):
        await connection.send(APPEND)
    if state == "listening":
        return
    await connection.send('{"type":"response.create"}')
    if state == "not reading":
        return
    await _until(connection, "response.output_audio.delta")
    if state == "cancelled":
        await connection.send('{"type":"response.cancel"}')
        await _until(connection, "response.done")


async def _visit(server: ServerProcess, state: str) -> None:
    if state == "refused":
        with pytest.raises(InvalidStatus) as refused:
            await connect(server.realtime_url + "&intent=nothing", compression=None, proxy=None)
        assert refused.value.response.status_code == 400
        return
    url = server.realtime_url + ("&duplex=1" if state == "waiting for a return" else "")
    connection = await connect(url, compression=None, proxy=None, max_size=None)
    await _walk(connection, state)
    raw = connection.transport.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.transport.abort()
    await connection.wait_closed()


async def _visits(server: ServerProcess, state: str, times: int) -> None:
    for _ in range(times // AT_ONCE):
        await asyncio.gather(*(_visit(server, state) for _ in range(AT_ONCE)))


async def _settled(server: ServerProcess) -> tuple[int, int, int]:
    """Tasks, threads and descriptors of the server once every session is gone."""
    async with asyncio.timeout(30), httpx.AsyncClient(trust_env=False) as http:
        while True:
            text = (await http.get(f"http://127.0.0.1:{server.port}/metrics")).text
            seen = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
            if float(seen["talkover_sessions"]) == 0:
                break
    process = Path(f"/proc/{server.pid}")
    return int(float(seen["talkover_tasks"])), len(os.listdir(process / "task")), len(os.listdir(process / "fd"))


@pytest.mark.models
@pytest.mark.parametrize("state", STATES)
async def test_two_hundred_connects_and_drops_leave_nothing_behind(server: ServerProcess, state: str) -> None:
    await _visits(server, state, AT_ONCE * 5)
    before = await _settled(server)
    grown = []
    for _ in range(ROUNDS):
        memory = server.rss
        await _visits(server, state, TIMES)
        async with asyncio.timeout(10):
            # A descriptor is closed a moment after its session: the kernel's reset comes first.
            while any(left > had for left, had in zip(await _settled(server), before, strict=True)):
                pass
        grown.append(server.rss - memory)
        if grown[-1] < GROWTH:
            return
    pytest.fail(f"the server grew by {grown} bytes in rounds of {TIMES} sessions")
