"""The composition root: settings become models, models become ports, ports become a served application."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from sessions.core.commands import (
    NO_LOGPROBS,
    NO_LOGPROBS_REMEDY,
    NO_NOISE_REDUCTION,
    NO_NOISE_REDUCTION_REMEDY,
)
from sessions.core.config import SessionConfig
from sessions.core.events import Close
from sessions.core.timeline import from_ms
from sessions.counters import Counters
from sessions.journal import Recorder
from sessions.manager import SessionManager
from sessions.ports import Busy

from . import http
from .auth import SUBPROTOCOL, Access, Denied, Grant, Scope, used_up
from .calls import Calls, peer_settings
from .carriers.websocket import WebSocketCarrier
from .client_secrets import MAX_BODY, ClientSecrets, NoRoom, UsedUp, parse_wanted
from .cluster import Observers, keeper_of
from .dialects.checks import Object, Rejected
from .dialects.realtime import RealtimeDialect
from .dialects.realtime_duplex import RealtimeDuplexDialect
from .dialects.realtime_duplex_in import switch
from .dialects.realtime_track import TrackDialect
from .keys import KeyRing
from .leaving import LOADING
from .limits import LimitedEngine
from .metrics import RECENT, LoopLag, prometheus, resident_bytes
from .models_loading import Models, load
from .pages import Pages
from .recording_policy import engine_named, policy_of
from .recordings import Recordings
from .resumable import Resumables, first_message
from .security.endpoints import TenantEndpoints
from .security.guard import Guard
from .security.holdings import Directory, Holdings, Registry, Shelf, Tally
from .security.tenancy import Tenancy
from .settings import Settings, SettingsError
from .telephony import CALL_PREFIX, Telephony

log = logging.getLogger(__name__)

_Dialect = TypeVar("_Dialect", bound=RealtimeDialect)

STOP_LOADING_WITHIN = 3.0
"""Seconds that models have to finish loading when the server ends: to be closed they must be there."""


class _NotWanted(Exception):
    """The server ends, so the models are not wanted any more."""


class Talkover:
    """The served application. `asgi` is what a server runs; `ready` is set once the models are loaded."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.counters = Counters()
        self.lag = LoopLag()
        self.manager: SessionManager | None = None
        self.stage = "starting"
        self.fraction = 0.0
        self.failure: Exception | None = None
        self._workers: Callable[[], list[dict[str, object]]] = list
        self.ready = asyncio.Event()
        self.tenancy = Tenancy(settings, self.counters)
        self.access = Access(
            KeyRing(settings.all_keys()),
            ClientSecrets(single_use=settings.ephemeral_single_use),
            open_to_all=settings.insecure_no_auth,
            origins=settings.origins,
            tenants=self.tenancy.tenants,
            tokens=self.tenancy.tokens,
            wait=self.tenancy.rates.wait,
        )
        self.limits = self.tenancy.limits
        self.calls = Calls(
            peer_settings(settings),
            self.access,
            self.counters,
            lambda: self.manager,
            self._track_dialect,
            self._denied,
        )
        self.telephony = Telephony(
            settings,
            self.access,
            self.counters,
            lambda: self.manager,
            self._defaults,
            lambda patches, defaults: self._possible(TrackDialect("talkover", defaults, patches=patches)),
            self._denied,
        )
        self.keeper = keeper_of(settings, self.counters)
        self.observers = Observers(settings)
        self._ending = False
        self._carriers: set[WebSocketCarrier] = set()
        self.resumables = Resumables(self.counters, self._carriers, self.tenancy.message_most)
        self.recordings = Recordings(
            settings.record,
            self.access,
            lambda session: self.manager is not None and session in self.manager,
            self._denied,
        )
        self.holdings = self._holdings()
        pages = Pages()
        served = Starlette(
            routes=[
                Route("/", pages.index),
                Route("/replay", pages.replay),
                Route("/replay/{recording}", pages.replay),
                Route("/web/{path:path}", pages.file),
                Route("/healthz", self._healthz),
                Route("/readyz", self._readyz),
                Route("/metrics", self._metrics),
                Route("/v1/realtime/client_secrets", self._client_secrets, methods=["POST"]),
                *self.calls.routes(),
                *self.telephony.routes(),
                *self.recordings.routes(),
                *TenantEndpoints(self.holdings, self.access, self._denied).routes(),
                WebSocketRoute("/v1/realtime", self._realtime),
                WebSocketRoute("/{path:path}", self._elsewhere),
            ],
            lifespan=self._lifespan,
            exception_handlers={HTTPException: http.from_exception},
        )
        self.asgi: ASGIApp = Guard(
            served,
            self.counters,
            origins=settings.origins,
            strict_transport=settings.tls_cert is not None,
            tokens=self.tenancy.tokens,
        )

    def _holdings(self) -> Holdings:
        """Everywhere that something of a tenant may stand."""
        tenancy, secrets, numbers = self.tenancy, self.access.secrets, self.telephony.numbers
        return Holdings(
            lambda: [] if self.manager is None else list(self.manager.runners()),
            (
                Registry("call", self.calls.of),
                Registry("phone_call", self.telephony.of),
                Registry("resumable", self.resumables.of),
                Registry("lease", self.keeper.of),
            ),
            (
                Tally("ephemeral_keys", secrets.of, secrets.forget),
                Tally("limits", tenancy.remembered, tenancy.forget),
                Tally("phone_numbers", numbers.of, numbers.forget),
            ),
            Shelf(self.recordings.of, self.recordings.delete, self._recorded),
            self.keeper.port if isinstance(self.keeper.port, Directory) else None,
            lambda: None if self.manager is None else self.manager.engine,
        )

    async def _recorded(self) -> None:
        """Until the recordings of all sessions that have ended are written."""
        recorder = None if self.manager is None else self.manager.recorder
        if recorder is not None:
            written = threading.Event()
            recorder.submit(written.set)
            await asyncio.to_thread(written.wait)

    # --- life ------------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        self.lag.start()
        self.tenancy.start(lambda: [] if self.manager is None else self.manager.runners())
        loading = asyncio.create_task(self._load(), name="load-models")
        try:
            yield
        finally:
            self._ending = True
            self.lag.stop()
            await self.tenancy.close()
            models = await self._loaded(loading)
            if self.manager is not None:
                await self.manager.close()
            await self.calls.close()
            await asyncio.to_thread(self.observers.close)
            await self.telephony.close()
            await self.recordings.close()
            if models is not None:
                await asyncio.to_thread(models.close)

    async def _load(self) -> Models | None:
        """Load the models in a thread of their own: a download must not keep the process from ending."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Models] = loop.create_future()

        def settle(models: Models | None, failure: Exception | None) -> None:
            if done.cancelled():
                if models is not None:
                    models.close()
            elif failure is not None:
                done.set_exception(failure)
            elif models is not None:
                done.set_result(models)

        def work() -> None:
            models, failure = None, None
            try:
                models = load(self.settings, self._progress)
            except Exception as error:
                failure = error
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(settle, models, failure)

        threading.Thread(target=work, name=LOADING, daemon=True).start()
        try:
            models = await done
        except _NotWanted:
            return None
        except Exception as error:
            log.error("the models could not be loaded: %s", error)
            self._failed(error)
            return None
        if self._ending:
            return models
        try:
            root = self.settings.record
            recorder = None if root is None else Recorder(root, policy_of(self.settings))
        except OSError as error:
            problem = SettingsError(f"--record {self.settings.record}: nothing can be written there: {error.strerror}")
            log.error("%s", problem)
            self._failed(problem)
            return models
        self.manager = SessionManager(
            LimitedEngine(models.engine, self.limits, self.counters) if self.limits.any else models.engine,
            models.perception,
            counters=self.counters,
            recorder=recorder,
            max_sessions=self.settings.max_sessions,
            keeper=self.keeper,
            observer=self.observers,
            tenant_sessions=self.tenancy.sessions_most,
            engine_named=engine_named(self.settings),
        )
        self.observers.metrics.watch(models.engine)
        await self.telephony.open()
        self._workers = models.workers
        self.stage = "ready"
        self.ready.set()
        return models

    def _failed(self, failure: Exception) -> None:
        self.failure = failure
        self.stage = str(failure)
        self.ready.set()

    def _progress(self, stage: str, fraction: float) -> None:
        if self._ending:
            # Ends the preparation where it is, so that no download goes on without us.
            raise _NotWanted
        self.stage = stage
        self.fraction = fraction

    @staticmethod
    async def _loaded(loading: asyncio.Task[Models | None]) -> Models | None:
        """The models, if there are any yet. A preparation stops at its next report of progress; where none comes soon
        it is left alone."""
        await asyncio.wait([loading], timeout=STOP_LOADING_WITHIN)
        if not loading.done():
            loading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            return await loading
        return None

    @property
    def sessions(self) -> int:
        """How many there are."""
        return 0 if self.manager is None else len(self.manager)

    async def drain(self) -> None:
        """Take no more sessions, and let those that there are go on for as long as the settings say."""
        if self.manager is not None:
            await self.manager.drain(self.settings.drain_s)

    # --- how it does -----------------------------------------------------------------------------------------------

    async def _healthz(self, request: Request) -> Response:
        """Whether it is ready, for everybody; how it does, for those who may know."""
        status = 200 if self.manager is not None else 503
        body: dict[str, object] = {"status": "ready"}
        if self.failure is not None:
            body = {"status": "failed"}
        elif self.manager is None:
            body = {"status": "starting"}
        if not self.access.knows(request.headers):
            return JSONResponse(body, status)
        if self.failure is not None:
            body["error"] = str(self.failure)
        elif self.manager is None:
            body |= {"stage": self.stage, "progress": round(self.fraction, 3)}
        body |= {
            "sessions": len(self.manager) if self.manager is not None else 0,
            "loop_lag_ms_p50": round(self.lag.quantile(0.5) * 1000, 2),
            "loop_lag_ms_p99": round(self.lag.quantile(0.99) * 1000, 2),
            "loop_lag_ms_p99_10s": round(self.lag.quantile(0.99, RECENT) * 1000, 2),
            "resident_mb": round(resident_bytes() / 1e6, 1),
            "recording": self.settings.record is not None,
        }
        if workers := self._workers():
            body["workers"] = workers
        return JSONResponse(body, status)

    async def _readyz(self, request: Request) -> Response:
        """Whether a new session would be taken, for whoever spreads clients over several servers."""
        full = self.manager is None or self.manager.full or not self.keeper.reachable
        return JSONResponse({"status": "busy" if full else "ready"}, 503 if full else 200)

    async def _metrics(self, request: Request) -> Response:
        try:
            self.access.administration(request.headers, Scope.OPERATE)
        except Denied as denied:
            return self._denied(denied)
        gauges = {
            "sessions": len(self.manager) if self.manager is not None else 0,
            "mail_waiting": self.manager.waiting if self.manager is not None else 0,
            "calls": len(self.calls),
            "phone_calls": len(self.telephony),
            "unsent_bytes": sum(carrier.waiting for carrier in self._carriers)
            + self.calls.waiting
            + self.telephony.waiting,
            "resident_bytes": resident_bytes(),
            "tasks": len(asyncio.all_tasks()),
        }
        text = prometheus(self.counters, self.lag, gauges) + self.observers.metrics.text()
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    # --- conversations -----------------------------------------------------------------------------------------------

    async def _client_secrets(self, request: Request) -> Response:
        """POST /v1/realtime/client_secrets: an ephemeral key, bound to a session configuration."""
        try:
            grant = self.access.administration(request.headers, Scope.MANAGE)
            wanted = parse_wanted(await http.json_text(request, MAX_BODY))
            dialect = self._dialect("talkover", wanted.session)
            value, secret = self.access.secrets.mint(wanted, grant.tenant)
        except Denied as denied:
            return self._denied(denied)
        except http.BodyRefused as refused:
            return http.error(refused.status, refused.code, refused.message)
        except Rejected as rejected:
            return http.error(400, rejected.code, rejected.message, param=rejected.param)
        except NoRoom as full:
            headers = {"Retry-After": str(math.ceil(full.retry_after))}
            return http.error(429, "too_many_client_secrets", str(full), headers=headers)
        self.counters.add("client_secrets_minted")
        # Exactly what session.created will say. The vendor's clients want an id; a session gets its own when it begins.
        created = json.loads(dialect.open(f"sess_{secret.id.hex()[:16]}")[0])
        return JSONResponse({"value": value, "expires_at": secret.expires_at, "session": created["session"]})

    @property
    def _defaults(self) -> SessionConfig:
        return SessionConfig(lead=from_ms(self.settings.lead_ms), frame=from_ms(self.settings.frame_ms))

    def _dialect(
        self, model: str, patch: Object | None, intent: str | None = None, tenant: str = ""
    ) -> RealtimeDialect:
        """Raises Rejected for a wrong `patch` or `intent`."""
        defaults = replace(self._defaults, tenant=tenant)
        return self._possible(RealtimeDialect(model, defaults, patch=patch, intent=intent))

    def _duplex_dialect(
        self, model: str, patch: Object | None, intent: str | None, tenant: str
    ) -> RealtimeDuplexDialect:
        """Raises Rejected for a wrong `patch` or `intent`."""
        grace = from_ms(1000 * self.settings.resume_grace_s)
        defaults = replace(self._defaults, tenant=tenant, grace=grace, acknowledge_playback=True)
        return self._possible(RealtimeDuplexDialect(model, defaults, patch=patch, intent=intent))

    def _track_dialect(self, model: str, patches: Sequence[Object], resumable: bool, tenant: str) -> TrackDialect:
        """For a call. `resumable`: its client may come back. Raises Rejected for a wrong one of `patches`."""
        grace = from_ms(1000 * self.settings.resume_grace_s) if resumable else 0
        defaults = replace(self._defaults, tenant=tenant, grace=grace)
        return self._possible(TrackDialect(model, defaults, patches=patches))

    def _possible(self, dialect: _Dialect) -> _Dialect:
        """Itself, metered where there are limits. Raises Rejected where its session would begin with what cannot be."""
        self._check_possible(dialect.config)
        dialect.recorded = self.settings.record is not None
        dialect.sees = self.manager is not None and self.manager.engine.capabilities.images
        if self.limits.any:
            dialect.meter = self.limits.of(dialect.config.tenant)
        return dialect

    def _check_possible(self, config: SessionConfig) -> None:
        """What a session begins with is not asked for by a command, so no command is there to be refused. Raises
        Rejected."""
        if self.manager is None:
            return
        hears = self.manager.perception.capabilities
        if config.denoise and not hears.noise_reduction:
            raise Rejected(NO_NOISE_REDUCTION, NO_NOISE_REDUCTION_REMEDY, "session.audio.input.noise_reduction")
        if config.transcript_logprobs and not hears.logprobs:
            raise Rejected(NO_LOGPROBS, NO_LOGPROBS_REMEDY, "session.include")
        voices = self.manager.engine.capabilities.voices
        if voices and config.voice not in (self._defaults.voice, *voices):
            message = f"there is no voice {config.voice!r}; choose one of {', '.join(voices)}"
            raise Rejected("unknown_voice", message, "session.audio.output.voice")

    def _denied(self, denied: Denied) -> JSONResponse:
        self.counters.add("access_denied")
        return http.error(denied.status, denied.code, denied.message, headers=denied.headers)

    async def _elsewhere(self, socket: WebSocket) -> None:
        path = socket.url.path[:200]
        message = f"no WebSocket is served at {path}; connect to /v1/realtime"
        await socket.send_denial_response(http.error(404, "not_found", message))

    async def _realtime(self, socket: WebSocket) -> None:
        protocols = socket.scope.get("subprotocols", [])
        try:
            grant = self.access.session(socket.headers, protocols)
        except Denied as denied:
            await socket.send_denial_response(self._denied(denied))
            return
        if self.manager is None:
            await _refuse(socket, "not_ready", f"the server is not ready yet: {self.stage}", retry_after=5.0)
            return
        asked = socket.query_params
        if "call_id" in asked:
            watched = self.telephony if asked["call_id"].startswith(CALL_PREFIX) else self.calls
            await watched.watch(socket, grant)
            return
        try:
            model = asked.get("model", "talkover")
            bound = None if grant.secret is None else grant.secret.session
            if switch(asked.get("duplex"), "duplex", False):
                waits = switch(asked.get("resume"), "resume", not switch(asked.get("autostart"), "autostart", True))
                duplex = self._duplex_dialect(model, bound, asked.get("intent"), grant.tenant)
                await self._duplex(socket, self.manager, duplex, grant, waits)
                return
            dialect = self._dialect(model, bound, asked.get("intent"), grant.tenant)
        except Rejected as rejected:
            answer = http.error(400, rejected.code, rejected.message, param=rejected.param)
            await socket.send_denial_response(answer)
            return
        most = self.tenancy.message_most(grant.tenant)
        carrier = WebSocketCarrier(socket, dialect, self.counters, max_message=most)
        try:
            with self.access.secrets.opening(grant.secret):
                handle = self.manager.open(carrier, dialect.config)
        except Busy as busy:
            self.counters.add("sessions_refused")
            await socket.send_denial_response(http.busy(busy))
            return
        except UsedUp as used:
            await socket.send_denial_response(self._denied(used_up(used)))
            return
        try:
            await _accept(socket)
        except BaseException:
            # The peer left during the handshake: nobody else would end the session.
            handle.post(Close("detached"))
            raise
        self._carriers.add(carrier)
        try:
            await carrier.run(handle)
        finally:
            self._carriers.discard(carrier)

    async def _duplex(
        self, socket: WebSocket, manager: SessionManager, dialect: RealtimeDuplexDialect, grant: Grant, waits: bool
    ) -> None:
        """A client that asked for the extensions. `waits`: what it says first is what it wants."""
        await _accept(socket)
        first = await first_message(socket) if waits else None
        if first is not None:
            dialect.begin_with(first, self._check_possible)
        if not waits or first is not None:
            opening = partial(self.access.secrets.opening, grant.secret)
            await self.resumables.serve(socket, dialect, manager, first, opening)


async def _accept(socket: WebSocket) -> None:
    offered = socket.scope.get("subprotocols", [])
    await socket.accept(subprotocol=SUBPROTOCOL if SUBPROTOCOL in offered else None)


async def _refuse(socket: WebSocket, code: str, message: str, retry_after: float) -> None:
    """Answer the handshake with 503 and a typed error, so that a client knows at once and why."""
    headers = {"Retry-After": str(round(retry_after))}
    await socket.send_denial_response(http.error(503, code, message, kind="server_error", headers=headers))
