"""A question spoken into a telephone, by every vendor's protocol, to the embedded models: understood and answered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator

import httpx
import numpy as np
import pytest
import soxr
from websockets.asyncio.client import connect

from server.call_command import Caller
from server.phone_peers import PEERS, AudioSocketPeer, VendorPeer
from tests.bench.words import word_error_rate
from tests.servers import ServerProcess
from tests.speech import RATE, Clip, load

from .band import narrow

pytestmark = pytest.mark.models

QUESTION = "What is the capital of France?"
Hear = Callable[[np.ndarray, int], str]  # type: ignore[type-arg]


@pytest.fixture(scope="module")
def hear() -> Iterator[Hear]:
    """What a recognizer makes of int16 at a rate."""
    from models.assets import ensure
    from models.perception.asr import Recognizer

    recognizer = Recognizer(ensure(["whisper-base"], lambda stage, fraction: None)["whisper-base"])

    def listen(pcm: np.ndarray, rate: int) -> str:  # type: ignore[type-arg]
        samples = np.asarray(soxr.resample(pcm.astype(np.float32) / 32768, rate, RATE), np.float32)
        return recognizer.recognize(samples).text

    yield listen
    recognizer.unload()


async def ask(server: ServerProcess, peer: VendorPeer, url: str, clip: Clip) -> tuple[str, Caller]:
    """What was understood, and the call."""
    base = f"http://127.0.0.1:{server.port}"
    async with Caller(url, peer) as caller, httpx.AsyncClient(base_url=base, trust_env=False) as http:
        async with asyncio.timeout(10):
            calls: list[str] = []
            while not calls:
                listed = (await http.get("/telephony/calls")).json()["calls"]
                calls = [one["id"] for one in listed if one["vendor"] == peer.vendor]
        watch = f"{base.replace('http', 'ws')}/v1/realtime?call_id={calls[0]}"
        async with connect(watch, proxy=None) as application:
            session = {"type": "realtime", "audio": {"input": {"transcription": {"model": "default"}}}}
            await application.send(json.dumps({"type": "session.update", "session": session}))
            while json.loads(await application.recv())["type"] != "session.updated":
                pass
            caller.say(narrow(clip, peer.rate))
            async with asyncio.timeout(60):
                while True:
                    event = json.loads(await application.recv())
                    if event["type"].endswith("input_audio_transcription.completed"):
                        break
            await caller.quiet(1.0)
    return event["transcript"], caller


def check(server: ServerProcess, peer: VendorPeer, url: str, hear: Hear) -> None:
    clip = next(clip for clip in load("questions", "test") if clip.text == QUESTION)
    understood, caller = asyncio.run(ask(server, peer, url, clip))
    assert word_error_rate([QUESTION], [understood]) <= 0.2
    assert "paris" in hear(np.concatenate(caller.heard), peer.rate).lower()


def test_a_question_by_twilio_is_understood_and_the_answer_survives_the_law(
    speaking_server: ServerProcess, hear: Hear
) -> None:
    check(speaking_server, PEERS["twilio"]("asked", {}), f"ws://127.0.0.1:{speaking_server.port}", hear)


@pytest.mark.wide
@pytest.mark.parametrize("vendor", [name for name in PEERS if name != "twilio"])
def test_a_question_by_every_other_vendor_too(
    speaking_server: ServerProcess, audiosocket_port: int, hear: Hear, vendor: str
) -> None:
    if vendor == "audiosocket":
        check(speaking_server, AudioSocketPeer("0" * 31 + "1"), f"tcp://127.0.0.1:{audiosocket_port}", hear)
    else:
        check(speaking_server, PEERS[vendor](f"asked-{vendor}", {}), f"ws://127.0.0.1:{speaking_server.port}", hear)
