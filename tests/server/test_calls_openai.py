"""openai-python makes a call, aiortc as it comes carries it: encoder, decoder, jitter buffer and all."""

from __future__ import annotations

import asyncio
import contextlib
import fractions
import json
from typing import Any

import numpy as np
from aiortc import MediaStreamTrack, RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import MediaStreamError
from av import AudioFrame
from openai import AsyncOpenAI

from server.carriers.webrtc import seam
from tests.server.serving import API_KEY, served
from tests.sessions.fakes import CountingEngine

WITHIN = 30.0


class Microphone(MediaStreamTrack):
    """Speaks while `loud`, in real time."""

    kind = "audio"

    def __init__(self) -> None:
        super().__init__()
        self.loud = False
        self._sent = 0
        self._began = 0.0

    async def recv(self) -> AudioFrame:
        loop = asyncio.get_running_loop()
        self._began = self._began or loop.time()
        await asyncio.sleep(self._began + self._sent * 0.02 - loop.time())
        time = (np.arange(960) + self._sent * 960) / 48_000
        sound = 9000 * np.sin(2 * np.pi * 300 * time) * self.loud
        frame = AudioFrame.from_ndarray(sound.astype(np.int16).reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = 48_000, self._sent * 960, fractions.Fraction(1, 48_000)
        self._sent += 1
        return frame


async def test_a_call_made_by_the_sdk_is_spoken_answered_and_interrupted_by_its_user() -> None:
    engine = CountingEngine(seconds=4.0, delay=0.0)
    async with served(engine, api_keys=(API_KEY,)) as place:
        client = AsyncOpenAI(api_key=API_KEY, base_url=f"{place.url}/v1")
        connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        microphone = Microphone()
        connection.addTrack(microphone)
        channel = connection.createDataChannel("oai-events")
        events: list[dict[str, Any]] = []
        levels: list[float] = []
        changed = asyncio.Event()
        listening: list[asyncio.Task[None]] = []

        @channel.on("message")
        def heard_of(message: str) -> None:
            events.append(json.loads(message))
            changed.set()

        async def listen(track: MediaStreamTrack) -> None:
            with contextlib.suppress(MediaStreamError):
                while True:
                    frame = await track.recv()
                    assert isinstance(frame, AudioFrame)
                    levels.append(float(np.abs(frame.to_ndarray()).mean()))
                    changed.set()

        connection.on("track", lambda track: listening.append(asyncio.ensure_future(listen(track))))

        async def until(kind: str, nth: int = 1) -> dict[str, Any]:
            async with asyncio.timeout(WITHIN):
                while len(found := [one for one in events if one["type"] == kind]) < nth:
                    changed.clear()
                    await changed.wait()
            return found[nth - 1]

        with seam.local_addresses(["127.0.0.1"]):
            await connection.setLocalDescription(await connection.createOffer())
        try:
            made = await client.realtime.calls.create(
                sdp=connection.localDescription.sdp,
                session={"type": "realtime", "model": "mine", "instructions": "Be brief."},
            )
            call_id = made.response.headers["location"].rpartition("/")[2]
            await connection.setRemoteDescription(RTCSessionDescription(made.text, "answer"))
            created = await until("session.created")
            assert created["session"]["instructions"] == "Be brief."
            assert created["session"]["model"] == "mine"

            async with client.realtime.connect(call_id=call_id) as sideband:
                assert (await sideband.recv()).type == "session.created"

                microphone.loud = True
                await until("input_audio_buffer.speech_started")
                microphone.loud = False
                await until("output_audio_buffer.started")
                async with asyncio.timeout(WITHIN):
                    while not levels or levels[-1] < 500:
                        changed.clear()
                        await changed.wait()

                microphone.loud = True
                await until("output_audio_buffer.cleared")
                done = await until("response.done")
                assert done["response"]["status"] == "cancelled"
                assert done["response"]["x_heard_by"] == "model"
                microphone.loud = False
                await until("response.created", 2)

            await client.realtime.calls.hangup(call_id)
            async with asyncio.timeout(WITHIN):
                await place.app.calls.close()
            assert len(place.app.calls) == 0
        finally:
            await connection.close()
            await asyncio.gather(*listening)
            await client.close()
