"""`--worker process` over a real socket: a worker that is killed in mid-utterance, and what its clients are told."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.servers import ServerProcess

pytestmark = [
    pytest.mark.models,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="looks at processes in /proc"),
]

QUIET = base64.b64encode(bytes(1920 * 2)).decode()


def worker_of(server: ServerProcess) -> int | None:
    """The process that has the model: the child whose memory holds torch."""
    found = []
    for task in Path(f"/proc/{server.pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            if "libtorch" in Path(f"/proc/{child}/maps").read_text():
                found.append(child)
    return found[0] if found else None


def running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


async def speak_until(socket: ClientConnection, kind: str, told: list[dict[str, Any]]) -> None:
    """Send silence in real time until a message of this type has come."""

    async def send() -> None:
        while True:
            await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": QUIET}))
            await asyncio.sleep(0.08)

    sending = asyncio.create_task(send())
    try:
        async with asyncio.timeout(60):
            async for message in socket:
                told.append(json.loads(message))
                if told[-1]["type"] == kind:
                    return
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def refused(url: str) -> tuple[int, float, dict[str, Any]]:
    with pytest.raises(InvalidStatus) as failure:
        await connect(url)
    response = failure.value.response
    return response.status_code, float(response.headers["Retry-After"]), json.loads(response.body or b"{}")["error"]


async def scenario(server: ServerProcess) -> int:
    """Returns the worker that is there at the end."""
    url, killed = server.realtime_url, worker_of(server)
    assert killed is not None
    async with connect(url) as socket:
        told: list[dict[str, Any]] = []
        await speak_until(socket, "response.output_audio.delta", told)
        # Full at once, not after a wait, and with a guess.
        status, wait, error = await refused(url)
        assert (status, error["code"]) == (503, "server_busy")
        assert wait >= 1
        os.kill(killed, signal.SIGKILL)
        told.clear()
        try:
            await speak_until(socket, "never", told)
        except ConnectionClosed as closed:
            reason = closed.rcvd.reason if closed.rcvd is not None else ""
        else:
            reason = socket.close_reason or ""
    assert "worker_lost" in reason or any("worker_lost" in json.dumps(message) for message in told), (reason, told[-3:])
    async with asyncio.timeout(60):
        while True:
            try:
                socket = await connect(url)
                break
            except InvalidStatus as full:
                await asyncio.sleep(min(1.0, float(full.response.headers["Retry-After"])))
    async with socket:
        told = []
        await speak_until(socket, "response.output_audio.delta", told)
    heir = worker_of(server)
    assert heir not in (None, killed)
    return heir or 0


def test_a_killed_worker_ends_its_session_by_name_and_the_next_one_speaks_and_ctrl_c_leaves_nobody() -> None:
    arguments = ["--random-weights", "tiny", "--worker", "process", "--max-sessions", "1"]
    with ServerProcess("moshi", arguments=arguments) as server:
        heir = asyncio.run(scenario(server))
        health: Any = server.health()
        (report,) = health["workers"]
        assert (report["state"], report["pid"], report["restarts"]) == ("ready", heir, 1)
        assert "SIGKILL" in report["trouble"]
        pid = server.pid
        os.killpg(pid, signal.SIGINT)
        while running(pid):
            time.sleep(0.05)
        assert not running(heir)
        assert "Traceback" not in server.log, server.log[-2000:]
