"""HTTP as the API speaks it: errors in one shape, bodies of bounded size."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from .dialects.checks import INVALID_JSON, Rejected

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


async def _body(request: Request, longest: int) -> bytes:
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared) > longest:
        raise too_large(longest)
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > longest:
            raise too_large(longest)
    return bytes(body)


def _decoded(body: bytes, what: str) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        raise Rejected(INVALID_JSON, f"the body is not UTF-8; send {what} in UTF-8") from None


def too_large(longest: int) -> BodyRefused:
    """The refusal of a body of more than `longest` bytes."""
    return BodyRefused(413, "request_too_large", f"the body is too long; at most {longest} bytes are taken")
