"""The application in this process, served by the real uvicorn; engine and perception are played."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

from server import app as app_module
from server.app import Talkover
from server.models_loading import Models, Progress
from server.serve import listening_port, server_for
from server.settings import Settings
from tests.sessions.fakes import CountingEngine, LoudnessPerception

API_KEY = "key-for-tests-0123456789"


@dataclass
class Served:
    """A running application. `url` has no slash at its end."""

    app: Talkover
    port: int
    scheme: str

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def realtime(self) -> str:
        return f"{self.url.replace('http', 'ws', 1)}/v1/realtime?model=m"

    def http(self, key: str | None = None, **options: Any) -> httpx.AsyncClient:
        """A client that sends `key`, where there is one."""
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        return httpx.AsyncClient(base_url=self.url, headers=headers, trust_env=False, timeout=20, **options)

    def socket(self, key: str | None = None, *, subprotocols: list[str] | None = None, **options: Any) -> connect:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        offered = None if subprotocols is None else [Subprotocol(name) for name in subprotocols]
        return connect(self.realtime, additional_headers=headers, subprotocols=offered, proxy=None, **options)


@asynccontextmanager
async def served(engine: CountingEngine | None = None, **settings: Any) -> AsyncIterator[Served]:
    """Serve with `settings` on a free port; ready inside the block, and everything of it is gone after it."""

    def load(_: Settings, progress: Progress) -> Models:
        return Models(engine or CountingEngine(seconds=1.0, delay=0.0), LoudnessPerception(), lambda: None)

    with mock.patch.object(app_module, "load", load):
        async with started(Talkover(Settings(port=0, log_level="error", **settings).check())) as place:
            await place.app.ready.wait()
            yield place


@asynccontextmanager
async def started(app: Talkover) -> AsyncIterator[Served]:
    """Serve `app`; it need not become ready."""
    server = server_for(app)
    listening = asyncio.Event()
    startup = server.startup

    async def start(*arguments: Any, **options: Any) -> None:
        await startup(*arguments, **options)
        listening.set()

    with mock.patch.object(server, "startup", start):
        serving = asyncio.create_task(server.serve())
        try:
            async with asyncio.timeout(20):
                await listening.wait()
            yield Served(app, listening_port(server), "https" if app.settings.tls else "http")
        finally:
            server.should_exit = True
            await serving


async def refusal(attempt: connect) -> tuple[int, dict[str, Any]]:
    """Status and error object of a handshake that must fail."""
    import json

    try:
        connection: ClientConnection = await attempt
    except InvalidStatus as error:
        return error.response.status_code, json.loads(error.response.body or b"{}")["error"]
    await connection.close()
    raise AssertionError("the handshake was accepted")


async def finished(client: httpx.AsyncClient, method: str, path: str, **options: Any) -> httpx.Response:
    """The answer to what may take a while: asked for again as long as it runs."""
    while (answer := await client.request(method, path, **options)).status_code == 202:
        pass
    return answer
