"""HTTP as the API speaks it: errors in one shape, bodies of bounded size."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Mapping
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from sessions.ports import Busy

from .dialects.checks import INVALID_JSON, Rejected

BODY_WITHIN: Final = 15.0
"""Seconds that a client has for a body."""
INVALID = "invalid_request_error"


class BodyRefused(Exception):
    """A request's body is not taken."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


def error(
    status: int,
    code: str,
    message: str,
    *,
    param: str | None = None,
    kind: str = INVALID,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """An error as OpenAI's clients parse it. `kind` is "server_error" where the client did nothing wrong."""
    body = {"error": {"type": kind, "code": code, "message": message, "param": param}}
    return JSONResponse(body, status, headers=headers)


async def from_exception(request: Request, exception: Exception) -> Response:
    """What Starlette itself refuses, in the same shape: unknown paths and methods."""
    if not isinstance(exception, HTTPException):
        raise exception
    path = request.url.path[:200]
    if exception.status_code == 404:
        return error(404, "not_found", f"there is nothing at {path}; the API lies below /v1/realtime")
    if exception.status_code == 405:
        allowed = (exception.headers or {}).get("Allow", "")
        message = f"{request.method[:20]} is not served at {path}; use {allowed}"
        return error(405, "method_not_allowed", message, headers=exception.headers)
    return error(exception.status_code, "http_error", exception.detail, headers=exception.headers)


async def json_text(request: Request, longest: int) -> str:
    """The body, which must be JSON by its content type and at most `longest` bytes; empty is allowed.

    Raises BodyRefused (413, 415) and Rejected (not UTF-8).
    """
    body = await _body(request, longest)
    if not body:
        return ""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        # Also what keeps other sites' pages from posting here: a browser asks first before it sends this type.
        raise BodyRefused(415, "unsupported_media_type", "send the body as JSON, with Content-Type: application/json")
    return _decoded(body, "JSON")


async def text(request: Request, longest: int) -> str:
    """The body as text of at most `longest` bytes. Raises BodyRefused (413) and Rejected (not UTF-8)."""
    return _decoded(await _body(request, longest), "text")


async def pieces(request: Request, longest: int) -> AsyncGenerator[bytes, None]:
    """The body as it comes, at most `longest` bytes within `BODY_WITHIN`. Raises BodyRefused (400, 408, 413)."""
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > longest:
        raise too_large(longest)
    loop = asyncio.get_running_loop()
    until = loop.time() + BODY_WITHIN
    stream = request.stream()
    received = 0
    while True:
        try:
            piece = await asyncio.wait_for(anext(stream, None), until - loop.time())
        except TimeoutError:
            message = f"the body took longer than {BODY_WITHIN:.0f} s; send it at once"
            raise BodyRefused(408, "request_timeout", message) from None
        except ClientDisconnect:
            raise BodyRefused(400, "body_incomplete", "the connection ended before the body did") from None
        if piece is None:
            return
        received += len(piece)
        if received > longest:
            raise too_large(longest)
        yield piece


async def _body(request: Request, longest: int) -> bytes:
    body = bytearray()
    async for piece in pieces(request, longest):
        body += piece
    return bytes(body)


def _decoded(body: bytes, what: str) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        raise Rejected(INVALID_JSON, f"the body is not UTF-8; send {what} in UTF-8") from None


def too_large(longest: int) -> BodyRefused:
    """The refusal of a body of more than `longest` bytes."""
    return BodyRefused(413, "request_too_large", f"the body is too long; at most {longest} bytes are taken")


def busy(why: Busy) -> JSONResponse:
    """The refusal of a session for which there is no room: 503 where nobody gets one, 429 where this tenant gets
    none."""
    headers = {"Retry-After": str(math.ceil(why.retry_after))}
    if why.code == "server_busy":
        return error(503, why.code, str(why), kind="server_error", headers=headers)
    return error(429, why.code, str(why), headers=headers)
