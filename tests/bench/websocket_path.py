"""What a frame costs in this process on its way through a session over WebSocket: µ-law as JSON, both ways.

`python -m tests.bench.websocket_path [--sessions 20] [--seconds 0.5] [--repeat 20] [--vad] [--profile]`

From the bytes that a socket gave to the bytes that a socket gets, on a virtual clock and with scripted tones: no
system call, no other process, so that the figure is that of the code. `--vad` adds the session's part of speech
detection (a probability every 32 ms), not the detector. The digest is over all audio that went out: a change that only
makes it cheaper leaves it as it is.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import cProfile
import gc
import hashlib
import pstats
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import numpy as np
from starlette.websockets import WebSocket
from uvicorn.config import Config
from uvicorn.server import ServerState

from codec import g711
from models.families.script import PreparedReply, tone
from models.families.scripted import ScriptedEngine
from server.carriers.uvicorn_websocket import BoundedWebSocketProtocol
from server.carriers.websocket import WebSocketCarrier
from server.dialects.realtime import RealtimeDialect
from sessions.core.effects import AssessTurn, OpenPerception, Transcribe
from sessions.core.events import SpeechProbability
from sessions.core.fence import Fence
from sessions.core.timeline import Ticks, ticks_per_sample
from sessions.counters import Counters
from sessions.manager import SessionManager
from sessions.ports import Emit, PerceptionCapabilities
from sessions.virtual_clock import run

FRAME_S = 0.02
SAMPLES = 160
MASK = b"\x5a\xa5\x3c\xc3"
DELTA = b'"delta":"'
WINDOW: Ticks = 1536

Scene = Callable[[int, float, bool, cProfile.Profile | None], Coroutine[Any, Any, tuple[float, str]]]
"""How many, seconds, with speech detection or not; gives seconds a frame and the digest."""


class Quiet:
    """A perception to which nothing is speech; it costs as little as can be."""

    capabilities = PerceptionCapabilities(WINDOW, ("en",), True, True)

    def __init__(self) -> None:
        self._emit: dict[str, Emit | None] = {}
        self._at: dict[str, Ticks] = {}

    def open(self, fence: Fence, request: OpenPerception, emit: Emit) -> None:
        self._emit[fence.session] = emit if request.speech else None
        self._at.setdefault(fence.session, 0)

    def feed(self, session: str, start: Ticks, pcm: bytes, rate: int) -> None:
        emit, at = self._emit[session], self._at[session]
        if emit is not None and start + len(pcm) // 2 * ticks_per_sample(rate) >= at + WINDOW:
            self._at[session] = at + WINDOW
            emit(SpeechProbability(at, at + WINDOW, 0.01, -60.0))

    def transcribe(self, session: str, request: Transcribe) -> None: ...

    def assess(self, session: str, request: AssessTurn) -> None: ...

    def play(self, session: str, at: Ticks, pcm: bytes, rate: int) -> None: ...

    def hush(self, session: str, at: Ticks) -> None: ...

    def cancel(self, session: str, request: int) -> None: ...

    def forget(self, session: str, before: Ticks) -> None: ...

    def close(self, session: str) -> None: ...


class Wire(asyncio.Transport):
    """A socket that takes everything; `frames` counts audio, `digest` is over the first `most` of it."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.frames = 0
        self._most = most
        self.digest = hashlib.sha256()
        self._closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        for part in bytes(data).split(DELTA)[1:]:
            self.frames += 1
            if self.frames <= self._most:
                self.digest.update(DELTA + part[: part.index(b"}") + 1])

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._closing = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def masked(text: str) -> bytes:
    """A client's text frame (RFC 6455 section 5.2)."""
    payload = text.encode()
    size = len(payload)
    length = bytes((0x80 | size,)) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
    mask = np.resize(np.frombuffer(MASK, np.uint8), size)
    return b"\x81" + length + MASK + (np.frombuffer(payload, np.uint8) ^ mask).tobytes()


def appends() -> list[bytes]:
    """Two seconds of room noise, a frame each."""
    noise = np.random.default_rng(7).normal(size=100 * SAMPLES) * 32
    codes = g711.encode(noise.astype("<i2").tobytes(), "ulaw")
    return [
        masked(
            '{"type":"input_audio_buffer.append","audio":"'
            + base64.b64encode(codes[start : start + SAMPLES]).decode()
            + '"}'
        )
        for start in range(0, len(codes), SAMPLES)
    ]


