"""Spoken conversations with the embedded models, recorded over WebSocket and over WebRTC, run again and otherwise."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path

import httpx
import numpy as np
import pytest
import soxr
from websockets.asyncio.client import connect

from sessions.core.events import Transcript
from sessions.core.timeline import from_ms
from sessions.replay.alterations import Alterations
from sessions.replay.reader import Recording
from sessions.replay.rerun import rerun
from sessions.replay.what_if import what_if
from tests.caller import Caller
from tests.servers import ServerProcess
from tests.speech import RATE, Clip, load

pytestmark = pytest.mark.models

WITHIN = 120.0
"""Seconds that a talk may take on a slow machine."""


LISTENING = 3
"""Seconds that a client stays after the answer: an altered one may come later."""


def question() -> Clip:
    return next(clip for clip in load("questions", "test") if clip.text == "What is the capital of France?")


async def over_websocket(url: str) -> str:
    """Ask, wait for the whole answer; returns the session."""
    said = soxr.resample(question().pcm, RATE, 24_000).astype("<i2").tobytes()
    async with connect(url, proxy=None) as socket:
        created = json.loads(await socket.recv())
        answered = asyncio.Event()

        async def listen() -> None:
            async for message in socket:
                if json.loads(message)["type"] == "response.done":
                    answered.set()

        listening = asyncio.create_task(listen())
        after = LISTENING * 50
        pieces = [said[at : at + 960].ljust(960, b"\0") for at in range(0, len(said), 960)]
        while not answered.is_set() or (after := after - 1) > 0:
            piece = pieces.pop(0) if pieces else bytes(960)
            audio = base64.b64encode(piece).decode()
            await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
            await asyncio.sleep(0.02)
        listening.cancel()
    return str(created["session"]["id"])


async def over_webrtc(url: str) -> str:
    caller = Caller()
    try:
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=30) as http:
            await caller.call(http)
        created = await caller.event("session.created")
        await caller.speak(question().pcm.astype("<i2").tobytes())
        while not any(event["type"] == "response.done" for event in caller.events):
            await caller.speak(bytes(640 * 5))
        await caller.speak(bytes(640 * 50 * LISTENING))
    finally:
        await caller.close()
    return str(created["session"]["id"])


@pytest.fixture(scope="module")
def talks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The recording of each, once the server has ended and all of it is on the disk."""
    root = tmp_path_factory.mktemp("recordings")
    with ServerProcess("embedded", arguments=["--record", str(root)]) as server:

        async def both() -> list[str]:
            async with asyncio.timeout(WITHIN):
                http = server.base_url.removesuffix("/v1")
                return list(await asyncio.gather(over_websocket(server.realtime_url), over_webrtc(http)))

        websocket, webrtc = asyncio.run(both())
    return {"websocket": root / websocket, "webrtc": root / webrtc}


@pytest.mark.parametrize("way", ["websocket", "webrtc"])
def test_a_spoken_talk_is_run_again_identically(talks: dict[str, Path], way: str) -> None:
    recording = Recording(talks[way])
    assert recording.manifest.engine == {"engine": "embedded"}
    steps = list(recording.steps())
    words = [step.event.text for step in steps if isinstance(step.event, Transcript)]
    assert any("capital" in text for text in words), words
    heard = recording.samples("agent_heard", 0, recording.tracks()["agent_heard"].length)
    assert np.abs(heard.astype(np.int32)).max() > 1000
    result = rerun(talks[way])
    assert result.identical, str(result.difference)
    assert result.events == len(steps) > 200


@pytest.mark.parametrize("way", ["websocket", "webrtc"])
def test_a_spoken_talk_is_run_otherwise(talks: dict[str, Path], way: str) -> None:
    assert what_if(talks[way], Alterations.parse()).same
    deaf = what_if(talks[way], Alterations.parse(["vad.threshold=2"]))  # which no window reaches
    assert not deaf.same
    assert len(deaf.recorded.answers) >= 1
    assert deaf.altered.answers == []
    slow = what_if(talks[way], Alterations.parse(["turn.kind=server_vad", "turn.silence_ms=1500"]))
    before, after = slow.recorded.answers[0], slow.altered.answers[0]
    assert before.speech_end is not None
    assert before.speech_end == after.speech_end
    # When it is heard depends on what took longest; when the turn ends on the silence alone.
    assert before.turn_ended is not None
    assert after.turn_ended is not None
    assert after.turn_ended - before.turn_ended > from_ms(500)
    assert slow.limits
