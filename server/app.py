"""The composition root: settings become models, models become ports, ports become a served application."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

import web_demo
from sessions.core.config import SessionConfig
from sessions.core.events import Close
from sessions.core.timeline import from_ms
from sessions.counters import Counters
from sessions.journal import Recorder
from sessions.manager import SessionManager
from sessions.ports import Busy

from .carriers.websocket import WebSocketCarrier
from .dialects.realtime import RealtimeDialect
from .metrics import LoopLag, prometheus, resident_bytes
from .models_loading import Models, load
from .settings import Settings

log = logging.getLogger(__name__)

INDEX = Path(web_demo.__file__).parent / "index.html"


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
        self.ready = asyncio.Event()
        self._carriers: set[WebSocketCarrier] = set()
        self.asgi = Starlette(
            routes=[
                Route("/", self._index),
                Route("/healthz", self._healthz),
                Route("/metrics", self._metrics),
                WebSocketRoute("/v1/realtime", self._realtime),
            ],
            lifespan=self._lifespan,
        )

    # --- life ------------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        self.lag.start()
        loading = asyncio.create_task(self._load(), name="load-models")
        try:
            yield
        finally:
            await self.lag.stop()
            if self.manager is not None:
                await self.manager.close()
            models = await self._loaded(loading)
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

        threading.Thread(target=work, name="load-models", daemon=True).start()
        try:
            models = await done
        except Exception as error:
            self.failure = error
            self.stage = str(error)
            log.error("the models could not be loaded: %s", error)
            self.ready.set()
            return None
        recorder = Recorder(self.settings.record) if self.settings.record is not None else None
        self.manager = SessionManager(
            models.engine,
            models.perception,
            counters=self.counters,
            recorder=recorder,
            max_sessions=self.settings.max_sessions,
        )
        self.stage = "ready"
        self.ready.set()
        return models

    def _progress(self, stage: str, fraction: float) -> None:
        self.stage = stage
        self.fraction = fraction

    @staticmethod
    async def _loaded(loading: asyncio.Task[Models | None]) -> Models | None:
        if not loading.done():
            loading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            return await loading
        return None

    # --- pages -----------------------------------------------------------------------------------------------------

    async def _index(self, request: Request) -> Response:
        return FileResponse(INDEX)

    async def _healthz(self, request: Request) -> Response:
        body: dict[str, object] = {"status": self.stage if self.manager is None else "ready"}
        if self.failure is not None:
            body = {"status": "failed", "error": str(self.failure)}
        elif self.manager is None:
            body = {"status": "starting", "stage": self.stage, "progress": round(self.fraction, 3)}
        body |= {
            "sessions": len(self.manager) if self.manager is not None else 0,
            "loop_lag_ms_p50": round(self.lag.quantile(0.5) * 1000, 2),
            "loop_lag_ms_p99": round(self.lag.quantile(0.99) * 1000, 2),
            "resident_mb": round(resident_bytes() / 1e6, 1),
        }
        return JSONResponse(body, 200 if self.manager is not None else 503)

    async def _metrics(self, request: Request) -> Response:
        gauges = {
            "sessions": len(self.manager) if self.manager is not None else 0,
            "mail_waiting": self.manager.waiting if self.manager is not None else 0,
            "unsent_bytes": sum(carrier.waiting for carrier in self._carriers),
            "resident_bytes": resident_bytes(),
        }
        return PlainTextResponse(prometheus(self.counters, self.lag, gauges), media_type="text/plain; version=0.0.4")

    # --- conversations -----------------------------------------------------------------------------------------------

    async def _realtime(self, socket: WebSocket) -> None:
        if self.manager is None:
            await _refuse(socket, "not_ready", f"the server is not ready yet: {self.stage}", retry_after=5.0)
            return
        config = SessionConfig(lead=from_ms(self.settings.lead_ms), frame=from_ms(self.settings.frame_ms))
        dialect = RealtimeDialect(socket.query_params.get("model", "talkover"), config)
        carrier = WebSocketCarrier(socket, dialect, self.counters)
        try:
            handle = self.manager.open(carrier, dialect.config)
        except Busy as busy:
            self.counters.add("sessions_refused")
            await _refuse(socket, "server_busy", str(busy), busy.retry_after)
            return
        protocols = socket.scope.get("subprotocols", [])
        try:
            await socket.accept(subprotocol="realtime" if "realtime" in protocols else None)
        except BaseException:
            # The peer left during the handshake: nobody else would end the session.
            handle.post(Close("detached"))
            raise
        self._carriers.add(carrier)
        try:
            await carrier.run(handle)
        finally:
            self._carriers.discard(carrier)


async def _refuse(socket: WebSocket, code: str, message: str, retry_after: float) -> None:
    """Answer the handshake with 503 and a typed error, so that a client knows at once and why."""
    body = {"error": {"type": "server_error", "code": code, "message": message, "param": None}}
    await socket.send_denial_response(JSONResponse(body, 503, headers={"Retry-After": str(round(retry_after))}))
