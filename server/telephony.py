"""Telephone calls: vendors connect to `/telephony/<vendor>`, and calls are listed, hung up and passed on by HTTP.

See docs/telephony.md. A call begins when its vendor says so, on a connection that may be anybody's until then; what it
says of itself becomes the session's configuration, and its number is written down redacted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from sessions.core.config import SessionConfig
from sessions.core.events import Close
from sessions.core.timeline import Ticks, from_ms
from sessions.counters import Counters
from sessions.handle import SessionHandle
from sessions.manager import SessionManager
from sessions.ports import Busy, NotResumable

from . import http
from .auth import Access, Denied, Grant, Scope
from .carriers.phone import Line, NoCall, PhoneCarrier
from .carriers.phone_line import NoWire, WebSocketLine
from .carriers.tcp import AudioSocketServer
from .carriers.webrtc.pacer import Pacer
from .dialects.checks import Object, Rejected, parse
from .dialects.realtime_track import TrackDialect
from .dialects.telephony.base import Call, PhoneDialect
from .dialects.telephony.vendors import SUBPROTOCOLS, VENDORS
from .settings import Settings, SettingsError
from .sideband import no_call, watch
from .telephony_access import NumberLimits, PhoneAccess, redacted
from .telephony_documents import NAMES, connect_document

log = logging.getLogger(__name__)

LEAD_MOST: Final[Ticks] = from_ms(200)
"""How deep a vendor's buffer may get: nothing but its own clear reaches into it."""
FRAME: Final[Ticks] = from_ms(20)
RESUME_MOST: Final[Ticks] = from_ms(10_000)
"""How long a call whose line was lost waits for its vendor to connect again."""
BODY_MOST: Final = 64 * 1024
CALL_PREFIX: Final = "phone_"

CALLS: Final = "phone_calls"
REFUSED: Final = "phone_calls_refused"
RECONNECTED: Final = "phone_calls_reconnected"

DialectOf = Callable[[Sequence[Object], SessionConfig], TrackDialect]


@dataclass(slots=True)
class PhoneCall:
    """One call that is there. `id`: ours."""

    id: str
    call: Call
    caller: str
    callee: str
    carrier: PhoneCarrier
    handle: SessionHandle
    application: TrackDialect
    tenant: str
    began: float
    watchers: int = 0
    connections: int = 1
    shown: Mapping[str, str] = field(default_factory=dict)


