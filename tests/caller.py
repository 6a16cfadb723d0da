"""A caller: a WebRTC client of ours that sees packets and events one by one, for tests and for load.

It has aiortc's ICE, DTLS and SCTP but neither its codecs nor its buffers, so what it says of packets is what was on
the wire.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import httpx
from aiortc import RTCConfiguration, RTCDataChannel, RTCPeerConnection, RTCSessionDescription

from codec.opus import OpusDecoder, OpusEncoder
from server.carriers.webrtc import seam
from server.carriers.webrtc.downlink import SILENCE
from server.carriers.webrtc.events import EVENTS
from server.carriers.webrtc.reports import PLAYBACK

Json = dict[str, Any]

WITHIN = 20.0
"""Seconds that a caller waits for anything before its test has failed."""


@dataclass(frozen=True, slots=True)
class Received:
    """A packet of the server: `at` on the loop's clock."""

    sequence: int
    timestamp: int
    payload: bytes
    at: float


class CallRefused(Exception):
    """The server did not take the call."""

    def __init__(self, status: int, error: Json) -> None:
        super().__init__(f"{status} {error}")
        self.status = status
        self.error = error


class Caller:
    """One call. Made by `call`; everything is gone after `close`."""

    def __init__(self, *, events: bool = True, playback: bool = True, direction: str = "sendrecv") -> None:
        self.connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self.media = seam.Media(self.connection.addTransceiver("audio", direction=direction), self)
        self.packets: list[Received] = []
        self.events: list[Json] = []
        self.reports: list[Json] = []
        self.round_trip: float | None = None
        self.call_id = ""
        self.on_event: Callable[[Json], None] = lambda event: None
        self._changed = asyncio.Event()
        self.look = self._changed.set
        """To be called when something changed that `until` may wait for."""
        self.connection.on("connectionstatechange", self.look)
        self._encoder = OpusEncoder(16_000, application="voip", bitrate=24_000, loss_percent=10)
        self._sequence = secrets.randbits(15)
        self._timestamp = secrets.randbits(32)
        self._channel = self._open(EVENTS, True) if events else None
        self._playback = self._open(PLAYBACK, False) if playback else None

    def _open(self, label: str, reliable: bool) -> RTCDataChannel:
        options: Json = {} if reliable else {"ordered": False, "maxRetransmits": 0}
        channel = self.connection.createDataChannel(label, **options)
        channel.on("message", self._event if reliable else self._report)
        channel.on("open", self._changed.set)
        return channel

    # --- the call ----------------------------------------------------------------------------------------------------

    async def offer(self) -> str:
        """The SDP offer, with all candidates, on loopback alone."""
        with seam.local_addresses(["127.0.0.1"]):
            await self.connection.setLocalDescription(await self.connection.createOffer())
        return self.connection.localDescription.sdp

    async def call(
        self, http: httpx.AsyncClient, session: Json | None = None, path: str = "/v1/realtime/calls"
    ) -> Self:
        """Make the call and wait until its channels are open. Raises CallRefused."""
        offer = await self.offer()
        if session is None:
            response = await http.post(path, content=offer, headers={"Content-Type": "application/sdp"})
        else:
            files = {
                "sdp": (None, offer, "application/sdp"),
                "session": (None, json.dumps(session), "application/json"),
            }
            response = await http.post(path, files=files)
        if response.status_code != 201:
            await self.close()
            raise CallRefused(response.status_code, response.json()["error"])
        self.call_id = response.headers["Location"].rpartition("/")[2]
        await self.connection.setRemoteDescription(RTCSessionDescription(response.text, "answer"))
        await self.until(self._is_open)
        return self

    def _is_open(self) -> bool:
        channels = [channel for channel in (self._channel, self._playback) if channel is not None]
        return self.connection.connectionState == "connected" and all(
            channel.readyState == "open" for channel in channels
        )

    async def close(self) -> None:
        self.media.close()
        await self.connection.close()

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait until something that is said here holds; looked at whenever anything arrives."""
        async with asyncio.timeout(WITHIN):
            while not true():
                self._changed.clear()
                await self._changed.wait()

    # --- events ------------------------------------------------------------------------------------------------------

    def _event(self, message: str) -> None:
        event = json.loads(message)
        self.events.append(event)
        self._changed.set()
        self.on_event(event)

    def _report(self, message: str) -> None:
        self.reports.append(json.loads(message))
        self._changed.set()

    def say(self, event: Json | str | bytes) -> None:
        """Send a client event, or whatever it is."""
        assert self._channel is not None
        self._channel.send(json.dumps(event) if isinstance(event, dict) else event)

    def report(self, message: Json | str | bytes) -> None:
        """Send on the playback channel."""
        assert self._playback is not None
        self._playback.send(json.dumps(message) if isinstance(message, dict) else message)

    async def event(self, kind: str, nth: int = 1) -> Json:
        """The `nth` event of type `kind`, as soon as it is there."""
        await self.until(lambda: sum(one["type"] == kind for one in self.events) >= nth)
        return [one for one in self.events if one["type"] == kind][nth - 1]

    # --- media -------------------------------------------------------------------------------------------------------

    def packet(self, sequence: int, timestamp: int, payload: bytes) -> None:
        at = asyncio.get_running_loop().time()
        self.packets.append(Received(sequence, timestamp, payload, at))
        self._changed.set()

    def started(self) -> None:
        self._changed.set()

    def alive(self) -> None: ...

    def loss(self, fraction: float, round_trip: float | None) -> None:
        self.round_trip = round_trip

    def send_sound(self, pcm: bytes) -> None:
        """Send one packet of 20 ms: mono PCM16 at 16 kHz, 640 bytes."""
        self.send_packet(self._encoder.encode(pcm))

    def send_packet(self, payload: bytes) -> None:
        self.media.send(self._sequence, self._timestamp, payload)
        self.skip_packet()

    def skip_packet(self) -> None:
        """A packet that is lost on the way."""
        self._sequence = (self._sequence + 1) & 0xFFFF
        self._timestamp = (self._timestamp + 960) & 0xFFFFFFFF

    async def speak(self, pcm: bytes) -> None:
        """Send mono PCM16 at 16 kHz in real time."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        for start in range(0, len(pcm) - 639, 640):
            self.send_sound(pcm[start : start + 640])
            due += 0.02
            await asyncio.sleep(due - loop.time())

    @property
    def sounding(self) -> list[Received]:
        """The packets that are not silence."""
        return [packet for packet in self.packets if packet.payload != SILENCE]

    def heard(self, rate: int = 24_000) -> bytes:
        """All that was received, decoded in order."""
        decoder = OpusDecoder(rate)
        return b"".join(decoder.decode(packet.payload) for packet in self.packets)
