"""What is kept of tenants and sessions over HTTP, for those whom it concerns (docs/security.md)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from sessions.ownership import DirectoryDown

from .. import http
from ..auth import Access, Denied, Scope
from .holdings import Held, Holdings
from .tenants import NAME

BASE: Final = "/v1/talkover/tenants"
NOBODY: Final = "-"
"""In a path: the tenant of a server that asks for no keys."""

Answer = Callable[[str, str | None], Awaitable[Response]]


class TenantEndpoints:
    """The routes. `denied` counts and answers a refusal of access."""

    def __init__(self, holdings: Holdings, access: Access, denied: Callable[[Denied], JSONResponse]) -> None:
        self._holdings = holdings
        self._access = access
        self._denied = denied

    def routes(self) -> list[BaseRoute]:
        found: list[BaseRoute] = [Route(BASE, self._list, methods=["GET"])]
        for path in (f"{BASE}/{{tenant}}/state", f"{BASE}/{{tenant}}/sessions/{{session}}/state"):
            found.append(Route(path, self._guarded(self._state), methods=["GET"]))
            found.append(Route(path, self._guarded(self._delete), methods=["DELETE"]))
        return found

    async def _list(self, request: Request) -> Response:
        """GET /v1/talkover/tenants: their names, for those who look after the server."""
        try:
            self._access.administration(request.headers, Scope.OPERATE)
        except Denied as denied:
            return self._denied(denied)
        tenants = self._access.tenants
        names = [self._access.house or NOBODY, *(tenants.names() if tenants is not None else ())]
        return JSONResponse({"object": "list", "data": list(dict.fromkeys(names))})

    def _guarded(self, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        async def guarded(request: Request) -> Response:
            given = request.path_params["tenant"]
            tenant = "" if given == NOBODY else given
            try:
                grant = self._access.administration(request.headers, Scope.MANAGE)
                if (tenant and not NAME.fullmatch(tenant)) or not grant.owns(tenant):
                    # Nobody learns which others there are.
                    return http.error(404, "tenant_not_found", f"there is no tenant {given[:80]!r} for this key")
                return await answer(tenant, request.path_params.get("session"))
            except Denied as denied:
                return self._denied(denied)
            except DirectoryDown:
                message = "the directory of sessions cannot be reached; nothing in it was deleted: try again"
                return http.error(503, "directory_down", message, kind="server_error", headers={"Retry-After": "5"})

        return guarded

    async def _state(self, tenant: str, session: str | None) -> Response:
        """GET …/state: every piece of state that there is."""
        return JSONResponse({"object": "talkover.state", "held": _plain(await self._holdings.held(tenant, session))})

    async def _delete(self, tenant: str, session: str | None) -> Response:
        """DELETE …/state: all of it; what was there, and what is left."""
        before = await self._holdings.held(tenant, session)
        left = await self._holdings.delete(tenant, session)
        return JSONResponse({"object": "talkover.state.deleted", "held": _plain(before), "left": _plain(left)})


def _plain(held: list[Held]) -> list[dict[str, object]]:
    return [one.plain() for one in held]
