"""Realtime over WebRTC: calls are made, hung up and watched by HTTP, and carried by peer connections.

https://platform.openai.com/docs/api-reference/realtime-calls. A call is one connection; its session may outlive it and
be joined by another call (see docs/webrtc.md).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.websockets import WebSocket

from codec.opus import OpusUnavailable
from sessions.core.events import Close
from sessions.counters import Counters
from sessions.handle import SessionHandle
from sessions.manager import SessionManager
from sessions.ownership import DirectoryDown, unknown
from sessions.ports import Busy, NotResumable

from . import http
from .auth import Access, Denied, Grant, Scope, used_up
from .call_request import Wanted, read
from .carriers.webrtc import sdp
from .carriers.webrtc.carrier import WebRtcCarrier
from .carriers.webrtc.pacer import Pacer
from .carriers.webrtc.peer import NoAddress, PeerSettings, ice_servers
from .client_secrets import UsedUp
from .dialects.checks import Object, Rejected
from .dialects.realtime_track import TrackDialect
from .resumable import go_on, keep_noted
from .settings import Settings
from .sideband import no_call, watch

log = logging.getLogger(__name__)

CALL: Final = "call"
"""Of a session's note: that it is this kind of client's."""


def peer_settings(settings: Settings) -> PeerSettings:
    """How connections are made, as `settings` say."""
    return PeerSettings(
        addresses=settings.ice_addresses,
        public_address=settings.rtc_public_address,
        ice_servers=ice_servers(settings.ice_urls, settings.ice_username, settings.ice_credential),
        relay_only=settings.ice_relay_only,
        bitrate=settings.rtc_bitrate,
        dtx=settings.rtc_dtx,
    )


@dataclass(slots=True)
class Call:
    """One call that is there. `secret` is the ephemeral key that made it, by its id."""

    id: str
    carrier: WebRtcCarrier
    handle: SessionHandle
    dialect: TrackDialect
    secret: bytes | None
    watchers: int = 0


class Calls:
    """All calls of the process, and their routes."""

    def __init__(
        self,
        settings: PeerSettings,
        access: Access,
        counters: Counters,
        manager: Callable[[], SessionManager | None],
        dialect: Callable[[str, Sequence[Object], bool, str], TrackDialect],
        denied: Callable[[Denied], JSONResponse],
    ) -> None:
        """`manager`: None while the models are prepared. `dialect` makes one for a model's name, session objects (the
        later over the earlier), whether the client may come back, and whose it is; it raises Rejected for a wrong
        session object. `denied` counts and answers a refusal of access."""
        self._settings = settings
        self._access = access
        self._counters = counters
        self._manager = manager
        self._dialect = dialect
        self._denied = denied
        self._pacer: Pacer | None = None
        self._calls: dict[str, Call] = {}
        self._dialects: dict[str, TrackDialect] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/v1/realtime/calls", self._create, methods=["POST"]),
            Route("/v1/realtime", self._create, methods=["POST"]),
            Route("/v1/realtime/calls/{call_id}/hangup", self._hangup, methods=["POST"]),
        ]

    def __len__(self) -> int:
        return len(self._calls)

    def of(self, tenant: str) -> dict[str, str]:
        """What there is of a tenant: sessions by the ids of their calls; a session that waits for one stands for
        itself."""
        waiting = {name: name for name, dialect in self._dialects.items() if dialect.config.tenant == tenant}
        calls = {one.id: one.handle.session for one in self._calls.values() if one.dialect.config.tenant == tenant}
        return waiting | calls

    @property
    def waiting(self) -> int:
        """Bytes that wait for the peers of all calls."""
        return sum(call.carrier.waiting for call in self._calls.values())

    async def close(self) -> None:
        """Wait until every connection is closed; their sessions have been ended before."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- a call ------------------------------------------------------------------------------------------------------

    async def _create(self, request: Request) -> Response:
        """POST /v1/realtime/calls, and /v1/realtime as older clients have it."""
        try:
            grant = self._access.session(request.headers)
            wanted = await read(request)
            return await self._begin(wanted, grant)
        except Denied as denied:
            return self._denied(denied)
        except http.BodyRefused as refused:
            return http.error(refused.status, refused.code, refused.message)
        except sdp.OfferRefused as refused:
            return http.error(400, refused.code, refused.message, param="sdp")
        except Rejected as rejected:
            return http.error(400, rejected.code, rejected.message, param=rejected.param)
        except NotResumable as lost:
            return http.error(409, lost.code, str(lost), param="session.x_talkover.resume")
        except Busy as busy:
            self._counters.add("sessions_refused")
            return http.busy(busy)
        except UsedUp as used:
            return self._denied(used_up(used))
        except DirectoryDown as away:
            headers = {"Retry-After": "2"}
            message = f"the directory of sessions cannot be reached ({away}); try again in a moment"
            return http.error(503, "directory_down", message, kind="server_error", headers=headers)
        except NoAddress as nowhere:
            return http.error(503, "no_address", str(nowhere), kind="server_error")
        except OpusUnavailable as missing:
            return http.error(503, "opus_unavailable", str(missing), kind="server_error")

    async def _begin(self, wanted: Wanted, grant: Grant) -> Response:
        manager = self._manager()
        if manager is None:
            headers = {"Retry-After": "5"}
            message = "the server is not ready yet; GET /healthz says how far it is"
            return http.error(503, "not_ready", message, kind="server_error", headers=headers)
        bound = None if grant.secret is None else grant.secret.session
        known = self._dialects.get(wanted.resume[0]) if wanted.resume is not None else None
        if known is not None and known.config.tenant != grant.tenant:
            raise unknown(wanted.resume[0] if wanted.resume is not None else "")
        given = () if wanted.resume is not None else (bound, wanted.session)
        patches = [one for one in given if one is not None]
        resumable = wanted.resumable or wanted.resume is not None
        dialect = known or self._dialect(wanted.model, patches, resumable, grant.tenant)
        dialect.resumable = dialect.resumable or resumable
        if wanted.resume is None:
            manager.check_room()  # before anything is made for it; `open` looks again
        if self._pacer is None:
            self._pacer = Pacer()
        carrier = WebRtcCarrier(
            self._settings,
            dialect,
            self._counters,
            self._pacer,
            output_rate=manager.engine.capabilities.output_rate,
        )
        try:
            answer = await carrier.answer(wanted.offer)
            if wanted.resume is None:
                with self._access.secrets.opening(grant.secret):
                    handle = manager.open(carrier, dialect.config)
            elif known is not None:
                handle = manager.attach(*wanted.resume, carrier)
            else:
                handle = await go_on(manager, *wanted.resume, dialect, CALL, carrier)
            carrier.begin(handle)
            if dialect.resumable:
                keep_noted(dialect, lambda: handle, CALL)
        except BaseException:
            await carrier.close()
            raise
        call = Call(f"rtc_{secrets.token_hex(12)}", carrier, handle, dialect, grant.secret.id if grant.secret else None)
        self._calls[call.id] = call
        self._counters.add("calls_made")
        self._start(self._carry(call), call.id)
        if known is None:
            self._dialects[handle.session] = dialect
            self._start(self._forget(handle), f"{call.id}-session")
        headers = {"Location": f"/v1/realtime/calls/{call.id}"}
        return Response(answer, 201, headers=headers, media_type="application/sdp")

    def _start(self, work: Coroutine[None, None, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, call: Call) -> None:
        try:
            await call.carrier.run()
        except Exception:
            log.exception("call %s failed", call.id)
        finally:
            self._calls.pop(call.id, None)

    async def _forget(self, handle: SessionHandle) -> None:
        """Keep a session's dialect for as long as another call may join it."""
        await handle.closed()
        self._dialects.pop(handle.session, None)

    # --- hang-up and sideband ----------------------------------------------------------------------------------------

    async def _hangup(self, request: Request) -> Response:
        """POST /v1/realtime/calls/{call_id}/hangup."""
        try:
            call = self._find(request.path_params["call_id"], self._access.session(request.headers))
        except Denied as denied:
            return self._denied(denied)
        if call is None:
            return no_call(request.path_params["call_id"])
        call.handle.post(Close("hangup"))
        return Response(status_code=200)

    def _find(self, call_id: str, grant: Grant) -> Call | None:
        """The call, for its maker and for whoever manages its tenant."""
        call = self._calls.get(call_id)
        if call is None or not grant.owns(call.dialect.config.tenant):
            return None
        made = grant.secret is not None and call.secret == grant.secret.id
        return call if made or grant.may(Scope.MANAGE) else None

    async def watch(self, socket: WebSocket, grant: Grant) -> None:
        """A sideband: `WS /v1/realtime?call_id=…`. Every event of the call, and commands to it."""
        call_id = socket.query_params["call_id"]
        await watch(socket, call_id, self._find(call_id, grant))
