"""`talkover serve`: the application on a port, until a signal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import FrameType
from typing import TypeVar, cast

import uvicorn

from .app import Talkover
from .carriers.tls import http_over_tls
from .carriers.uvicorn_http import HEAD_MOST, bounded_http
from .carriers.uvicorn_websocket import BoundedWebSocketProtocol
from .carriers.websocket import WIRE_MAX_MESSAGE
from .logs import start_logging
from .settings import Settings, SettingsError
from .tls import self_signed, server_context

T = TypeVar("T")

GRACE = 2
"""Seconds that connections have to end when the server does."""


def serve(settings: Settings) -> int:
    """Serve until SIGINT or SIGTERM; returns the exit status."""
    start_logging(settings.log_level, settings.log_format, settings.secrets(), numbers=settings.phone_show_numbers)
    return run(_serve(settings))


def run(main: Coroutine[None, None, T]) -> T:
    """Run `main` on the fastest event loop that is installed."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(main)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return cast("Callable[[], asyncio.AbstractEventLoop]", uvloop.new_event_loop)


class DrainingServer(uvicorn.Server):
    """Lets sessions go on for a while when it is told to end; told once more, it ends at once."""

    def __init__(self, config: uvicorn.Config, app: Talkover) -> None:
        super().__init__(config)
        self._app = app
        self._draining: asyncio.Task[None] | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._draining is not None or not self._app.settings.drain_s or not self.started:
            super().handle_exit(sig, frame)
            return
        asyncio.get_running_loop().call_soon_threadsafe(self._begin, sig, frame)

    def _begin(self, sig: int, frame: FrameType | None) -> None:
        self._draining = asyncio.create_task(self._drain(sig, frame), name="drain")

    async def _drain(self, sig: int, frame: FrameType | None) -> None:
        sessions = self._app.sessions
        if sessions:
            print(f"Ending: {sessions} sessions may go on for {self._app.settings.drain_s} s.", flush=True)
        await self._app.drain()
        super().handle_exit(sig, frame)


def server_for(app: Talkover) -> uvicorn.Server:
    """A uvicorn server for `app`, not yet started. Raises SettingsError where the certificate cannot be used."""
    settings = app.settings
    tls = server_context(settings, _cache(settings)) if settings.tls else None
    http = bounded_http(app.counters.add)
    return DrainingServer(
        uvicorn.Config(
            app.asgi,
            host=settings.host,
            port=settings.port,
            http=http if tls is None else http_over_tls(tls, http),
            h11_max_incomplete_event_size=HEAD_MOST,
            server_header=False,
            ws=BoundedWebSocketProtocol,
            ws_max_size=WIRE_MAX_MESSAGE,
            ws_per_message_deflate=False,
            log_config=None,
            access_log=False,
            lifespan="on",
            timeout_graceful_shutdown=GRACE,
        ),
        app,
    )


def _cache(settings: Settings) -> Path:
    from models.assets import cache_directory

    return settings.cache or cache_directory()


def listening_port(server: uvicorn.Server) -> int:
    """The port of a started server."""
    return int(server.servers[0].sockets[0].getsockname()[1])


async def _serve(settings: Settings) -> int:
    app = Talkover(settings)
    server = server_for(app)
    telling = asyncio.create_task(_tell(app, server))
    try:
        await server.serve()
    except SystemExit:
        # uvicorn's way to say that it cannot listen; its reason is in the log.
        raise SettingsError(
            f"cannot listen on {settings.host} port {settings.port}; `talkover doctor --host {settings.host} --port "
            f"{settings.port}` says what is there, --port chooses another one"
        ) from None
    finally:
        telling.cancel()
    return 0 if server.started and app.failure is None else 1


async def _tell(app: Talkover, server: uvicorn.Server) -> None:
    """Progress while the models are prepared, then where the server is."""
    from models.assets import TerminalProgress
    from models.garbage import spare_what_stays

    bar = TerminalProgress()
    while not app.ready.is_set():
        bar(app.stage, app.fraction)
        try:
            await asyncio.wait_for(app.ready.wait(), 0.2)
        except TimeoutError:
            continue
    bar.close()
    if app.failure is not None:
        server.should_exit = True
        return
    spare_what_stays()
    where = address(app.settings, listening_port(server))
    print(f"Talkover serves on {where} (Realtime: {where.replace('http', 'ws', 1)}/v1/realtime)", flush=True)
    if app.settings.tls_self_signed:
        certificate = self_signed(_cache(app.settings))[0]
        print(f"Clients must trust {certificate} (SSL_CERT_FILE or NODE_EXTRA_CA_CERTS is its path).", flush=True)
    if app.settings.insecure_no_auth and not app.settings.loopback:
        print("WARNING: no API key is asked for; whoever reaches this port can use it.", flush=True)
    print("Ctrl-C ends it.", flush=True)


def address(settings: Settings, port: int) -> str:
    """The URL of a server, without a path."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{'https' if settings.tls else 'http'}://{host}:{port}"
