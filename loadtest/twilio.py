"""`python -m loadtest.twilio`: what a server needs for N telephone calls at a time.

    python -m loadtest.twilio --calls 50 --seconds 20           # push to talk
    python -m loadtest.twilio --calls 50 --seconds 20 --vad     # with speech detection

Starts a server of its own with the scripted engine, confined to one core, and calls it over Twilio's protocol from this
process on another: 50 frames of µ-law a second each way, marks returned as they come.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import websockets

from codec import g711
from loadtest.server_cpu import confine, cpu
from server.dialects.telephony.base import base64_text
from tests.servers import ServerProcess

SCRIPT = "[[reply]]\ntone_hz = 440\nseconds = 600.0\n"
SETTLE = 4.0
FRAME_S = 0.02
SAMPLES = 160


def room_noise(seconds: int = 10, dbfs: float = -60.0) -> list[str]:
    """Payloads of room noise, one a frame."""
    noise = np.random.default_rng(7).normal(size=seconds * 8000) * 32768 * 10 ** (dbfs / 20)
    codes = g711.compress(np.clip(np.round(noise), -32768, 32767).astype(np.int16), "ulaw")
    return [base64_text(codes[at : at + SAMPLES]) for at in range(0, len(codes), SAMPLES)]


class LoadCall:
    """One call of the load."""

    def __init__(self, url: str, number: int, noise: list[str]) -> None:
        self._url = url
        self._number = number
        self._noise = noise
        self.frames = self.marks = self.clears = 0

    async def run(self, until: asyncio.Event) -> None:
        """Call, and send noise until `until`."""
        await asyncio.sleep(self._number * 0.618034 % 1)
        sid = f"MZ{self._number}"
        start = {
            "streamSid": sid,
            "callSid": f"CA{self._number}",
            "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
            "customParameters": {"greet": "0"},
        }
        async with websockets.connect(self._url, compression=None, proxy=None) as socket:
            await socket.send(json.dumps({"event": "start", "sequenceNumber": "1", "start": start, "streamSid": sid}))
            reader = asyncio.create_task(self._read(socket))
            try:
                await self._write(socket, sid, until)
            finally:
                reader.cancel()

    async def _write(self, socket: websockets.ClientConnection, sid: str, until: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        due, chunk = loop.time(), 0
        while not until.is_set():
            chunk += 1
            payload = self._noise[(chunk + self._number * 37) % len(self._noise)]
            await socket.send(
                f'{{"event":"media","sequenceNumber":"{chunk + 1}","media":{{"track":"inbound","chunk":"{chunk}",'
                f'"timestamp":"{20 * chunk - 20}","payload":"{payload}"}},"streamSid":"{sid}"}}'
            )
            due += FRAME_S
            await asyncio.sleep(max(0.0, due - loop.time()))

    async def _read(self, socket: websockets.ClientConnection) -> None:
        async for message in socket:
            text = str(message)
            if text.startswith('{"event":"media"'):
                self.frames += 1
            elif text.startswith('{"event":"mark"'):
                self.marks += 1
                await socket.send(text)
            else:
                self.clears += 1


async def load(server: ServerProcess, calls: int, seconds: float) -> dict[str, object]:
    """Load the server and return the figures."""
    noise, until = room_noise(), asyncio.Event()
    running = [LoadCall(f"ws://127.0.0.1:{server.port}/telephony/twilio", one, noise) for one in range(calls)]
    tasks = [asyncio.create_task(one.run(until)) for one in running]
    await asyncio.sleep(SETTLE)
    frames, used = sum(one.frames for one in running), cpu(server.pid)
    await asyncio.sleep(seconds)
    spent = cpu(server.pid) - used
    got = sum(one.frames for one in running) - frames
    until.set()
    failed = [one for one in await asyncio.gather(*tasks, return_exceptions=True) if one is not None]
    return {
        "calls": calls,
        "cpu_ms_per_s_per_call": round(spent.total / seconds / calls * 1000, 2),
        "event_loop_ms_per_s_per_call": round(spent.main / seconds / calls * 1000, 2),
        "core_share": round(spent.total / seconds, 3),
        "frames_per_s_per_call": round(got / seconds / calls, 1),
        "marks_per_s_per_call": round(sum(one.marks for one in running) / (seconds + SETTLE) / calls, 1),
        "clears": sum(one.clears for one in running),
        "failed": [str(one) for one in failed][:3],
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtest.twilio", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--calls", type=int, default=50, metavar="N", help="calls at a time (default: 50)")
    parser.add_argument("--seconds", type=float, default=20.0, metavar="S", help="how long to measure (default: 20)")
    parser.add_argument("--vad", action="store_true", help="with speech detection (default: push to talk)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    options = parser.parse_args()
    turns = {"type": "server_vad"} if options.vad else None
    session = {"type": "realtime", "audio": {"input": {"turn_detection": turns}}}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(session, file)
        file.flush()
        with ServerProcess("scripted", SCRIPT, arguments=["--phone-session", file.name]) as server:
            confine(server.pid)
            figures = asyncio.run(load(server, options.calls, options.seconds))
    figures = {"vad": options.vad, **figures}
    print(json.dumps(figures, indent=1))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
