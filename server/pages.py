"""The pages: the files of `web_demo/` as they are, under a policy by which they load nothing from elsewhere."""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

import web_demo

FOLDER: Final = Path(web_demo.__file__).parent
INDEX: Final = "index.html"
REPLAY: Final = "replay/index.html"

TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""What is served, and as what: the system's own table of types may know no modules, and browsers insist."""

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""https://www.w3.org/TR/CSP3/. Neither a script in a caption nor a page around ours gets at the microphone."""

HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "Permissions-Policy": "microphone=(self), camera=(), geolocation=()",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # Asked for each time and answered with 304 by the ETag: after an update no page mixes old modules with new ones.
    "Cache-Control": "no-cache",
}


class Pages:
    """The endpoints: `index` of `/`, `replay` of `/replay/…`, `file` of a path with the parameter `path` below the
    folder."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._files = StaticFiles(directory=folder)

    async def index(self, request: Request) -> Response:
        """The voice page."""
        return await self._answer(INDEX, request)

    async def replay(self, request: Request) -> Response:
        """The replay page, which finds out itself what is to be shown."""
        return await self._answer(REPLAY, request)

    async def file(self, request: Request) -> Response:
        """What a page loads; raises HTTPException (404)."""
        return await self._answer(posixpath.normpath(request.path_params["path"]), request)

    async def _answer(self, path: str, request: Request) -> Response:
        kind = TYPES.get(Path(path).suffix)
        if kind is None:
            raise HTTPException(404)
        response = await self._files.get_response(path, request.scope)
        response.headers.update(HEADERS)
        if response.status_code == 200:
            response.headers["Content-Type"] = kind
        return response
