"""A recognizer at Kyutai's STT server. See `models.remote.kyutai`.

Its models listen with a delay (0.5 s or 2.5 s), so behind the utterance comes a marker and then silence, until the
marker comes back: by then every word of the utterance has been told.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from codec.resample import Resampler

from ..remote import kyutai
from ..remote.errors import RemoteError
from ..remote.loop import RemoteLoop
from ..remote.websocket import Socket, connected
from .asr import Recognition
from .mel import SAMPLE_RATE
from .remote_words import SHORTEST, Heard, language_code, recognition

SETTING = "asr-url"
LANGUAGES = ("en", "fr")
"""Of the model that the server comes with."""
PREFIX = kyutai.RATE
"""Samples of silence before the utterance, as the published client sends them: the model does not begin in a word."""
LONGEST_TAIL = 10
"""Seconds of silence within which the marker must have come back."""
_MARKER = 1
_TAIL_PACE = 0.01
"""Seconds between frames of the tail: eight times as fast as it would sound."""


class KyutaiRecognizer:
    """As `Recognizer`, over `/api/asr-streaming`, a connection for each utterance; several threads may ask at once.

    `timeout`: seconds without a message. `close` cuts off what is being asked.
    """

    def __init__(
        self, url: str, key: str = "", *, languages: tuple[str, ...] = LANGUAGES, timeout: float = 20.0
    ) -> None:
        self._url = url
        self._key = key
        self._timeout = timeout
        self.languages = languages
        self._loop = RemoteLoop("talkover-asr-kyutai")

    def recognize(self, samples: NDArray[np.float32], language: str = "en", *, times: bool = False) -> Recognition:
        """See `Recognizer.recognize`; no tokens are told. Raises LanguageUnsupported and RemoteError."""
        language_code(language, self.languages)
        if samples.size < SHORTEST:
            return Recognition("")
        words = self._loop.call(self._listen(_at_its_rate(samples)))
        text = " ".join(word.text for word in words)
        return recognition(text, words if times else (), samples.size / SAMPLE_RATE, times=times)

    def close(self) -> None:
        self._loop.close()

    async def _listen(self, pcm: kyutai.Samples) -> tuple[Heard, ...]:
        async with connected(
            SETTING,
            kyutai.stt_address(self._url),
            key=self._key,
            headers=kyutai.headers(self._key),
            longest=kyutai.LONGEST_MESSAGE,
            open_timeout=self._timeout,
        ) as socket:
            sending = asyncio.create_task(self._send(socket, pcm))
            try:
                return await self._words(socket, sending)
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)

    async def _send(self, socket: Socket, pcm: kyutai.Samples) -> None:
        whole = np.concatenate([np.zeros(PREFIX, np.float32), pcm])
        whole = np.pad(whole, (0, -whole.size % kyutai.FRAME))
        for frame in whole.reshape(-1, kyutai.FRAME):
            await socket.send(kyutai.audio(frame))
        await socket.send(kyutai.marker(_MARKER))
        silence = kyutai.audio(np.zeros(kyutai.FRAME, np.float32))
        for _ in range(LONGEST_TAIL * kyutai.RATE // kyutai.FRAME):
            await socket.send(silence)
            await asyncio.sleep(_TAIL_PACE)

    async def _words(self, socket: Socket, sending: asyncio.Task[None]) -> tuple[Heard, ...]:
        words: list[Heard] = []
        shift = PREFIX / kyutai.RATE
        messages = aiter(socket)
        while True:
            try:
                raw = await asyncio.wait_for(anext(messages, None), self._timeout)
            except TimeoutError:
                raise RemoteError(
                    "remote_timeout", f"{SETTING}: {self._url} was silent for {self._timeout:g} s; is it overloaded?"
                ) from None
            if raw is None:
                # A server that refuses says why before it closes, and sending may have failed before that was read.
                if sending.done() and (error := sending.exception()) is not None:
                    raise error
                raise RemoteError("remote_lost", f"{SETTING}: {self._url} closed the connection before it was done")
            match kyutai.read(SETTING, raw):
                case kyutai.Word(text, start, _):
                    words.append(Heard(text.strip(), max(0.0, start - shift), math.nan))
                case kyutai.EndWord(end) if words:
                    words[-1] = replace(words[-1], end=max(words[-1].start, end - shift))
                case kyutai.Marker(number) if number == _MARKER:
                    return tuple(words)
                case kyutai.Failed(reason):
                    raise RemoteError("remote_refused", f"{SETTING}: the recognizer's server says: {reason}")


def _at_its_rate(samples: NDArray[np.float32]) -> kyutai.Samples:
    """float32 [N] at 16 kHz as float32 at 24 kHz."""
    lane = Resampler(SAMPLE_RATE, kyutai.RATE)
    pcm = np.rint(np.clip(samples, -1.0, 1.0) * 32767).astype(np.int16)
    out = np.concatenate([lane.process(pcm), lane.flush()])
    return out.astype(np.float32) / np.float32(32768.0)
