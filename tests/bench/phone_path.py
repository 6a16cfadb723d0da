"""What a frame costs in this process on its way through a call: µ-law in Twilio's messages, both ways, marks returned.

`python -m tests.bench.phone_path [--calls 20] [--seconds 0.5] [--repeat 20] [--vad] [--profile]`

As `tests.bench.websocket_path`, whose words on clock, system calls, `--vad` and digest hold here too.
"""

from __future__ import annotations

import asyncio
import cProfile
import json
from collections.abc import Callable
from typing import Any

import numpy as np
from starlette.websockets import WebSocket
from uvicorn.config import Config
from uvicorn.server import ServerState

from codec import g711
from models.families.script import PreparedReply, tone
from models.families.scripted import ScriptedEngine
from server.carriers.phone import PhoneCarrier
from server.carriers.phone_line import WebSocketLine
from server.carriers.uvicorn_websocket import BoundedWebSocketProtocol
from server.dialects.telephony.base import base64_text
from server.dialects.telephony.twilio import TwilioDialect
from sessions.core.config import SessionConfig, TurnConfig
from sessions.core.timeline import from_ms
from sessions.counters import Counters
from sessions.manager import SessionManager
from tests.bench.websocket_path import FRAME_S, HANDSHAKE, SAMPLES, Counted, Quiet, Wire, command, masked

MEDIA = b'{"event":"media"'
MARK = b'{"event":"mark"'
PHRASE = 100
"""Payloads of noise that are sent over and over."""


class Line(Wire):
    """A socket whose other end returns every mark, later."""

    def __init__(self, most: int, mark: Callable[[bytes], None]) -> None:
        super().__init__(most)
        self._mark = mark

    def write(self, data: bytes | bytearray | memoryview) -> None:
        text = bytes(data)
        if (at := text.find(MEDIA)) > 0:
            self.frames += 1
            if self.frames <= self._most:
                self.digest.update(text[at:])
        elif (at := text.find(MARK)) > 0:
            self._mark(text[at:])


def noise() -> list[str]:
    """Room noise, a payload each frame."""
    pcm = np.random.default_rng(7).normal(size=PHRASE * SAMPLES) * 32
    codes = g711.encode(pcm.astype("<i2").tobytes(), "ulaw")
    return [base64_text(codes[at : at + SAMPLES]) for at in range(0, len(codes), SAMPLES)]


def spoken(sid: str, payloads: list[str], frame: int, number: int) -> bytes:
    """What Twilio sends for one frame."""
    return masked(
        f'{{"event":"media","sequenceNumber":"{frame + 2}","media":{{"track":"inbound","chunk":"{frame + 1}",'
        f'"timestamp":"{20 * frame}","payload":"{payloads[(frame + 37 * number) % PHRASE]}"}},"streamSid":"{sid}"}}'
    )


def start(sid: str) -> bytes:
    media = {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}
    begin = {"streamSid": sid, "callSid": f"CA{sid}", "mediaFormat": media, "customParameters": {}}
    return masked(json.dumps({"event": "start", "sequenceNumber": "1", "start": begin, "streamSid": sid}))


async def scene(calls: int, seconds: float, vad: bool, profile: cProfile.Profile | None) -> tuple[float, str]:
    """CPU seconds per frame and the digest."""
    engine = ScriptedEngine(
        [PreparedReply(0, tone(440, seconds + 5))], max_sessions=calls, scheduler=asyncio.get_running_loop()
    )
    counters = Counters()
    manager = SessionManager(engine, Quiet(), counters=counters)
    config = SessionConfig(turns=TurnConfig() if vad else None, lead=from_ms(200), frame=from_ms(20), greet_after_ms=0)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        socket = WebSocket(scope, receive, send)
        await socket.accept()
        carrier = PhoneCarrier(WebSocketLine(socket), TwilioDialect(), counters)
        await carrier.start()
        await carrier.run(manager.open(carrier, config))

    settings = Config(app, ws_per_message_deflate=False, log_config=None)
    settings.load()
    settings.loaded_app = app
    loop = asyncio.get_running_loop()
    frames = round(seconds / FRAME_S)
    protocols, wires = [], []
    for _ in range(calls):
        protocol = BoundedWebSocketProtocol(settings, ServerState(), {})
        wire = Line(frames, lambda mark, to=protocol: loop.call_later(0.2, to.data_received, masked(mark.decode())))
        protocol.connection_made(wire)
        protocol.data_received(HANDSHAKE)
        protocols.append(protocol)
        wires.append(wire)
    await asyncio.sleep(0.01)
    for number, protocol in enumerate(protocols):
        protocol.data_received(start(f"MZ{number}"))
    await asyncio.sleep(0.01)
    payloads = noise()
    said = [[spoken(f"MZ{number}", payloads, frame, number) for number in range(calls)] for frame in range(frames)]
    # Each has its own moment in the 20 ms, as people have.
    step = FRAME_S / calls
    with Counted(profile) as counted:
        for messages in said:
            for protocol, message in zip(protocols, messages, strict=True):
                protocol.data_received(message)
                await asyncio.sleep(step)
    found = counted.found(wires)
    await manager.close()
    for protocol in protocols:
        protocol.connection_lost(None)
    await asyncio.sleep(0.01)
    engine.shutdown()
    return found


if __name__ == "__main__":
    command("python -m tests.bench.phone_path", __doc__, "calls", scene)
