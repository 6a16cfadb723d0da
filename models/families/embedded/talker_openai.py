"""A talker at any OpenAI-compatible endpoint: `POST {url}/audio/speech`, one clause each.

Facts from the OpenAI API reference, "Create speech": `response_format` "pcm" is 24 kHz 16-bit mono little-endian
without a header. Endpoints that answer with a WAV file all the same are understood.
"""

from __future__ import annotations

import httpx

from ...remote import sound
from ...remote.errors import RemoteError
from ...remote.http import HttpEndpoint
from .talker import Spoken, TalkerError
from .word_times import Stretch, align

SETTING = "tts-url"
DEFAULT_VOICE = "alloy"
SPEEDS = (0.25, 4.0)


class OpenAITalker:
    """`Talker` over HTTP. `url` ends before `/audio/speech`; `voice` speaks where a session names none.

    The protocol tells no word times: each word takes its share of what sounds, by its letters. Raises RemoteError for
    an address that cannot be. `close` cuts off the clause that is being made.
    """

    def __init__(
        self,
        url: str,
        model: str,
        key: str = "",
        *,
        voice: str = DEFAULT_VOICE,
        timeout: float = 20.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._endpoint = HttpEndpoint(SETTING, url, key, timeout=timeout, transport=transport)
        self._model = model
        self._voice = voice

    @property
    def voices(self) -> tuple[str, ...]:
        """Any: the endpoint knows which."""
        return ()

    @property
    def rate(self) -> int:
        return sound.RATE

    def speak(self, text: str, *, voice: str = "default", speed: float = 1.0, first: bool = True) -> Spoken:
        """See `Talker.speak`. Blocks until the whole clause is there."""
        if not sound.pronounceable(text):
            return Spoken(b"", ())
        try:
            answer = self._endpoint.post(
                "/audio/speech",
                json={
                    "model": self._model,
                    "input": text,
                    "voice": self._voice if voice == "default" else voice,
                    "response_format": "pcm",
                    "speed": min(max(speed, SPEEDS[0]), SPEEDS[1]),
                },
            )
            heard = sound.trimmed(sound.decoded(SETTING, answer.body)).samples
        except RemoteError as error:
            raise TalkerError(error.code, str(error)) from error
        if not heard.size:
            raise TalkerError("remote_bad_response", f"{SETTING}: silence came for {text[:60]!r}; check the voice")
        spans = align(text.split(), [Stretch("", 0, len(heard))])
        return Spoken(sound.pcm(heard), sound.worded(text, spans, first=first))

    def close(self) -> None:
        self._endpoint.close()
