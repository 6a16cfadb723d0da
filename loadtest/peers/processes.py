"""The servers that are compared, each as a process that takes the same callers."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
from aiortc import RTCSessionDescription

from loadtest.lines import CallLine, Line, TwilioLine
from loadtest.peers.environments import HERE, interpreter
from loadtest.scenarios import Scenario, lines_to, server_for, session_object
from loadtest.server_cpu import confine
from models.assets import ensure


@dataclass(frozen=True, slots=True)
class Running:
    """A server: its process, and how to make lines to it."""

    pid: int
    lines: Callable[[], Line]
    health: str | None = None


class PeerFailed(Exception):
    """A peer did not begin to serve; the message ends with what it said."""


class JsonOfferLine(CallLine):
    """A call by the handshake that Pipecat and FastRTC share: offer and answer as JSON."""

    def __init__(self, url: str, path: str, fields: dict[str, str]) -> None:
        super().__init__(url, {}, events=False)
        self._path = path
        self._fields = fields
        # FastRTC sends nothing before the client has opened a channel.
        self.connection.createDataChannel("text")

    async def _dial(self, http: httpx.AsyncClient) -> None:
        reply = await http.post(self._path, json={"sdp": await self.offer(), "type": "offer", **self._fields})
        if reply.status_code != 200 or "sdp" not in reply.json():
            raise ConnectionError(f"{self._path} answered {reply.status_code} {reply.text[:200]}")
        await self.connection.setRemoteDescription(RTCSessionDescription(reply.json()["sdp"], "answer"))
        await self.until(lambda: self.connection.connectionState == "connected")


@contextlib.contextmanager
def _process(peer: str, arguments: Sequence[str]) -> Iterator[tuple[int, int]]:
    """pid and port of `peer`/serve.py in its own environment, confined to the first core."""
    command = [str(interpreter(peer)), str(HERE / peer / "serve.py"), *arguments]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("port "):
                    confine(process.pid)
                    yield process.pid, int(line.split()[1])
                    return
            log.seek(0)
            raise PeerFailed(f"{peer} ended before it served\n{log.read()[-3000:].decode(errors='replace')}")
        finally:
            process.kill()
            process.wait()


@contextlib.contextmanager
def talkover(carrier: str, scenario: Scenario, sessions: int) -> Iterator[Running]:
    with server_for(scenario, sessions) as server:
        yield Running(
            server.pid,
            lines_to(server, carrier, session_object(scenario, 200)),
            f"http://127.0.0.1:{server.port}/healthz",
        )


@contextlib.contextmanager
def pipecat(carrier: str, scenario: Scenario, sessions: int, setting: str = "bot") -> Iterator[Running]:
    with _process("pipecat", ["--setting", setting, "--reply-s", str(scenario.reply_s)]) as (pid, port):
        numbers = itertools.count()
        if carrier == "twilio":
            yield Running(pid, lambda: TwilioLine(f"ws://127.0.0.1:{port}/twilio", next(numbers)))
        else:
            yield Running(pid, lambda: JsonOfferLine(f"http://127.0.0.1:{port}", "/offer", {}))


@contextlib.contextmanager
def fastrtc(carrier: str, scenario: Scenario, sessions: int) -> Iterator[Running]:
    model = next(Path(ensure(["silero-vad"], lambda what, share: None)["silero-vad"]).glob("*.onnx"))
    phone = ["--phone"] if carrier == "twilio" else []
    with _process("fastrtc", ["--vad", str(model), *phone, "--reply-s", str(scenario.reply_s)]) as (pid, port):
        numbers = itertools.count()
        base = f"127.0.0.1:{port}"
        if carrier == "twilio":
            yield Running(pid, lambda: TwilioLine(f"ws://{base}/telephone/handler", next(numbers)))
        else:
            yield Running(
                pid, lambda: JsonOfferLine(f"http://{base}", "/webrtc/offer", {"webrtc_id": f"call-{next(numbers)}"})
            )


SERVERS: dict[str, Callable[[str, Scenario, int], contextlib.AbstractContextManager[Running]]] = {
    "talkover": talkover,
    "pipecat": pipecat,
    "pipecat-smart-turn": partial(pipecat, setting="smart-turn"),
    "pipecat-bare": partial(pipecat, setting="bare"),
    "pipecat-fastest": partial(pipecat, setting="fastest"),
    "fastrtc-fastest": fastrtc,
}
