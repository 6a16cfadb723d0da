"""A peer that speaks chat.completions over HTTP with server-sent events, small but real: the thinker of a test.

It answers by rule: asked with tools it calls the first one, given a tool's result it tells it, else it says something
about the last words of the user. Requests are kept, so a test can see what the server asked.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from types import TracebackType

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.servers import free_port

Message = dict[str, object]


class ChatCompletionsPeer:
    """The peer on a port of its own, in a thread of its own. A context manager."""

    def __init__(self, key: str = "peer-key") -> None:
        self.key = key
        self.port = free_port()
        self.requests: list[Message] = []
        app = Starlette(routes=[Route("/v1/chat/completions", self._complete, methods=["POST"])])
        config = uvicorn.Config(app, host="127.0.0.1", port=self.port, log_level="warning", lifespan="off")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, name="chat-completions-peer", daemon=True)

    @property
    def url(self) -> str:
        """What a client takes as base URL."""
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> ChatCompletionsPeer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=10)

    async def _complete(self, request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {self.key}":
            return JSONResponse({"error": {"message": "wrong key", "type": "invalid_request_error"}}, 401)
        asked: Message = await request.json()
        self.requests.append(asked)
        return StreamingResponse(_stream(asked), media_type="text/event-stream")


async def _stream(asked: Message) -> AsyncIterator[str]:
    messages = asked["messages"]
    assert isinstance(messages, list)
    last = messages[-1]
    deltas: list[Message]
    tools = asked.get("tools")
    if last["role"] == "tool":
        deltas = _pieces(f"The weather in Paris is {json.loads(last['content'])['weather']} today.")
        finish = "stop"
    elif isinstance(tools, list) and tools and asked.get("tool_choice") != "none":
        name = tools[0]["function"]["name"]
        head = {"index": 0, "id": "call_peer_1", "type": "function", "function": {"name": name, "arguments": ""}}
        deltas = [{"role": "assistant", "content": None, "tool_calls": [head]}]
        for part in ('{"ci', 'ty": "Pa', 'ris"}'):
            deltas.append({"tool_calls": [{"index": 0, "function": {"arguments": part}}]})
        finish = "tool_calls"
    else:
        deltas = _pieces(f"You asked about {_text(last)} and I have heard you well.")
        finish = "stop"
    for delta in deltas:
        yield _chunk(delta, None)
        await asyncio.sleep(0.01)
    yield _chunk({}, finish)
    yield "data: [DONE]\n\n"


def _pieces(text: str) -> list[Message]:
    words = text.split(" ")
    return [{"content": word if index == 0 else f" {word}"} for index, word in enumerate(words)]


def _text(message: Message) -> str:
    content = message["content"]
    if isinstance(content, list):
        content = " ".join(str(part.get("text", "")) for part in content)
    return str(content).rstrip("?.! ").lower()


def _chunk(delta: Message, finish: str | None) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    body = {
        "id": "chatcmpl-peer",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": "peer",
        "choices": [choice],
    }
    return f"data: {json.dumps(body)}\n\n"
