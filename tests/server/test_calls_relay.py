"""A call whose server can be reached through a TURN server alone: coturn, which must be installed (Debian: coturn)."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator

import pytest

from tests.caller import Caller
from tests.server.serving import served
from tests.sessions.fakes import CountingEngine

pytestmark = [
    pytest.mark.wide,
    pytest.mark.skipif(shutil.which("turnserver") is None, reason="turnserver is not installed (Debian: coturn)"),
]


@contextlib.asynccontextmanager
async def relay() -> AsyncIterator[int]:
    """coturn on loopback; its port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    with tempfile.TemporaryDirectory() as folder:
        process = await asyncio.create_subprocess_exec(
            "turnserver",
            *("-n", "--log-file=stdout", "--simple-log", f"--pidfile={folder}/pid", f"--userdb={folder}/db"),
            *("--listening-ip=127.0.0.1", "--relay-ip=127.0.0.1", f"--listening-port={port}"),
            *("--allow-loopback-peers", "--no-tls", "--no-dtls", "--no-cli"),
            *("--lt-cred-mech", "--user=user:password", "--realm=talkover"),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            await _answers(port)
            yield port
        finally:
            process.terminate()
            await process.wait()


async def _answers(port: int) -> None:
    """Until the server answers a binding request (RFC 8489 section 6), which is sent again while it does not."""
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.setblocking(False)
        probe.connect(("127.0.0.1", port))
        async with asyncio.timeout(20):
            while True:
                with contextlib.suppress(TimeoutError, ConnectionRefusedError):
                    await loop.sock_sendall(probe, b"\x00\x01\x00\x00\x21\x12\xa4\x42" + bytes(12))
                    await asyncio.wait_for(loop.sock_recv(probe, 512), 0.2)
                    return
                await asyncio.sleep(0.05)


async def test_a_call_goes_through_the_relay_both_ways() -> None:
    async with relay() as port:
        settings = {
            "ice_servers": (f"turn:127.0.0.1:{port}?transport=udp",),
            "ice_username": "user",
            "ice_credential": "password",
            "ice_relay_only": True,
        }
        async with served(CountingEngine(seconds=0.4, delay=0.0), **settings) as place:
            caller = Caller()
            try:
                async with place.http() as http:
                    await caller.call(http)
                candidates = [line for line in caller.connection.remoteDescription.sdp.split() if line == "relay"]
                assert candidates
                assert "typ host" not in caller.connection.remoteDescription.sdp
                await caller.speak(b"\x00\x20\x00\xe0" * 160 * 25)
                await caller.speak(bytes(640 * 40))
                await caller.event("input_audio_buffer.committed")
                await caller.event("output_audio_buffer.stopped")
                assert caller.sounding
            finally:
                await caller.close()
