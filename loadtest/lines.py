"""Lines to a server: how a carrier's client connects, sends frames of 20 ms, and what it does with what comes."""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from collections.abc import Callable
from typing import Protocol

import httpx

from loadtest.socket import Socket
from loadtest.voice import FRAME_S, Coding
from tests.caller import Caller, Json

SILENT = 20
"""Bytes up to which an Opus packet of 20 ms holds nothing that is heard."""


_KIND = re.compile(r'"type":"([a-z_.]+)"')
"""The first in a server event is its own."""


class Listener(Protocol):
    """Whoever is at the line. `at`: seconds on the loop's clock."""

    def piece(self, at: float, payload: str | bytes, seconds: float) -> None:
        """So many seconds of the agent's voice came: base64 text of µ-law, or an Opus packet."""

    def cleared(self, at: float) -> None:
        """What has come and was not played yet is to be thrown away."""

    def failed(self, at: float, reason: str) -> None:
        """The server reported an error, or the line broke."""


class Line(Protocol):
    """A client of one session."""

    coding: Coding

    async def connect(self, listener: Listener) -> None:
        """Be ready to talk. Raises OSError where the server cannot be reached or says no."""

    def send(self, frame: bytes) -> None:
        """20 ms of the user's voice, in `coding` (µ-law as base64)."""

    def stall(self, on: bool) -> None:
        """Stop reading, or read on. Raises ValueError where there is nothing to stop."""

    async def close(self) -> None:
        """Hang up."""


