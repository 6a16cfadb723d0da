"""Requests to a model behind HTTP, from threads that may wait."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import httpx

from .backoff import Backoff
from .errors import RemoteError, status_error, transport_error
from .loop import RemoteLoop

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

_BUSY = (408, 425, 429, 500, 502, 503, 504)
_AGAIN = frozenset({"remote_lost", "remote_unreachable"})


@dataclass(frozen=True, slots=True)
class Answer:
    """A body and what kind it says it is."""

    body: bytes
    kind: str


class HttpEndpoint:
    """Requests below `url`, which the option `setting` named. Several threads may ask at once.

    `timeout`: seconds without a byte. `longest`: bytes of one answer. A request that found the server away or busy is
    made once more: what a recognizer or a voice answers does not depend on how often it was asked.
    """

    def __init__(
        self,
        setting: str,
        url: str,
        key: str = "",
        *,
        timeout: float = 20.0,
        longest: int = 32 << 20,
        backoff: Backoff | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Raises RemoteError for a URL that is not http(s)."""
        if not url.startswith(("http://", "https://")):
            raise RemoteError("remote_unreachable", f"{setting} {url!r} must begin with http:// or https://")
        self.setting = setting
        self.url = url.rstrip("/")
        self._key = key
        self._longest = longest
        self._backoff = backoff or Backoff(first=0.1, longest=0.5, attempts=2)
        self._loop = RemoteLoop(f"talkover-{setting}")
        self._client = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(timeout, connect=min(timeout, 5.0)),
            transport=transport,
        )

    def post(
        self,
        path: str,
        *,
        json: Json = None,
        fields: Mapping[str, str | list[str]] | None = None,
        file: tuple[str, bytes, str] | None = None,
    ) -> Answer:
        """POST `json`, or a form with `fields` and a `file` (name, content, kind). Blocks; raises RemoteError."""
        return self._loop.call(self._post(self.url + path, json, fields, file))

    def close(self) -> None:
        """Cut off every request, then close. Idempotent."""
        self._loop.close()

    async def _post(
        self,
        url: str,
        json: Json,
        fields: Mapping[str, str | list[str]] | None,
        file: tuple[str, bytes, str] | None,
    ) -> Answer:
        attempt = 0
        while True:
            try:
                return await self._once(url, json, fields, file)
            except RemoteError as error:
                attempt += 1
                if attempt >= self._backoff.attempts or not (error.code in _AGAIN or error.status in _BUSY):
                    raise
            await asyncio.sleep(self._backoff.delay(attempt))

    async def _once(
        self,
        url: str,
        json: Json,
        fields: Mapping[str, str | list[str]] | None,
        file: tuple[str, bytes, str] | None,
    ) -> Answer:
        files = None if file is None else {"file": file}
        try:
            async with self._client.stream("POST", url, json=json, data=fields, files=files) as response:
                body = bytearray()
                async for piece in response.aiter_bytes():
                    body += piece
                    if len(body) > self._longest:
                        raise RemoteError(
                            "remote_bad_response", f"{self.setting}: {url} answers with more than {self._longest} bytes"
                        )
        except Exception as error:
            typed = transport_error(self.setting, url, error, self._key)
            if typed is error:
                raise
            raise typed from error
        if response.status_code != 200:
            raise status_error(self.setting, url, response.status_code, bytes(body), self._key)
        return Answer(bytes(body), response.headers.get("content-type", "").partition(";")[0].strip().lower())
