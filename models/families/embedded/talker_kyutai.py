"""A talker at Kyutai's TTS server: text in, audio and the time of each word out. See `models.remote.kyutai`."""

from __future__ import annotations

import asyncio

import numpy as np

from ...remote import kyutai, sound
from ...remote.errors import RemoteError
from ...remote.loop import RemoteLoop
from ...remote.websocket import connected
from .talker import Spoken, TalkerError
from .word_times import Stretch, align

SETTING = "tts-url"
LONGEST = 120.0
"""Seconds of audio that one clause may have; a model that does not find its end is cut off there."""


class KyutaiTalker:
    """`Talker` over `/api/tts_streaming`. `url` may leave the path out; `voice` speaks where a session names none.

    The server has no speed; another one than 1 is not heeded. `close` cuts off the clause that is being made.
    """

    def __init__(self, url: str, key: str = "", *, voice: str = "", timeout: float = 20.0) -> None:
        self._url = url
        self._key = key
        self._voice = voice
        self._timeout = timeout
        self._loop = RemoteLoop("talkover-tts-kyutai")

    @property
    def voices(self) -> tuple[str, ...]:
        """Any: the server knows which."""
        return ()

    @property
    def rate(self) -> int:
        return kyutai.RATE

    def speak(self, text: str, *, voice: str = "default", speed: float = 1.0, first: bool = True) -> Spoken:
        """See `Talker.speak`. Blocks until the whole clause is there."""
        if not sound.pronounceable(text):
            return Spoken(b"", ())
        try:
            made = self._loop.call(self._speak(text, self._voice if voice == "default" else voice))
        except RemoteError as error:
            raise TalkerError(error.code, str(error)) from error
        floats = np.concatenate([np.zeros(0, np.float32), *made.audio])
        heard = sound.trimmed(sound.resampled(floats, kyutai.RATE))
        if not heard.samples.size:
            raise TalkerError("remote_bad_response", f"{SETTING}: silence came for {text[:60]!r}; check the voice")
        spans = align(text.split(), made.stretches(heard.cut, len(heard.samples)))
        return Spoken(sound.pcm(heard.samples), sound.worded(text, spans, first=first))

    def close(self) -> None:
        self._loop.close()

    async def _speak(self, text: str, voice: str) -> _Made:
        made = _Made()
        try:
            async with connected(
                SETTING,
                kyutai.tts_address(self._url, voice),
                key=self._key,
                headers=kyutai.headers(self._key),
                longest=kyutai.LONGEST_MESSAGE,
                open_timeout=self._timeout,
            ) as socket:
                failure: Exception | None = None
                try:
                    for word in text.split():
                        await socket.send(kyutai.text(word))
                    await socket.send(kyutai.eos())
                except Exception as error:
                    # A server that refuses says why before it closes; that is read first.
                    failure = error
                messages = aiter(socket)
                # It says that it is done by closing.
                while (raw := await asyncio.wait_for(anext(messages, None), self._timeout)) is not None:
                    made.hear(kyutai.read(SETTING, raw))
                if failure is not None:
                    raise failure
        except TimeoutError:
            raise RemoteError("remote_timeout", f"{SETTING}: {self._url} was silent for {self._timeout:g} s") from None
        return made


class _Made:
    """What came of one clause."""

    def __init__(self) -> None:
        self.audio: list[kyutai.Samples] = []
        self._samples = 0
        self._words: list[kyutai.Word] = []

    def hear(self, message: kyutai.Message) -> None:
        match message:
            case kyutai.Audio(pcm):
                self.audio.append(pcm)
                self._samples += pcm.size
                if self._samples > LONGEST * kyutai.RATE:
                    raise RemoteError("remote_bad_response", f"{SETTING}: a clause became longer than {LONGEST:g} s")
            case kyutai.Word() as word:
                self._words.append(word)
            case kyutai.Failed(reason):
                raise RemoteError("remote_refused", f"{SETTING}: the voice's server says: {reason}")
            case _:
                pass

    def stretches(self, cut: int, length: int) -> list[Stretch]:
        """The words in samples, `cut` of which went at the beginning of the `length` that are left."""
        clock, found = 0, []
        for word in self._words:
            begin, end = (round(seconds * kyutai.RATE) - cut for seconds in (word.start, word.end))
            begin = min(max(begin, clock), length)
            clock = min(max(end, begin), length)
            found.append(Stretch(word.text, begin, clock))
        return found or [Stretch("", 0, length)]
