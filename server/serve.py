"""`talkover serve`: the application on a port, until a signal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TypeVar, cast

import uvicorn

from .app import Talkover
from .carriers.uvicorn_websocket import BoundedWebSocketProtocol
from .carriers.websocket import WIRE_MAX_MESSAGE
from .settings import Settings

T = TypeVar("T")


def serve(settings: Settings) -> int:
    """Serve until SIGINT or SIGTERM; returns the exit status."""
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
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


def server_for(app: Talkover) -> uvicorn.Server:
    """A uvicorn server for `app`, not yet started."""
    settings = app.settings
    return uvicorn.Server(
        uvicorn.Config(
            app.asgi,
            host=settings.host,
            port=settings.port,
            ws=BoundedWebSocketProtocol,
            ws_max_size=WIRE_MAX_MESSAGE,
            ws_per_message_deflate=False,
            log_config=None,
            access_log=False,
            lifespan="on",
            timeout_graceful_shutdown=5,
        )
    )


def listening_port(server: uvicorn.Server) -> int:
    """The port of a started server."""
    return int(server.servers[0].sockets[0].getsockname()[1])


async def _serve(settings: Settings) -> int:
    app = Talkover(settings)
    server = server_for(app)
    telling = asyncio.create_task(_tell(app, server))
    try:
        await server.serve()
    finally:
        telling.cancel()
    return 0 if server.started and app.failure is None else 1


async def _tell(app: Talkover, server: uvicorn.Server) -> None:
    """Progress while the models are prepared, then where the server is."""
    from models.assets import TerminalProgress

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
    host, port = app.settings.host, listening_port(server)
    print(f"Talkover serves on http://{host}:{port} (Realtime: ws://{host}:{port}/v1/realtime)", flush=True)
    print("Ctrl-C ends it.", flush=True)
