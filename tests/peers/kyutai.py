"""Kyutai's STT and TTS servers in one process: MessagePack over WebSockets, as `moshi-server` speaks it.

STT listens with a delay: a word is told only when half a second more has come, and a marker comes back behind the delay
too. `--fault` makes it do what a server does on a bad day.
"""

from __future__ import annotations

import argparse
import asyncio
from urllib.parse import parse_qs, urlsplit

import msgpack  # type: ignore[import-untyped]
import numpy as np
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from tests.peers.voices import RATE, Voice, voice

FRAME = 1920
DELAY_FRAMES = 6
"""Frames by which it hears later."""

FAULTS = ("error", "nonsense", "hang", "close", "text", "endless", "no-marker")


class Peer:
    def __init__(self, key: str, faults: frozenset[str], speaks: Voice) -> None:
        self.key = key
        self.faults = faults
        self.voice = speaks

    async def handle(self, socket: ServerConnection) -> None:
        request = socket.request
        assert request is not None
        path = urlsplit(request.path)
        try:
            if request.headers.get("kyutai-api-key") != self.key:
                await send(socket, {"type": "Error", "message": "unauthorized"})
                return
            await self.fail(socket)
            if path.path == "/api/asr-streaming":
                await send(socket, {"type": "Ready"})
                await self.listen(socket)
            elif path.path == "/api/tts_streaming":
                query = parse_qs(path.query)
                if query.get("format") != ["PcmMessagePack"]:
                    await send(socket, {"type": "Error", "message": "only PcmMessagePack here"})
                    return
                await send(socket, {"type": "Ready"})
                await self.speak(socket)
        except ConnectionClosed:
            pass

    async def fail(self, socket: ServerConnection) -> None:
        if "error" in self.faults:
            await send(socket, {"type": "Error", "message": "no free channels"})
        if "nonsense" in self.faults:
            await socket.send(b"\xc1\xc1")
        if "text" in self.faults:
            await socket.send("Ready")
        if "hang" in self.faults:
            await asyncio.Event().wait()
        if "close" in self.faults:
            await socket.close()

    async def listen(self, socket: ServerConnection) -> None:
        heard: list[float] = []
        markers: list[tuple[int, int]] = []
        told = steps = 0
        words: list[tuple[str, float, float]] | None = None
        async for raw in socket:
            message = msgpack.unpackb(raw)
            if message["type"] == "Marker":
                markers.append((message["id"], len(heard)))
                continue
            assert message["type"] == "Audio"
            assert all(isinstance(sample, float) for sample in message["pcm"])
            heard += message["pcm"]
            steps += 1
            await send(socket, {"type": "Step", "step_idx": steps, "prs": [0.0] * 4, "buffered_pcm": 0})
            listened = len(heard) - DELAY_FRAMES * FRAME
            if markers and listened >= markers[0][1] and words is None:
                # The rule, or the model, hears the whole utterance at once; its words come in their order.
                words = list(await asyncio.to_thread(self.voice.hear, np.array(heard, np.float32), RATE))
                for word, start, stop in words[told:]:
                    await send(socket, {"type": "Word", "text": word, "start_time": start})
                    await send(socket, {"type": "EndWord", "stop_time": stop})
            if words is not None and markers and listened >= markers[0][1] and "no-marker" not in self.faults:
                await send(socket, {"type": "Marker", "id": markers.pop(0)[0]})

    async def speak(self, socket: ServerConnection) -> None:
        text: list[str] = []
        async for raw in socket:
            message = msgpack.unpackb(raw)
            if message["type"] == "Eos":
                break
            assert message["type"] == "Text"
            text.append(message["text"])
        samples, words = await asyncio.to_thread(self.voice.speak, " ".join(text))
        pending = list(words)
        samples = np.pad(samples, (0, -samples.size % FRAME))
        frames = samples.reshape(-1, FRAME)
        while True:
            for place, frame in enumerate(frames):
                while pending and pending[0][1] * RATE < (place + 1) * FRAME:
                    word, start, stop = pending.pop(0)
                    await send(socket, {"type": "Text", "text": word, "start_s": start, "stop_s": stop})
                await send(socket, {"type": "Audio", "pcm": frame.tolist()})
            if "endless" not in self.faults:
                return


async def send(socket: ServerConnection, message: dict[str, object]) -> None:
    await socket.send(msgpack.packb(message, use_single_float=True))


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--key", default="public_token")
    parser.add_argument("--sentence", help="what it hears; without it the models of this project listen and speak")
    parser.add_argument("--fault", action="append", default=[], choices=FAULTS)
    given = parser.parse_args()
    peer = Peer(given.key, frozenset(given.fault), voice(given.sentence))
    async with serve(peer.handle, "127.0.0.1", 0, compression=None, max_size=16 << 20) as server:
        print(f"listening {next(iter(server.sockets)).getsockname()[1]}", flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
