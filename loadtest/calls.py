"""Many calls over WebRTC at once: Opus packets, 50 a second each way, as in `sessions` for the WebSocket.

Packets are counted as they arrive and are not decoded, so that this process can make more calls than the server takes.
"""

from __future__ import annotations

import asyncio
import time

import httpx
import numpy as np

from codec.opus import OpusEncoder
from loadtest.sessions import SAMPLES, Tally
from server.carriers.webrtc.pacer import Pacer
from tests.caller import Caller, Json


def room_noise(dbfs: float = -60.0) -> list[bytes]:
    """Ten seconds of room noise as a browser's encoder makes it, a packet per 20 ms."""
    noise = np.random.default_rng(7).normal(size=500 * 2 * SAMPLES) * 32768 * 10 ** (dbfs / 20)
    pcm = np.clip(np.round(noise), -32768, 32767).astype("<i2").tobytes()
    encoder = OpusEncoder(16_000, application="voip", bitrate=32_000)
    return [encoder.encode(pcm[start : start + 640]) for start in range(0, len(pcm), 640)]


class CallSession(Caller):
    """One call of the load."""

    def __init__(self, url: str, vad: bool, noise: list[bytes], seed: int, pacer: Pacer) -> None:
        """`url`: of the server, without a path. `pacer` sends for all calls."""
        super().__init__(playback=False)
        self.tally = Tally()
        self._url = url
        self._vad = vad
        self._noise = noise
        self._at = seed * 37 % len(noise)
        self._pacer = pacer
        self._last = 0.0

    async def run(self, began: asyncio.Event, until: asyncio.Event) -> None:
        """Call, and talk from `began` until `until`."""
        turns = {"type": "server_vad"} if self._vad else None
        session = {"type": "realtime", "audio": {"input": {"turn_detection": turns}}}
        try:
            async with httpx.AsyncClient(base_url=self._url, trust_env=False, timeout=60) as http:
                await self.call(http, session)
            self.on_event = self._again
            self.tally.connected.set()
            await began.wait()
            self.say({"type": "response.create"})
            self._pacer.add(self)
            await until.wait()
        finally:
            self._pacer.remove(self)
            await self.close()

    def tick(self, due: int, missed: int) -> None:
        """The pacer's."""
        self.tally.late_sends += missed
        for _ in range(due):
            self._at = (self._at + 1) % len(self._noise)
            self.send_packet(self._noise[self._at])

    def packet(self, sequence: int, timestamp: int, payload: bytes) -> None:
        now = time.monotonic()
        if self._last:
            self.tally.gap = max(self.tally.gap, now - self._last)
        self._last = now
        self.tally.frames += 1

    def _again(self, event: Json) -> None:
        self.events.clear()
        if event["type"] == "response.done":
            self.say({"type": "response.create"})
        elif event["type"] == "error":
            self.tally.errors.append(str(event["error"]))