HANDSHAKE = (
    b"GET /v1/realtime HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def update(vad: bool) -> bytes:
    turns = '{"type":"server_vad"}' if vad else "null"
    return masked(
        '{"type":"session.update","session":{"type":"realtime","audio":{"input":{"format":{"type":"audio/pcmu"},'
        f'"turn_detection":{turns}}},"output":{{"format":{{"type":"audio/pcmu"}}}}}}}}}}'
    )


class Counted:
    """CPU time of what is done within it, without the search for garbage."""

    def __init__(self, profile: cProfile.Profile | None) -> None:
        self._profile = profile
        self._used = 0.0

    def __enter__(self) -> Counted:
        gc.collect()
        gc.disable()
        if self._profile is not None:
            self._profile.enable()
        self._used = -time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self._used += time.process_time()
        if self._profile is not None:
            self._profile.disable()
        gc.enable()

    def found(self, wires: Sequence[Wire]) -> tuple[float, str]:
        """Seconds a frame, and a digest of everything that was sent."""
        digest = hashlib.sha256(b"".join(wire.digest.digest() for wire in wires)).hexdigest()[:16]
        return self._used / sum(wire.frames for wire in wires), digest


async def scene(sessions: int, seconds: float, vad: bool, profile: cProfile.Profile | None) -> tuple[float, str]:
    """CPU seconds per frame and the digest."""
    engine = ScriptedEngine(
        [PreparedReply(0, tone(440, seconds + 5))], max_sessions=sessions, scheduler=asyncio.get_running_loop()
    )
    counters = Counters()
    manager = SessionManager(engine, Quiet(), counters=counters)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        socket = WebSocket(scope, receive, send)
        await socket.accept()
        dialect = RealtimeDialect("bench")
        carrier = WebSocketCarrier(socket, dialect, counters)
        await carrier.run(manager.open(carrier, dialect.config))

    config = Config(app, ws_per_message_deflate=False, log_config=None)
    config.load()
    config.loaded_app = app
    protocols, wires = [], []
    for _ in range(sessions):
        protocol = BoundedWebSocketProtocol(config, ServerState(), {})
        wire = Wire(round(seconds / FRAME_S))
        protocol.connection_made(wire)
        protocol.data_received(HANDSHAKE)
        protocols.append(protocol)
        wires.append(wire)
    await asyncio.sleep(0.01)
    for protocol in protocols:
        protocol.data_received(update(vad))
    await asyncio.sleep(0.01)
    for protocol in protocols:
        protocol.data_received(masked('{"type":"response.create"}'))
    noise = appends()
    # Each has its own moment in the 20 ms, as people have.
    order = list(enumerate(protocols))
    step = FRAME_S / sessions
    with Counted(profile) as counted:
        for frame in range(round(seconds / FRAME_S)):
            for number, protocol in order:
                protocol.data_received(noise[(frame + 37 * number) % len(noise)])
                await asyncio.sleep(step)
    found = counted.found(wires)
    for protocol in protocols:
        protocol.connection_lost(None)
    await manager.close()
    engine.shutdown()
    return found


def command(prog: str, about: str | None, many: str, measured: Scene) -> None:
    """The command line of a bench of one path; `many`: what there are several of."""
    parser = argparse.ArgumentParser(prog=prog, description=about)
    parser.add_argument(f"--{many}", dest="many", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--repeat", type=int, default=20, help="the least of so many counts (default: 20)")
    parser.add_argument("--vad", action="store_true")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    profile = cProfile.Profile() if options.profile else None
    found = [run(measured(options.many, options.seconds, options.vad, profile)) for _ in range(options.repeat)]
    print(f"{min(cost for cost, _ in found) * 1e6:.1f} µs a frame (both ways), digest {found[0][1]}")
    if profile is not None:
        pstats.Stats(profile).sort_stats("tottime").print_stats(50)


if __name__ == "__main__":
    command("python -m tests.bench.websocket_path", __doc__, "sessions", scene)
