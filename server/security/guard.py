"""What stands before the application: requests that no client of good will sends are refused, and answers say what a
browser may do with them.

It runs once a request or handshake; what goes over an accepted WebSocket does not pass it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from sessions.counters import Counters

from .. import http
from ..auth import ORIGIN, Denied, bearer, key_of
from ..carriers.uvicorn_http import HEAD_MOST
from .tokens import Tokens

ONCE: Final = ("authorization", "host", "origin", "content-length", "content-type", "sec-websocket-key")
"""Headers that mean something only where there is one of them: whoever looked at the other one was deceived."""
TRICKS: Final = re.compile(rb"%(?:2f|5c|00)|\\|%25(?:2f|5c|2e|00)", re.IGNORECASE)
"""In a path: slashes, backslashes and ends of text that are hidden from whoever compares paths before us."""
REFUSED: Final = "requests_refused"

DEFAULTS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""What holds for every answer that does not say otherwise (https://owasp.org/www-project-secure-headers/)."""
STRICT_TRANSPORT: Final = "max-age=31536000"
"""RFC 6797: a year."""


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(
        self,
        app: ASGIApp,
        counters: Counters,
        *,
        origins: Sequence[str] = (),
        strict_transport: bool = False,
        tokens: Tokens | None = None,
    ) -> None:
        """`origins`: of pages elsewhere whose requests browsers may let through. `strict_transport`: browsers shall
        come by TLS alone from now on. `tokens`: whose keys are asked for before the application decides."""
        self._app = app
        self._counters = counters
        self._origins = frozenset(origins)
        self._tokens = tokens
        self._defaults = DEFAULTS | ({"Strict-Transport-Security": STRICT_TRANSPORT} if strict_transport else {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = _refusal(scope, headers)
        if self._tokens is not None and refusal is None:
            await self._prepare(self._tokens, headers, scope.get("subprotocols", []))
        if scope["type"] == "websocket":
            if refusal is not None:
                self._counters.add(REFUSED)
                await WebSocket(scope, receive, send).send_denial_response(refusal)
                return
            await self._app(scope, receive, send)
            return
        shared = self._shared(headers)
        if refusal is not None:
            self._counters.add(REFUSED)
        elif self._origins and scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            refusal = self._preflight(headers, shared)
        answer: ASGIApp = self._app if refusal is None else refusal
        await answer(scope, receive, self._finished(send, shared))

    def _finished(self, send: Send, shared: Mapping[str, str]) -> Send:
        """`send` with what every answer says."""

        async def finished(message: Message) -> None:
            if message["type"] == "http.response.start":
                told = MutableHeaders(scope=message)
                for name, value in self._defaults.items():
                    told.setdefault(name, value)
                told.update(shared)
            await send(message)

        return finished

    async def _prepare(self, tokens: Tokens, headers: Headers, subprotocols: Sequence[str]) -> None:
        try:
            key = bearer(headers.get("authorization")) or key_of(subprotocols)
        except Denied:
            return  # the application says so
        if key is not None:
            await tokens.prepare(key)

    # --- pages of other origins (https://fetch.spec.whatwg.org/#http-cors-protocol) ----------------------------------

    def _shared(self, headers: Headers) -> dict[str, str]:
        if not self._origins:
            return {}
        origin = headers.get("origin")
        if origin is None or origin not in self._origins:
            return {"Vary": "Origin"}
        return {"Access-Control-Allow-Origin": origin, "Vary": "Origin", "Access-Control-Expose-Headers": "Location"}

    def _preflight(self, headers: Headers, shared: Mapping[str, str]) -> Response:
        if "Access-Control-Allow-Origin" not in shared:
            return http.error(403, ORIGIN, "pages of this origin may not connect here; set --allow-origin")
        # What the SDKs send beside the two that matter differs from version to version.
        wanted = headers.get("access-control-request-headers", "authorization, content-type")
        allowed = {
            "Access-Control-Allow-Methods": "GET, POST, DELETE",
            "Access-Control-Allow-Headers": wanted[:1000],
            "Access-Control-Max-Age": "600",
        }
        return Response(status_code=204, headers=allowed)


def _refusal(scope: Scope, headers: Headers) -> Response | None:
    path: str = scope["path"]
    if TRICKS.search(scope.get("raw_path") or b"") or any(part in (".", "..") for part in path.split("/")):
        return http.error(404, "not_found", "paths with '.', '..' or hidden slashes lead nowhere; write the path out")
    size = len(scope.get("raw_path") or b"") + len(scope["query_string"])
    if size + sum(len(name) + len(value) + 4 for name, value in headers.raw) > HEAD_MOST:
        return http.error(431, "headers_too_large", f"the head of a request may have {HEAD_MOST} bytes; send less")
    if "content-length" in headers and "transfer-encoding" in headers:
        # RFC 9112 section 6.1: one before us may have read another length.
        return http.error(400, "ambiguous_length", "Content-Length and Transfer-Encoding are both there; send one")
    for name in ONCE:
        if len(headers.getlist(name)) > 1:
            return http.error(400, "duplicate_header", f"the header {name!r} is there more than once; send it once")
    return None
