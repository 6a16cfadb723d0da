"""A FastRTC stream with fake models, to be loaded as Talkover is: `python serve.py --vad silero_vad.onnx --reply-s 3`.

FastRTC's fastest setting: an asynchronous handler, which needs no threads, at a rate at which nothing is resampled more
than it must be, with the Silero model by itself, window by window. Its own `ReplyOnPause` looks at 0.6 s at a time and
falls silent only when an interruption has ended. The model that answers is a tone, another one for each reply. Runs in
FastRTC's own environment and imports nothing of Talkover. Prints its port.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import socket

import numpy as np
import onnxruntime
import uvicorn
from fastapi import FastAPI
from fastrtc import AsyncStreamHandler, Stream

TONES = tuple(range(400, 2300, 100))
WINDOW_S = 0.032
SPEECH, SILENCE = 0.5, 0.35
START_S, STOP_S = 0.1, 0.2
"""Speech that begins a turn and interrupts, and silence that ends it."""


class Detector:
    """Silero for one stream: windows of 32 ms at 8 or 16 kHz, with its context of the window before."""

    def __init__(self, session: onnxruntime.InferenceSession, rate: int) -> None:
        self._session = session
        self._rate = np.array(rate, np.int64)
        self._context = np.zeros((1, rate // 250), np.float32)
        self._state = np.zeros((2, 1, 128), np.float32)

    def probability(self, window: np.ndarray) -> float:
        """Of speech in `window` (float32 [samples])."""
        given = np.concatenate([self._context, window[None]], axis=1)
        out, self._state = self._session.run(None, {"input": given, "state": self._state, "sr": self._rate})
        self._context = given[:, -self._context.shape[1] :]
        return float(out[0, 0])


class Tones(AsyncStreamHandler):
    """Answers each turn with a tone of its own, and falls silent when it hears speech."""

    def __init__(self, session: onnxruntime.InferenceSession, rate: int, out_rate: int, reply_s: float) -> None:
        super().__init__(input_sample_rate=rate, output_sample_rate=out_rate)
        self._made_of = (session, rate, out_rate, reply_s)
        self._detector = Detector(session, rate)
        self._size = round(rate * WINDOW_S)
        self._step = out_rate // 50
        self._waiting = np.zeros(0, np.float32)
        self._replies = itertools.cycle(TONES)
        self._voiced = self._silent = 0.0
        self._talking = False
        self._tone: int | None = None
        self._at = 0
        self._length = round(reply_s * out_rate)
        self._begun = asyncio.Event()

    def copy(self) -> Tones:
        return Tones(*self._made_of)

    async def receive(self, frame: tuple[int, np.ndarray]) -> None:
        self._waiting = np.concatenate([self._waiting, frame[1].reshape(-1).astype(np.float32) / 32768])
        while len(self._waiting) >= self._size:
            window, self._waiting = self._waiting[: self._size], self._waiting[self._size :]
            self._heard(self._detector.probability(window))

    def _heard(self, probability: float) -> None:
        if probability >= (SILENCE if self._talking else SPEECH):
            self._voiced, self._silent = self._voiced + WINDOW_S, 0.0
            if not self._talking and self._voiced >= START_S:
                self._talking = True
                self._tone = None
                self._begun.clear()
                self.clear_queue()
            return
        self._voiced = 0.0
        self._silent += WINDOW_S
        if self._talking and self._silent >= STOP_S:
            self._talking = False
            self._tone, self._at = next(self._replies), 0
            self._begun.set()

    async def emit(self) -> tuple[int, np.ndarray] | None:
        await self._begun.wait()
        if self._tone is None or self._at >= self._length:
            self._begun.clear()
            return None
        phase = 2 * np.pi * self._tone * (self._at + np.arange(self._step)) / self.output_sample_rate
        self._at += self._step
        if self._at % (50 * self._step) == 0:
            await asyncio.sleep(0)
        return self.output_sample_rate, (8000 * np.sin(phase)).astype(np.int16)[None]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--vad", required=True, metavar="FILE", help="the Silero model (ONNX)")
    parser.add_argument("--phone", action="store_true", help="8 kHz, for telephone calls")
    parser.add_argument("--reply-s", type=float, default=3.0, metavar="S")
    options = parser.parse_args()
    given = onnxruntime.SessionOptions()
    given.intra_op_num_threads = given.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(options.vad, given, providers=["CPUExecutionProvider"])
    rates = (8000, 8000) if options.phone else (16_000, 24_000)
    handler = Tones(session, *rates, options.reply_s)
    stream = Stream(
        handler,
        modality="audio",
        mode="send-receive",
        concurrency_limit=1000,
        server_rtc_configuration={"iceServers": []},
    )
    application = FastAPI()
    stream.mount(application)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(1024)
        print("port", listening.getsockname()[1], flush=True)
        uvicorn.Server(uvicorn.Config(application, log_level="error", loop="uvloop")).run([listening])


if __name__ == "__main__":
    main()