class Telephony:
    """All telephone calls of the process, and their routes."""

    def __init__(
        self,
        settings: Settings,
        access: Access,
        counters: Counters,
        manager: Callable[[], SessionManager | None],
        defaults: SessionConfig,
        dialect: DialectOf,
        denied: Callable[[Denied], JSONResponse],
    ) -> None:
        """`manager`: None while the models are prepared. `dialect` makes the application's side of a call for session
        objects (the later over the earlier) and what holds where they say nothing; it raises Rejected."""
        self._settings = settings
        self._counters = counters
        self._manager = manager
        self._defaults = defaults
        self._dialect = dialect
        self._denied = denied
        self._access = access
        self._phones = PhoneAccess(
            access, settings.phone_secret_of, settings.phone_networks, tenant=settings.phone_tenant or access.house
        )
        self._limits = NumberLimits(settings.phone_per_number, settings.phone_per_number_minute)
        self._session = _session_of(settings)
        self._pacer: Pacer | None = None
        self._calls: dict[tuple[str, str], PhoneCall] = {}
        self._audiosocket: AudioSocketServer | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/telephony/calls", self._list),
            Route("/telephony/calls/{call_id}/hangup", self._hangup, methods=["POST"]),
            Route("/telephony/calls/{call_id}/transfer", self._transfer, methods=["POST"]),
            Route("/telephony/{vendor}/connect", self._connect, methods=["GET", "POST"]),
            WebSocketRoute("/telephony/{vendor}", self._socket),
        ]

    def __len__(self) -> int:
        return len(self._calls)

    def of(self, tenant: str) -> dict[str, str]:
        """The calls of a tenant: their sessions by their ids."""
        return {one.id: one.handle.session for one in self._calls.values() if one.tenant == tenant}

    @property
    def numbers(self) -> NumberLimits:
        """What is remembered of the numbers that call."""
        return self._limits

    @property
    def waiting(self) -> int:
        """Bytes that wait for the peers of all calls."""
        return sum(one.carrier.waiting for one in self._calls.values())

    async def open(self) -> None:
        """Listen for AudioSocket, where that is wanted."""
        port = self._settings.audiosocket_port
        if port is not None:
            self._audiosocket = AudioSocketServer(self._audiosocket_call)
            await self._audiosocket.open(self._settings.host, port)

    @property
    def audiosocket_port(self) -> int | None:
        """Where AudioSocket is listened for."""
        return None if self._audiosocket is None else self._audiosocket.port

    async def close(self) -> None:
        """Take no more calls by AudioSocket and wait for those that are there; their sessions have been ended."""
        if self._audiosocket is not None:
            await self._audiosocket.close()
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- a call ------------------------------------------------------------------------------------------------------

    async def _socket(self, socket: WebSocket) -> None:
        vendor = socket.path_params["vendor"]
        made = VENDORS.get(vendor)
        if made is None:
            known = ", ".join(sorted(VENDORS))
            message = f"there is no vendor {vendor[:40]!r}; known are {known}"
            await socket.send_denial_response(http.error(404, "unknown_vendor", message, param="vendor"))
            return
        try:
            self._phones.address("" if socket.client is None else socket.client.host)
            signed = self._phones.signed(vendor, self._urls(socket.url.path, socket.url.query, "ws"), socket.headers)
            if "origin" in socket.headers and not signed and not self._access.needs_key:
                # A browser's page: where being on this machine lets a client in, pages from elsewhere are not on it.
                self._access.session(socket.headers)
        except Denied as denied:
            await socket.send_denial_response(self._denied(denied))
            return
        if self._manager() is None:
            answer = http.error(503, "not_ready", "the server is not ready yet; try again soon", kind="server_error")
            await socket.send_denial_response(answer)
            return
        offered = socket.scope.get("subprotocols", [])
        await socket.accept(subprotocol=next((name for name in SUBPROTOCOLS if name in offered), None))
        try:
            line = WebSocketLine(socket)
        except NoWire as error:
            await socket.close(1011, str(error))
            return
        dialect = made()
        dialect.addressed(dict(socket.query_params))
        await self.serve(line, dialect, socket.headers, signed)

    async def _audiosocket_call(self, line: Line) -> None:
        try:
            self._phones.address(line.peer)
        except Denied as denied:
            self._counters.add("access_denied")
            line.fail(1008, denied.code)
            return
        # Whoever reaches this port is let in: the settings see to it that this is loopback or a list of addresses.
        await self.serve(line, VENDORS["audiosocket"](), {}, True)

    async def serve(self, line: Line, dialect: PhoneDialect, headers: Mapping[str, str], signed: bool) -> None:
        """Carry one call from its start to its end."""
        if dialect.needs_pacing and self._pacer is None:
            self._pacer = Pacer()
        carrier = PhoneCarrier(line, dialect, self._counters, self._pacer if dialect.needs_pacing else None)
        try:
            call = await carrier.start()
        except NoCall as nobody:
            self._refused(dialect.vendor, nobody.code)
            carrier.refuse(nobody.code, str(nobody))
            return
        try:
            one, handle = self._begin(carrier, call, headers, signed)
        except (Denied, Rejected, Busy, NotResumable) as why:
            code = getattr(why, "code", "server_busy")
            self._refused(dialect.vendor, code)
            carrier.refuse(code, str(getattr(why, "message", why)))
            return
        reason = "cancelled"
        try:
            reason = await carrier.run(handle)
        finally:
            # Where the line was lost the session may wait for its vendor to connect again, which then finds the call
            # here; the connection's own task does not wait for that.
            task = asyncio.get_running_loop().create_task(self._forget(one, carrier, handle, reason), name=one.id)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _forget(self, one: PhoneCall, carrier: PhoneCarrier, handle: SessionHandle, reason: str) -> None:
        await handle.closed()
        if one.carrier is carrier:
            self._calls.pop(_key(one), None)
            self._limits.leave(one.caller, one.tenant)
            log.info("call %s of %s ended: %s", one.id, one.shown, reason)
            self._counters.add(f"{CALLS}_ended_{reason}"[:80])

    def _refused(self, vendor: str, code: str) -> None:
        self._counters.add(REFUSED)
        self._counters.add(f"{REFUSED}_{vendor}_{code}"[:80])

    def _begin(
        self, carrier: PhoneCarrier, call: Call, headers: Mapping[str, str], signed: bool
    ) -> tuple[PhoneCall, SessionHandle]:
        """A session for the call, or its own one where it comes again. Raises Denied, Rejected, Busy, NotResumable."""
        manager = self._manager()
        if manager is None:
            raise Busy("the server is not ready yet; try again soon", retry_after=5.0)
        tenant = self._phones.call(headers, call.parameters, signed)
        caller = call.caller or call.parameters.get("from", "")
        callee = call.callee or call.parameters.get("to", "")
        live = self._calls.get((call.vendor, call.id)) if call.id else None
        if live is not None and live.tenant != tenant:
            raise Denied(403, "call_in_use", "a call with this id is there and is somebody else's")
        if live is not None:
            return self._rejoin(manager, live, carrier)
        self._limits.enter(caller, tenant)
        try:
            return self._open(manager, carrier, call, caller, callee, tenant)
        except BaseException:
            self._limits.leave(caller, tenant)
            raise

    def _rejoin(
        self, manager: SessionManager, live: PhoneCall, carrier: PhoneCarrier
    ) -> tuple[PhoneCall, SessionHandle]:
        live.handle = manager.attach(live.handle.session, live.handle.resume_token, carrier)
        live.carrier = carrier
        live.connections += 1
        carrier.accompany(live.application)
        self._counters.add(RECONNECTED)
        return live, live.handle

    def _open(
        self, manager: SessionManager, carrier: PhoneCarrier, call: Call, caller: str, callee: str, tenant: str
    ) -> tuple[PhoneCall, SessionHandle]:
        settings = self._settings
        shown = caller if settings.phone_show_numbers else redacted(caller)
        called = callee if settings.phone_show_numbers else redacted(callee)
        labels = (("vendor", call.vendor), ("call", call.id), ("from", shown), ("to", called))
        grace = min(from_ms(1000 * settings.resume_grace_s), RESUME_MOST)
        defaults = replace(
            self._defaults,
            tenant=tenant,
            lead=min(self._defaults.lead, LEAD_MOST),
            frame=FRAME,
            grace=grace,
            keys_pause_ms=settings.phone_keys_ms,
            keys_interrupt=settings.phone_keys_interrupt,
            greet_after_ms=_greeting(call.parameters, settings.phone_greet_ms),
            labels=labels,
            recording_consent=_consent(call.parameters),
        )
        application = self._dialect([one for one in (self._session, _patch(call.parameters)) if one], defaults)
        handle = manager.open(carrier, application.config)
        carrier.accompany(application)
        one = PhoneCall(
            f"{CALL_PREFIX}{handle.session.removeprefix('sess_')}",
            call,
            caller,
            callee,
            carrier,
            handle,
            application,
            tenant,
            asyncio.get_running_loop().time(),
            shown=dict(labels),
        )
        self._calls[_key(one)] = one
        self._counters.add(CALLS)
        self._counters.add(f"{CALLS}_{call.vendor}")
        log.info("call %s of %s began", one.id, one.shown)
        return one, handle

    # --- what the vendor asks for ------------------------------------------------------------------------------------

    def _urls(self, path: str, query: str, scheme: str) -> list[str]:
        """The addresses under which a vendor may have asked for `path`. `scheme`: "ws" or "http"."""
        where = self._settings.phone_url
        tail = path + (f"?{query}" if query else "")
        if where is not None:
            base = where.rstrip("/").partition("://")[2]
            secure = "s" if where.startswith("wss") else ""
            return [f"{scheme}{secure}://{base}{tail}"]
        return []

    async def _connect(self, request: Request) -> Response:
        """GET or POST /telephony/{vendor}/connect: the document that connects a call to us."""
        vendor = request.path_params["vendor"]
        names = NAMES.get(vendor)
        if names is None:
            known = ", ".join(NAMES)
            return http.error(404, "unknown_vendor", f"{vendor[:40]!r} has no connect document; known are {known}")
        try:
            body = (await http.text(request, BODY_MOST)).encode()
            posted = _posted(body, request.headers.get("content-type", ""))
            self._phones.address("" if request.client is None else request.client.host)
            urls = self._urls(request.url.path, request.url.query, "http") or [str(request.url)]
            self._phones.signed(vendor, urls, request.headers, posted, body)
        except Denied as denied:
            return self._denied(denied)
        except http.BodyRefused as refused:
            return http.error(refused.status, refused.code, refused.message)
        except Rejected as rejected:
            return http.error(400, rejected.code, rejected.message, param=rejected.param)
        given = dict(request.query_params)
        said = {**given, **dict(posted)}
        parameters = {name: value for name, value in given.items() if name not in names.values()}
        parameters |= {ours: said[theirs] for ours, theirs in names.items() if said.get(theirs)}
        where = self._settings.phone_url
        if where is None:
            secure = "s" if request.url.scheme == "https" else ""
            where = f"ws{secure}://{request.url.netloc}"
        document = connect_document(vendor, f"{where.rstrip('/')}/telephony/{vendor}", parameters)
        if document is None:
            return http.error(404, "unknown_vendor", f"{vendor[:40]!r} has no connect document")
        if isinstance(document.body, str):
            return Response(document.body, media_type=document.media_type)
        return JSONResponse(document.body, media_type=document.media_type)

    # --- calls by HTTP -----------------------------------------------------------------------------------------------

    async def _list(self, request: Request) -> Response:
        """GET /telephony/calls: what is going on."""
        try:
            grant = self._access.administration(request.headers, Scope.MANAGE)
        except Denied as denied:
            return self._denied(denied)
        now = asyncio.get_running_loop().time()
        calls = [
            {
                "id": one.id,
                "session": one.handle.session,
                **one.shown,
                "seconds": round(now - one.began, 1),
                "heard_seconds": round(one.carrier.heard_seconds, 1),
                "refused_messages": one.carrier.refused,
                "connections": one.connections,
            }
            for one in self._calls.values()
            if grant.owns(one.tenant)
        ]
        return JSONResponse({"calls": calls})

    async def _hangup(self, request: Request) -> Response:
        """POST /telephony/calls/{call_id}/hangup."""
        return self._ended(request, "hangup", "")

    async def _transfer(self, request: Request) -> Response:
        """POST /telephony/calls/{call_id}/transfer {"to": "+1…"}: end our part, and say where the call goes on."""
        try:
            self._access.session(request.headers)
            given = parse(await http.text(request, BODY_MOST))
            to = given.get("to")
            if not isinstance(to, str) or not 0 < len(to) <= 256:
                raise Rejected("invalid_value", "'to' must say where the call goes, in at most 256 characters", "to")
        except Denied as denied:
            return self._denied(denied)
        except http.BodyRefused as refused:
            return http.error(refused.status, refused.code, refused.message)
        except Rejected as rejected:
            return http.error(400, rejected.code, rejected.message, param=rejected.param)
        return self._ended(request, "transfer", to)

    def _ended(self, request: Request, reason: str, to: str) -> Response:
        try:
            grant = self._access.session(request.headers)
        except Denied as denied:
            return self._denied(denied)
        one = self.find(request.path_params["call_id"], grant)
        if one is None:
            return no_call(request.path_params["call_id"])
        if to:
            one.carrier.dialect.transfer_to = to
        one.handle.post(Close(reason))
        return Response(status_code=200)

    def find(self, call_id: str, grant: Grant) -> PhoneCall | None:
        """The call, for whoever manages its tenant: an ephemeral key belongs to a session of its own."""
        if not grant.may(Scope.MANAGE):
            return None
        return next((one for one in self._calls.values() if one.id == call_id and grant.owns(one.tenant)), None)

    async def watch(self, socket: WebSocket, grant: Grant) -> None:
        """A sideband: `WS /v1/realtime?call_id=phone_…`. Every event of the call, and commands to it."""
        call_id = socket.query_params["call_id"]
        await watch(socket, call_id, self.find(call_id, grant))


