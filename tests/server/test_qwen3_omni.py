"""`talkover serve --engine qwen3-omni` over a WebSocket: an image and speech in, text and sound out, cut, and replayed.

.venv/bin/python -m pytest -m wide tests/server/test_qwen3_omni.py
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from websockets.sync.client import ClientConnection, connect

from sessions.replay.rerun import rerun
from tests.models.families.qwen3_omni.scene import png
from tests.servers import ServerProcess

pytestmark = [pytest.mark.models, pytest.mark.wide]

PATIENCE = 120
"""Seconds for one event; the machine may be busy."""
ASKED = 6
"""Questions after which one answer must have been longer than what is sent ahead."""


def url(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


class Client:
    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self.events: list[dict[str, Any]] = []

    def send(self, event: dict[str, Any]) -> None:
        self._socket.send(json.dumps(event))

    def until(self, *kinds: str) -> dict[str, Any]:
        """The next event of one of `kinds`."""
        while True:
            event: dict[str, Any] = json.loads(self._socket.recv(timeout=PATIENCE))
            self.events.append(event)
            assert event["type"] != "error", event
            if event["type"] in kinds:
                return event

    def say(self, *content: dict[str, Any]) -> None:
        item = {"type": "message", "role": "user", "content": list(content)}
        self.send({"type": "conversation.item.create", "item": item})

    def ask(self, *content: dict[str, Any]) -> None:
        self.say(*content)
        self.send({"type": "response.create"})

    def stages(self, response: str) -> dict[str, int]:
        """When `response` reached each stage, in ms from its request."""
        return {
            event["stage"]: event["elapsed_ms"]
            for event in self.events
            if event["type"] == "x_talkover.stage_reached" and event["response"] == response
        }

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == kind]


def test_an_image_and_speech_are_answered_by_text_and_sound_cut_and_replayed(tmp_path: Path) -> None:
    arguments = ["--random-weights", "tiny", "--record", str(tmp_path)]
    speech = np.random.default_rng(1).normal(0, 2000, 24_000).astype("<i2").tobytes()
    picture = {"type": "input_image", "image_url": url("image/png", png(96, 64))}
    spoken = {"type": "input_audio", "audio": base64.b64encode(speech).decode()}
    with ServerProcess("qwen3-omni", arguments=arguments) as server:
        with connect(server.realtime_url, proxy=None, max_size=None) as socket:
            client = Client(socket)
            client.until("session.created")
            session = {
                "type": "realtime",
                "audio": {"input": {"turn_detection": None}},
                "x_talkover": {"notices": True},
            }
            client.send({"type": "session.update", "session": session})
            client.until("session.updated")

            # Two items of one turn: what is heard and what is written are told apart by their items.
            client.say(picture, spoken)
            client.ask({"type": "input_text", "text": "what is it?"})
            done = client.until("response.done")["response"]
            assert done["status"] == "completed"
            sound = b"".join(base64.b64decode(event["delta"]) for event in client.of("response.output_audio.delta"))
            assert np.frombuffer(sound, "<i2").std() > 100
            assert "".join(event["text"] for event in client.of("x_talkover.output_draft")).strip()
            stages = client.stages(done["id"])
            assert {"words", "features", "first_token", "first_code", "first_audio"} <= set(stages)
            order = [stages[name] for name in ("features", "first_token", "first_code", "first_audio")]
            assert order == sorted(order)

            for number in range(ASKED):
                client.ask(picture, {"type": "input_text", "text": f"and in the corner {number}?"})
                client.until("response.output_audio.delta")
                client.send({"type": "response.cancel"})
                done = client.until("response.done")["response"]
                # The image is known by now.
                assert "features" not in client.stages(done["id"])
                if done["status"] == "cancelled":
                    break
            assert done["status"] == "cancelled"

            client.ask({"type": "input_text", "text": "thanks"})
            assert client.until("response.done")["response"]["status"] == "completed"
        with httpx.Client(trust_env=False) as http:
            text = http.get(f"{server.base_url.removesuffix('/v1')}/metrics").text
    for stage in ("first_token", "first_code", "first_audio"):
        assert f'talkover_stage_seconds_count{{stage="{stage}",turn="asked"}}' in text
    assert 'talkover_engine_cache_lookups_total{kind="feature",result="hit"}' in text
    assert 'talkover_engine_kv_positions{of="held",stage="thinker"}' in text
    (folder,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    assert rerun(folder).identical
