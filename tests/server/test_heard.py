"""What a client hears, recorded by itself, against the server's own account of it: over WebSocket and over WebRTC."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from codec.opus import OpusDecoder
from sessions.core.config import SessionConfig
from sessions.core.effects import StartResponse
from sessions.core.events import EngineAudio, EngineDone, EngineWords, SpeechProbability
from sessions.core.timeline import TICK_RATE, Ticks, Word, from_ms
from sessions.replay.alterations import Alterations
from sessions.replay.reader import Recording
from sessions.replay.rerun import rerun
from sessions.replay.what_if import what_if
from sessions.tracks import ticks_of
from tests.caller import Caller, Received
from tests.server.serving import served
from tests.sessions.fakes import CountingEngine, LoudnessPerception

RATE = 24_000
LOUD = base64.b64encode(b"\x00\x20" * 480).decode()
QUIET = base64.b64encode(bytes(960)).decode()


class Lateness:
    """How late this machine is for what is due. Nothing that is told by the clock is more exact than that."""

    def __init__(self) -> None:
        self.most = 0.0
        """Seconds, at most so far."""

    async def __aenter__(self) -> Lateness:
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._watching.cancel()

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + 0.01
            await asyncio.sleep(0.01)
            self.most = max(self.most, loop.time() - due)

    @property
    def allowed(self) -> int:
        """Samples that two accounts may differ by: 30 ms, and what each of two moments was late."""
        return round((0.03 + 2 * self.most) * RATE)


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
    async with served(engine, record=tmp_path) as server, Lateness() as lateness:
        await asyncio.wait_for(talk(server.realtime, ear), 120)
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
        assert abs(began - begins - offset) <= lateness.allowed
        assert abs((ended - began) - (ends - begins)) <= lateness.allowed
        count = min(ended - began, ends - begins)
        one, other = server_side[begins : begins + count], client_side[began : began + count]
        assert abs(level(one) - level(other)) <= 1.0


def spoken(pcm: NDArray[np.int16], floor: int = 0) -> list[tuple[int, int]]:
    """Stretches of sound (above `floor`), parted by at least 100 ms of silence."""
    loud = np.nonzero(np.abs(pcm.astype(np.int32)) > floor)[0]
    parts = np.split(loud, np.nonzero(np.diff(loud) > RATE // 10)[0] + 1)
    return [(int(part[0]), int(part[-1]) + 1) for part in parts if len(part) > RATE // 50]


# --- over WebRTC ---------------------------------------------------------------------------------------------------

FLOOR = 300
"""What a codec leaves of silence beside a sound lies below."""
DEVICE = 0.06
"""Seconds that a caller's buffer and loudspeaker take."""


class SingingEngine(CountingEngine):
    """A tone that swells: what a speech codec passes on as it is."""

    def _speak(self, request: StartResponse) -> None:
        emit = self._emit.get(request.fence.session)
        if emit is None:
            return
        time = np.arange(round(self.seconds * RATE)) / RATE
        tone = 6000 * np.sin(2 * np.pi * 330 * time) * (0.7 + 0.3 * np.sin(2 * np.pi * 4 * time))
        end = from_ms(self.seconds * 1000)
        emit(EngineWords(request.fence, request.response, (Word(" la", 0, end),)))
        emit(EngineAudio(request.fence, request.response, 0, end), tone.astype("<i2").tobytes())
        emit(EngineDone(request.fence, request.response))


def feed_loud(self: LoudnessPerception, session: str, start: Ticks, pcm: bytes, rate: int) -> None:
    """In place of `LoudnessPerception.feed`: what a codec makes of silence is not always nothing."""
    probability = 0.9 if level(np.frombuffer(pcm, "<i2")) > 50 else 0.02
    self._emit[session](SpeechProbability(start, start + ticks_of(pcm, rate), probability))