def _seconds(payload: str) -> float:
    """Of µ-law in base64."""
    return (len(payload) * 3 // 4 - payload.endswith("=") - payload.endswith("==")) / 8000


class _Web:
    """A line over a WebSocket with JSON, µ-law as base64."""

    coding: Coding = "ulaw"

    def __init__(self, url: str) -> None:
        self._url = url
        self._closing = False

    async def connect(self, listener: Listener) -> None:
        loop = asyncio.get_running_loop()
        self._listener = listener
        self._time = loop.time
        self._socket = Socket(self._url, self._take, self._broke)
        await self._socket.connect()
        await self._begin()

    def stall(self, on: bool) -> None:
        (self._socket.pause if on else self._socket.resume)()

    async def close(self) -> None:
        self._closing = True
        await self._socket.close()

    def _broke(self) -> None:
        if not self._closing:
            self._listener.failed(self._time(), "the server ended the connection")

    async def _begin(self) -> None:
        raise NotImplementedError

    def _take(self, text: str) -> None:
        raise NotImplementedError


class RealtimeLine(_Web):
    """The Realtime protocol over its WebSocket."""

    def __init__(self, url: str, session: Json) -> None:
        """`session`: the object of `session.update`; its audio formats are set to µ-law here."""
        super().__init__(url)
        audio = session.get("audio", {})
        sides = {side: {**audio.get(side, {}), "format": {"type": "audio/pcmu"}} for side in ("input", "output")}
        self._session = {"type": "realtime", **session, "audio": sides}

    async def _begin(self) -> None:
        self._ready = asyncio.Event()
        self._socket.send(json.dumps({"type": "session.update", "session": self._session}))
        async with asyncio.timeout(60):
            await self._ready.wait()

    def say(self, event: Json) -> None:
        """Send a client event."""
        self._socket.send(json.dumps(event))

    def send(self, frame: bytes) -> None:
        self._socket.send(b'{"type":"input_audio_buffer.append","audio":"%b"}' % frame)

    def _take(self, text: str) -> None:
        kind = _KIND.search(text)
        name = kind.group(1) if kind is not None else ""
        if name == "response.output_audio.delta":
            payload = json.loads(text)["delta"]
            self._listener.piece(self._time(), payload, _seconds(payload))
        elif name == "input_audio_buffer.speech_started":
            self._listener.cleared(self._time())
        elif name == "session.updated":
            self._ready.set()
        elif name == "error":
            self._listener.failed(self._time(), text[:300])


class TwilioLine(_Web):
    """Twilio's media stream, with the vendor's buffer: a mark comes back when what is before it was played."""

    def __init__(self, url: str, number: int) -> None:
        super().__init__(url)
        self._number = number
        self._stream = f"MZ{number:032x}"
        self._chunk = 0
        self._plays_until = 0.0
        self._marks: deque[tuple[float, str]] = deque()

    async def _begin(self) -> None:
        start = {
            "accountSid": "AC" + "0" * 32,
            "streamSid": self._stream,
            "callSid": f"CA{self._number:032x}",
            "tracks": ["inbound"],
            "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
            "customParameters": {},
        }
        self._socket.send('{"event":"connected","protocol":"Call","version":"1.0.0"}')
        event = {"event": "start", "sequenceNumber": "1", "start": start, "streamSid": self._stream}
        self._socket.send(json.dumps(event))

    async def close(self) -> None:
        if not self._closing:
            stop = {"accountSid": "AC" + "0" * 32, "callSid": f"CA{self._number:032x}"}
            event = {"event": "stop", "sequenceNumber": str(self._chunk + 2), "stop": stop, "streamSid": self._stream}
            self._socket.send(json.dumps(event))
        await super().close()

    def send(self, frame: bytes) -> None:
        self._chunk += 1
        self._socket.send(
            b'{"event":"media","sequenceNumber":"%d","media":{"track":"inbound","chunk":"%d","timestamp":"%d",'
            b'"payload":"%b"},"streamSid":"%b"}'
            % (self._chunk + 1, self._chunk, 20 * self._chunk - 20, frame, self._stream.encode())
        )
        now = self._time()
        while self._marks and self._marks[0][0] <= now:
            self._socket.send(self._marks.popleft()[1])

    def _take(self, text: str) -> None:
        now = self._time()
        event = json.loads(text)
        kind = event.get("event")
        if kind == "media":
            payload = event["media"]["payload"]
            seconds = _seconds(payload)
            self._plays_until = max(self._plays_until, now) + seconds
            self._listener.piece(now, payload, seconds)
        elif kind == "mark":
            self._marks.append((self._plays_until, json.dumps({**event, "sequenceNumber": str(self._chunk + 1)})))
        elif kind == "clear":
            for _, mark in self._marks:
                self._socket.send(mark)
            self._marks.clear()
            self._plays_until = now
            self._listener.cleared(now)


class CallLine(Caller):
    """A call over WebRTC whose packets are not decoded as they come. Made inside the running loop."""

    coding: Coding = "opus"

    def __init__(self, url: str, session: Json, *, events: bool = True) -> None:
        """`url`: of the server, without a path."""
        super().__init__(events=events, playback=False)
        self._url = url
        self._session = session

    async def connect(self, listener: Listener) -> None:
        self._listener = listener
        self._time: Callable[[], float] = asyncio.get_running_loop().time
        async with httpx.AsyncClient(base_url=self._url, trust_env=False, timeout=60) as http:
            await self._dial(http)
        self.on_event = self._happened

    async def _dial(self, http: httpx.AsyncClient) -> None:
        await self.call(http, {"type": "realtime", **self._session})

    def send(self, frame: bytes) -> None:
        self.send_packet(frame)

    def packet(self, sequence: int, timestamp: int, payload: bytes) -> None:
        if len(payload) > SILENT:
            self._listener.piece(self._time(), payload, FRAME_S)

    def _happened(self, event: Json) -> None:
        self.events.clear()
        kind = event.get("type")
        if kind == "output_audio_buffer.cleared":
            self._listener.cleared(self._time())
        elif kind == "error":
            self._listener.failed(self._time(), str(event["error"]))

    def stall(self, on: bool) -> None:
        raise ValueError("packets of a call are not waited for, so a call has no slow reader")
