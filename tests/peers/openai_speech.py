"""An OpenAI-compatible endpoint that speaks and transcribes: `/v1/audio/speech` and `/v1/audio/transcriptions`.

`--quirk` makes it do what such endpoints do: answer with a WAV file whatever was asked for, know no word times.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import socket

import numpy as np
import soundfile
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.peers.voices import RATE, Voice, voice

QUIRKS = ("wav", "wav-44100", "plain", "busy-once", "busy", "odd", "json-audio", "no-text", "hang", "silence", "huge")


class Endpoint:
    def __init__(self, key: str, quirks: frozenset[str], speaks: Voice) -> None:
        self.key = key
        self.quirks = quirks
        self.voice = speaks
        self.asked = 0

    async def refusal(self, request: Request) -> Response | None:
        self.asked += 1
        if request.headers.get("authorization") != f"Bearer {self.key}":
            return JSONResponse({"error": {"message": "wrong key", "type": "invalid_request_error"}}, 401)
        if "busy" in self.quirks or ("busy-once" in self.quirks and self.asked == 1):
            return JSONResponse({"error": {"message": "overloaded", "type": "server_error"}}, 503)
        if "hang" in self.quirks:
            await asyncio.Event().wait()
        return None

    async def speech(self, request: Request) -> Response:
        if (refused := await self.refusal(request)) is not None:
            return refused
        asked = await request.json()
        missing = [name for name in ("model", "input", "voice") if not isinstance(asked.get(name), str)]
        if missing or asked.get("response_format") != "pcm" or asked["voice"] == "nobody":
            return JSONResponse({"error": {"message": f"no such request: {missing or asked}"}}, 400)
        if "json-audio" in self.quirks:
            return JSONResponse({"audio": "…"})
        samples, _ = await run_in_threadpool(self.voice.speak, asked["input"])
        if "silence" in self.quirks:
            samples = samples * 0
        if "huge" in self.quirks:
            return Response(bytes(40 << 20), media_type="audio/pcm")
        for quirk, rate in (("wav", RATE), ("wav-44100", 44_100)):
            if quirk in self.quirks:
                length = round(samples.size * rate / RATE)
                moved = np.interp(np.arange(length) * RATE / rate, np.arange(samples.size), samples)
                file = io.BytesIO()
                soundfile.write(file, moved.astype(np.float32), rate, format="WAV", subtype="FLOAT")
                return Response(file.getvalue(), media_type="audio/wav")
        pcm = (np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()
        return Response(pcm + (b"x" if "odd" in self.quirks else b""), media_type="audio/pcm")

    async def transcriptions(self, request: Request) -> Response:
        if (refused := await self.refusal(request)) is not None:
            return refused
        async with request.form() as form:
            file, kind = form.get("file"), form.get("response_format", "json")
            if not isinstance(file, UploadFile) or not form.get("model") or not form.get("language"):
                return JSONResponse({"error": {"message": "file, model and language are wanted"}}, 400)
            if kind == "verbose_json" and "plain" in self.quirks:
                return JSONResponse({"error": {"message": "response_format 'verbose_json' is not supported"}}, 400)
            samples, rate = soundfile.read(io.BytesIO(await file.read()), dtype="float32")
            granularity = form.getlist("timestamp_granularities[]")
        words = await run_in_threadpool(self.voice.hear, samples, rate)
        text = " ".join(word for word, _, _ in words)
        if "no-text" in self.quirks:
            return JSONResponse({"task": "transcribe"})
        if kind != "verbose_json":
            return JSONResponse({"text": text})
        told = [{"word": word.strip(".,?!"), "start": start, "end": end} for word, start, end in words]
        body = {"task": "transcribe", "language": "english", "duration": samples.size / rate, "text": text}
        return JSONResponse({**body, "words": told} if granularity == ["word"] else body)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--key", default="peer-key")
    parser.add_argument("--sentence", help="what it hears; without it the models of this project listen and speak")
    parser.add_argument("--quirk", action="append", default=[], choices=QUIRKS)
    given = parser.parse_args()
    endpoint = Endpoint(given.key, frozenset(given.quirk), voice(given.sentence))
    app = Starlette(
        routes=[
            Route("/v1/audio/speech", endpoint.speech, methods=["POST"]),
            Route("/v1/audio/transcriptions", endpoint.transcriptions, methods=["POST"]),
        ]
    )
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(f"listening {listening.getsockname()[1]}", flush=True)
        config = uvicorn.Config(app, log_level="warning", lifespan="off")
        uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
