"""Many Realtime sessions over WebSocket at once: µ-law as JSON, 50 frames a second each way.

Each session is push to talk or has turn detection; the agent speaks all the time (scripted tones, asked for again and
again) while the microphone sends room noise. What is counted: frames that came, and the longest gap between two.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from dataclasses import dataclass, field

import numpy as np
import websockets

from codec import g711

FRAME_S = 0.02
SAMPLES = 160
"""Of µ-law at 8 kHz in a frame."""


@dataclass(slots=True)
class Tally:
    """What one session got. `gap`: longest time between two frames of one response, seconds. `connected`: is set once
    it is ready to talk."""

    connected: asyncio.Event = field(default_factory=asyncio.Event)
    frames: int = 0
    errors: list[str] = field(default_factory=list)
    gap: float = 0.0
    late_sends: int = 0


def room_noise(dbfs: float = -60.0) -> list[str]:
    """Append events of ten seconds of room noise, one a frame."""
    noise = np.random.default_rng(7).normal(size=500 * SAMPLES) * 32768 * 10 ** (dbfs / 20)
    pcm = np.clip(np.round(noise), -32768, 32767).astype("<i2").tobytes()
    codes = g711.encode(pcm, "ulaw")
    return [
        '{"type":"input_audio_buffer.append","audio":"'
        + base64.b64encode(codes[start : start + SAMPLES]).decode()
        + '"}'
        for start in range(0, len(codes), SAMPLES)
    ]


class LoadSession:
    """One session of the load."""

    def __init__(self, url: str, vad: bool, noise: list[str], seed: int) -> None:
        """`seed` chooses where in the noise it begins and, within a second, when."""
        self.tally = Tally()
        self._phase = seed * 0.618034 % 1
        self._url = url
        self._vad = vad
        self._noise = noise
        self._at = seed * 37 % len(noise)
        self._last = 0.0

    async def run(self, began: asyncio.Event, until: asyncio.Event) -> None:
        """Connect, set up, and talk from `began` until `until`."""
        async with websockets.connect(self._url, compression=None, max_size=None, proxy=None) as socket:
            media = {"type": "audio/pcmu"}
            turns = {"type": "server_vad"} if self._vad else None
            session = {
                "type": "realtime",
                "audio": {"input": {"format": media, "turn_detection": turns}, "output": {"format": media}},
            }
            await socket.send(json.dumps({"type": "session.update", "session": session}))
            reader = asyncio.create_task(self._read(socket))
            self.tally.connected.set()
            await began.wait()
            # People do not begin at one time: neither their frames nor their questions fall together.
            await asyncio.sleep(self._phase)
            await socket.send('{"type":"response.create"}')
            writer = asyncio.create_task(_write(socket, self._noise, self._at, self.tally))
            await until.wait()
            await _stop(reader, writer)

    async def _read(self, socket: websockets.ClientConnection) -> None:
        async for message in socket:
            text = message if isinstance(message, str) else message.decode()
            if text.startswith('{"type":"response.output_audio.delta"'):
                now = time.monotonic()
                if self._last:
                    self.tally.gap = max(self.tally.gap, now - self._last)
                self._last = now
                self.tally.frames += 1
            elif '"type":"response.done"' in text:
                self._last = 0.0
                await socket.send('{"type":"response.create"}')
            elif '"type":"error"' in text:
                self.tally.errors.append(text)


class EchoSession:
    """One session of a load that gets its own messages back."""

    def __init__(self, url: str, noise: list[str], seed: int) -> None:
        """`seed` as for `LoadSession`."""
        self.tally = Tally()
        self._phase = seed * 0.618034 % 1
        self._url = url
        self._noise = noise
        self._at = seed * 37 % len(noise)

    async def run(self, began: asyncio.Event, until: asyncio.Event) -> None:
        """Connect, and send from `began` until `until`."""
        async with websockets.connect(self._url, compression=None, proxy=None) as socket:
            reader = asyncio.create_task(self._read(socket))
            self.tally.connected.set()
            await began.wait()
            await asyncio.sleep(self._phase)
            writer = asyncio.create_task(_write(socket, self._noise, self._at, self.tally))
            await until.wait()
            await _stop(reader, writer)

    async def _read(self, socket: websockets.ClientConnection) -> None:
        async for _ in socket:
            self.tally.frames += 1


async def _write(socket: websockets.ClientConnection, noise: list[str], at: int, tally: Tally) -> None:
    """Send the messages `noise` from number `at` on, over and over, one a frame."""
    loop = asyncio.get_running_loop()
    due = loop.time()
    while True:
        due += FRAME_S
        await asyncio.sleep(due - loop.time())
        if loop.time() - due > FRAME_S:
            tally.late_sends += 1
        at = (at + 1) % len(noise)
        await socket.send(noise[at])


async def _stop(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
