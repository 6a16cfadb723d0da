"""What a client over WebSocket hears, recorded by itself, against the server's own account of it."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sessions.core.config import SessionConfig
from sessions.core.timeline import from_ms
from sessions.replay.reader import Recording
from tests.server.serving import served
from tests.sessions.fakes import CountingEngine

RATE = 24_000
LOUD = base64.b64encode(b"\x00\x20" * 480).decode()
QUIET = base64.b64encode(bytes(960)).decode()


class Ear:
    """A client's loudspeaker: plays what comes one after the other, from when it came, and throws away when told."""

    def __init__(self) -> None:
        self._pieces: list[tuple[float, NDArray[np.int16]]] = []
        self._ends = 0.0

    def play(self, now: float, pcm: bytes) -> None:
        samples = np.frombuffer(pcm, "<i2")
        at = max(now, self._ends)
        self._pieces.append((at, samples))
        self._ends = at + len(samples) / RATE

    def flush(self, now: float) -> None:
        kept = []
        for at, samples in self._pieces:
            if at < now:
                kept.append((at, samples[: max(0, round((now - at) * RATE))]))
        self._pieces, self._ends = kept, min(self._ends, now)

    def heard(self) -> NDArray[np.int16]:
        end = max(round(at * RATE) + len(samples) for at, samples in self._pieces)
        out = np.zeros(end, np.int16)
        for at, samples in self._pieces:
            first = round(at * RATE)
            out[first : first + len(samples)] = samples
        return out


async def talk(url: str, ear: Ear) -> None:
    """A question, an answer that is interrupted after a second, and the answer to that."""
    from websockets.asyncio.client import connect

    async with connect(url, proxy=None) as socket:
        loop = asyncio.get_running_loop()
        began = loop.time()
        finished = asyncio.Event()
        answered = asyncio.Event()

        async def listen() -> None:
            async for message in socket:
                event = json.loads(message)
                now = loop.time() - began
                if event["type"] == "response.output_audio.delta":
                    ear.play(now, base64.b64decode(event["delta"]))
                    answered.set()
                elif event["type"] == "input_audio_buffer.speech_started":
                    ear.flush(now)
                elif event["type"] == "response.done" and event["response"]["status"] == "completed":
                    finished.set()

        async def speak() -> None:
            audio = [QUIET] * 10 + [LOUD] * 40
            number, interrupting = 0, False
            while not finished.is_set():
                number += 1
                piece = audio.pop(0) if audio else QUIET
                if answered.is_set() and not interrupting:
                    interrupting = True
                    audio = [QUIET] * 50 + [LOUD] * 30
                await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": piece}))
                await asyncio.sleep(max(0.0, began + number * 0.02 - loop.time()))

        listening = asyncio.create_task(listen())
        await speak()
        await asyncio.sleep(0.3)
        listening.cancel()


async def test_what_was_heard_is_what_the_client_recorded(tmp_path: Path) -> None:
    ear = Ear()
    engine = CountingEngine(seconds=2.5, delay=0.05)
    async with served(engine, record=tmp_path) as server:
        await asyncio.wait_for(talk(server.realtime, ear), 60)
    (folder,) = tmp_path.iterdir()
    recording = Recording(folder)
    length = recording.tracks()["agent_heard"].length
    server_side = recording.samples("agent_heard", 0, length)
    client_side = ear.heard()
    ours, theirs = spoken(server_side), spoken(client_side)
    assert len(ours) == len(theirs) == 2
    offset = theirs[1][0] - ours[1][0]
    for (begins, ends), (began, ended) in zip(ours, theirs, strict=True):
        # The clocks of two processes begin apart; what counts is that both answers lie alike.
        assert abs(began - begins - offset) <= RATE * 30 // 1000
        assert abs((ended - began) - (ends - begins)) <= RATE * 30 // 1000
        count = min(ended - began, ends - begins)
        one, other = server_side[begins : begins + count], client_side[began : began + count]
        assert abs(level(one) - level(other)) <= 1.0


def spoken(pcm: NDArray[np.int16]) -> list[tuple[int, int]]:
    """Stretches of sound, parted by at least 100 ms of silence."""
    loud = np.nonzero(pcm)[0]
    parts = np.split(loud, np.nonzero(np.diff(loud) > RATE // 10)[0] + 1)
    return [(int(part[0]), int(part[-1]) + 1) for part in parts if len(part) > RATE // 50]


def level(pcm: NDArray[np.int16]) -> float:
    """RMS in dB."""
    return 10 * float(np.log10(np.mean(np.square(pcm.astype(float))) + 1e-9))


def test_the_configuration_that_is_served_has_the_lead_that_the_ear_hides() -> None:
    assert SessionConfig().lead == from_ms(200)