def _key(one: PhoneCall) -> tuple[str, str]:
    """A vendor that gives no id has calls that cannot come again; ours tells them apart."""
    return one.call.vendor, one.call.id or one.id


def _posted(body: bytes, kind: str) -> list[tuple[str, str]]:
    """What a form, or an object of strings, says."""
    if kind.startswith("application/json"):
        with contextlib.suppress(Rejected, UnicodeDecodeError):
            return [(name, one) for name, one in parse(body.decode()).items() if isinstance(one, str)]
        return []
    return parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)


def _session_of(settings: Settings) -> Object | None:
    """The session object of `--phone-session`. Raises SettingsError."""
    if settings.phone_session is None:
        return None
    try:
        return parse(settings.phone_session.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, Rejected) as error:
        raise SettingsError(f"--phone-session {settings.phone_session}: {error}") from None


def _patch(parameters: Mapping[str, str]) -> Object:
    """What the parameters of a call say of its session, as session.update would."""
    patch: dict[str, Object | str] = {"type": "realtime"}
    audio: dict[str, Object] = {}
    if parameters.get("instructions"):
        patch["instructions"] = parameters["instructions"]
    if parameters.get("voice"):
        audio["output"] = {"voice": parameters["voice"]}
    if parameters.get("language"):
        audio["input"] = {"transcription": {"model": "default", "language": parameters["language"]}}
    return {**patch, "audio": audio} if audio else patch


def _consent(parameters: Mapping[str, str]) -> Literal["", "given", "refused"]:
    """Whether the call may be recorded, where it says so. Raises Rejected."""
    given = parameters.get("record", "")
    if given not in ("", "true", "false"):
        raise Rejected("invalid_value", f'\'record\' is {given[:40]!r}; give "true" or "false"', "record")
    return {"": "", "true": "given", "false": "refused"}[given]  # type: ignore[return-value]


def _greeting(parameters: Mapping[str, str], otherwise: int | None) -> int | None:
    """After how many ms of silence the agent greets. Raises Rejected."""
    given = parameters.get("greet")
    if given is None:
        return otherwise
    if given == "caller":
        return None
    if given.isascii() and given.isdigit() and int(given[:6]) <= 60_000:
        return int(given[:6])
    message = (
        f"'greet' is {given[:40]!r}; give \"caller\", or after how many ms of silence the agent speaks (0: at once)"
    )
    raise Rejected("invalid_value", message, "greet")
