"""A recognizer at any OpenAI-compatible endpoint: `POST {url}/audio/transcriptions`, one utterance each.

Facts from the OpenAI API reference, "Create transcription": `verbose_json` with the granularity "word" tells word
times; endpoints and models that know only `json` are asked for that from then on.
"""

from __future__ import annotations

import io
import json

import httpx
import numpy as np
import soundfile
from numpy.typing import NDArray

from ..remote.errors import RemoteError
from ..remote.http import Answer, HttpEndpoint
from .asr import LanguageUnsupported, Recognition
from .mel import SAMPLE_RATE
from .remote_words import SHORTEST, Heard, language_code, recognition

SETTING = "asr-url"


class OpenAIRecognizer:
    """As `Recognizer`, over HTTP; several threads may ask at once. `url` ends before `/audio/transcriptions`.

    Raises RemoteError for an address that cannot be. `close` cuts off what is being asked.
    """

    def __init__(
        self,
        url: str,
        model: str,
        key: str = "",
        *,
        languages: tuple[str, ...] = ("en",),
        timeout: float = 20.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._endpoint = HttpEndpoint(SETTING, url, key, timeout=timeout, longest=4 << 20, transport=transport)
        self._model = model
        self.languages = languages
        self._tells_times = True

    def recognize(self, samples: NDArray[np.float32], language: str = "en", *, times: bool = False) -> Recognition:
        """See `Recognizer.recognize`; no tokens are told. Raises LanguageUnsupported and RemoteError."""
        code = language_code(language, self.languages)
        if samples.size < SHORTEST:
            return Recognition("")
        wav = io.BytesIO()
        soundfile.write(wav, samples, SAMPLE_RATE, format="WAV", subtype="PCM_16")
        answer = self._ask(wav.getvalue(), code, times)
        text, words = _read(answer)
        return recognition(text, words if times else (), samples.size / SAMPLE_RATE, times=times)

    def close(self) -> None:
        self._endpoint.close()

    def _ask(self, wav: bytes, code: str, times: bool) -> Answer:
        fields: dict[str, str | list[str]] = {"model": self._model, "language": code, "response_format": "json"}
        if times and self._tells_times:
            told: dict[str, str | list[str]] = {
                "response_format": "verbose_json",
                "timestamp_granularities[]": ["word"],
            }
            try:
                return self._post(wav, {**fields, **told})
            except RemoteError as error:
                if error.status not in (400, 422):
                    raise
            answer = self._post(wav, fields)
            # It was the format that it did not want, not the utterance.
            self._tells_times = False
            return answer
        return self._post(wav, fields)

    def _post(self, wav: bytes, fields: dict[str, str | list[str]]) -> Answer:
        return self._endpoint.post("/audio/transcriptions", fields=fields, file=("utterance.wav", wav, "audio/wav"))


def _read(answer: Answer) -> tuple[str, tuple[Heard, ...]]:
    try:
        given = json.loads(answer.body)
    except ValueError as error:
        raise RemoteError("remote_bad_response", f"{SETTING}: the answer is not JSON ({error})") from None
    text = given.get("text") if isinstance(given, dict) else None
    if not isinstance(text, str):
        raise RemoteError("remote_bad_response", f"{SETTING}: the answer has no text; does it speak this protocol?")
    words = given.get("words")
    found = []
    for word in words if isinstance(words, list) else []:
        match word:
            case {"word": str(spelled), "start": int() | float() as start, "end": int() | float() as end}:
                found.append(Heard(spelled, float(start), float(end)))
    return text, tuple(found)


__all__ = ["LanguageUnsupported", "OpenAIRecognizer"]