class Phone:
    """A caller's device: plays each packet at its timestamp, reports what it plays, and is mute from when it is told
    until the timestamp that it is told."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._loop = asyncio.get_running_loop()
        self._mutes: list[tuple[int, int]] = []
        self._told = 0

    def _position(self, at: float) -> int:
        """What is being played at `at`, in samples of 48 kHz after the first packet."""
        packets = self._caller.packets
        first = packets[0]
        earliest = min(packet.at - self._after(packet, first) / TICK_RATE for packet in packets)
        return round((at - earliest - DEVICE) * TICK_RATE)

    @staticmethod
    def _after(packet: Received, first: Received) -> int:
        return (packet.timestamp - first.timestamp) % (1 << 32)

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(0.01)
            now = self._loop.time()
            packets = self._caller.packets
            if not packets:
                continue
            place = self._position(now)
            for report in self._caller.reports[self._told :]:
                until = report["mute_until_rtp"]
                if until is not None and (not self._mutes or self._mutes[-1][1] != until):
                    self._mutes.append((place, until))
            self._told = len(self._caller.reports)
            if place >= 0:
                rtp = (packets[0].timestamp + place) % (1 << 32)
                self._caller.report({"rtp": rtp, "at_ms": now * 1000})

    def heard(self) -> NDArray[np.int16]:
        """All that was played, at `RATE`."""
        packets = self._caller.packets
        first, decoder = packets[0], OpusDecoder(RATE)
        out = np.zeros(self._after(packets[-1], first) // 2 + RATE, np.int16)
        for packet in packets:
            samples = np.frombuffer(decoder.decode(packet.payload), "<i2")
            at = self._after(packet, first) // 2
            out[at : at + len(samples)] = samples
        for place, until in self._mutes:
            out[place // 2 : ((until - first.timestamp) % (1 << 32)) // 2] = 0
        return out


@asynccontextmanager
async def phone(caller: Caller) -> AsyncIterator[Phone]:
    device = Phone(caller)
    playing = asyncio.create_task(device.run())
    try:
        yield device
    finally:
        playing.cancel()


async def test_what_was_heard_over_webrtc_is_what_the_caller_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LoudnessPerception, "feed", feed_loud)
    loud, quiet = b"\x00\x20\x00\xe0" * 160, bytes(640)
    async with served(SingingEngine(seconds=2.5, delay=0.05), record=tmp_path) as server, server.http() as http:
        caller = Caller()
        try:
            await caller.call(http)
            async with phone(caller) as device, Lateness() as lateness:
                await caller.event("session.created")
                await caller.speak(loud * 30 + quiet * 30)
                while not any(one["type"] == "output_audio_buffer.started" for one in caller.events):
                    await caller.speak(quiet * 5)
                await caller.speak(quiet * 50 + loud * 30)
                while not any(one["type"] == "response.done" and finished(one) for one in caller.events):
                    await caller.speak(quiet * 5)
                await caller.speak(quiet * 20)
        finally:
            await caller.close()
    (folder,) = tmp_path.iterdir()
    recording = Recording(folder)
    server_side = recording.samples("agent_heard", 0, recording.tracks()["agent_heard"].length)
    client_side = device.heard()
    ours, theirs = spoken(server_side, FLOOR), spoken(client_side, FLOOR)
    assert len(ours) == len(theirs) == 2, (ours, theirs)
    offset = theirs[1][0] - ours[1][0]
    for (begins, ends), (began, ended) in zip(ours, theirs, strict=True):
        assert abs(began - begins - offset) <= lateness.allowed
        assert abs((ended - began) - (ends - begins)) <= lateness.allowed
        count = min(ended - began, ends - begins)
        assert abs(level(server_side[begins : begins + count]) - level(client_side[began : began + count])) <= 1.0
    assert ours[0][1] - ours[0][0] < 2 * RATE  # which was cut
    result = rerun(folder)
    assert result.identical, str(result.difference)
    assert what_if(folder, Alterations.parse()).same
    assert not what_if(folder, Alterations.parse(drop=["interruption"])).same


def finished(done: dict[str, Any]) -> bool:
    return bool(done["response"]["status"] == "completed")


def level(pcm: NDArray[np.int16]) -> float:
    """RMS in dB."""
    return 10 * float(np.log10(np.mean(np.square(pcm.astype(float))) + 1e-9))


def test_the_configuration_that_is_served_has_the_lead_that_the_ear_hides() -> None:
    assert SessionConfig().lead == from_ms(200)
