"""A thinker at any OpenAI-compatible chat endpoint: `POST {url}/chat/completions`, streamed as server-sent events.

Facts from the OpenAI API reference, "Create chat completion" and "The chat completion chunk object"; the event stream
from the WHATWG HTML standard, section 9.2.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from typing import Literal, TypeAlias, cast

import httpx

from sessions.core.config import Tool
from sessions.core.context import ContextEntry

from .stop import Stop
from .thinker import TextPiece, ThinkerError, Thinking, ThinkRequest, Thought, ToolCall

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

_SPOKEN = "Your answer will be read aloud: answer briefly, in plain sentences, without lists, markup or emoji."
_REASONS: dict[str, Literal["completed", "max_output_tokens", "content_filter"]] = {
    "length": "max_output_tokens",
    "content_filter": "content_filter",
}


class OpenAIThinker:
    """`Thinker` over HTTP. `url` ends before `/chat/completions` (for example `http://localhost:8000/v1`).

    `timeout`: seconds without a byte from the endpoint. `limit_field`: how the endpoint calls the bound on output
    tokens ("max_completion_tokens" for newer OpenAI models). Raises ValueError for a URL that is not http(s).

    Failures are ThinkerErrors with code "llm_unreachable", "llm_timeout", "llm_http_status", "llm_refused" (an error
    inside the stream) or "llm_bad_response". The key appears in none of them.
    """

    def __init__(
        self,
        url: str,
        model: str,
        key: str = "",
        *,
        timeout: float = 30.0,
        limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens",
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"llm-url {url!r} must begin with http:// or https://")
        if not model:
            raise ValueError("llm-model must name a model that the endpoint serves")
        self._url = url.rstrip("/") + "/chat/completions"
        self._model = model
        self._key = key
        self._limit_field = limit_field
        self._timeout = httpx.Timeout(timeout, connect=min(timeout, 5.0))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="talkover-llm", daemon=True)
        self._thread.start()
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client = httpx.AsyncClient(headers=headers, timeout=self._timeout, transport=transport)
        self._closed = False

    def think(self, request: ThinkRequest, tell: Callable[[Thought], None], stop: Stop) -> Thinking:
        """See `Thinker.think`. `tell` is called on the connection's own thread; a stop closes the connection."""
        if self._closed:
            raise ThinkerError("thinker_closed", "the thinker is shut down; start the server again")
        pending = asyncio.run_coroutine_threadsafe(self._ask(request, tell), self._loop)

        def abandon() -> None:
            pending.cancel()

        stop.then(abandon)
        try:
            return pending.result()
        except CancelledError:
            return Thinking()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        asyncio.run_coroutine_threadsafe(self._client.aclose(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _ask(self, request: ThinkRequest, tell: Callable[[Thought], None]) -> Thinking:
        answer = _Answer(tell, request.seed)
        try:
            async with self._client.stream("POST", self._url, json=self._body(request)) as response:
                if response.status_code != 200:
                    raise self._status_error(response.status_code, await response.aread())
                async for line in response.aiter_lines():
                    # Comments, event names and ids have no meaning here; each data field is one chunk.
                    if line.startswith("data:"):
                        answer.hear(line.removeprefix("data:").strip())
        except httpx.TimeoutException as error:
            raise ThinkerError(
                "llm_timeout",
                f"llm-url: {self._url} was silent for too long ({type(error).__name__}); is the model overloaded?",
            ) from error
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise ThinkerError(
                "llm_unreachable",
                f"llm-url: {self._url} cannot be reached ({self._without_key(str(error))}); check address and network",
            ) from error
        except _Refused as error:
            raise ThinkerError("llm_refused", f"the model's server says: {self._without_key(str(error))}") from error
        return answer.finish()

    def _body(self, request: ThinkRequest) -> dict[str, Json]:
        body: dict[str, Json] = {
            "model": self._model,
            "messages": list(messages(request)),
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": request.temperature,
            "seed": request.seed,
        }
        if request.max_output_tokens is not None:
            body[self._limit_field] = request.max_output_tokens
        if request.tools:
            body["tools"] = [_function(tool) for tool in request.tools]
            named = request.tool_choice not in ("auto", "none", "required")
            choice: Json = {"type": "function", "function": {"name": request.tool_choice}}
            body["tool_choice"] = choice if named else request.tool_choice
        return body

    def _status_error(self, status: int, body: bytes) -> ThinkerError:
        remedy = {
            401: "check llm-key",
            403: "check llm-key",
            404: "check llm-url and llm-model",
            429: "try again later",
        }
        detail = self._without_key(body.decode("utf-8", "replace"))
        try:
            parsed = json.loads(detail)
            detail = str(parsed["error"]["message"])
        except (ValueError, KeyError, TypeError):
            pass
        hint = remedy.get(status, "see the endpoint's log")
        return ThinkerError("llm_http_status", f"llm-url: {self._url} answered {status}: {detail[:200]}; {hint}")

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text


def messages(request: ThinkRequest) -> Sequence[dict[str, Json]]:
    """The history as chat messages. Calls that follow each other become one message, as the API demands."""
    system = "\n\n".join(part for part in (request.instructions.strip(), _SPOKEN if request.spoken else "") if part)
    out: list[dict[str, Json]] = [{"role": "system", "content": system}] if system else []
    calls: list[Json] | None = None
    for entry in request.context:
        if entry.kind == "function_call":
            if calls is None:
                calls = []
                out.append({"role": "assistant", "content": None, "tool_calls": calls})
            calls.append(_call(entry))
            continue
        if entry.kind == "function_call_output":
            out.append({"role": "tool", "tool_call_id": entry.call, "content": entry.text})
        else:
            out.append({"role": entry.role, "content": entry.text})
        calls = None
    return out


def _function(tool: Tool) -> Json:
    try:
        parameters = cast(Json, json.loads(tool.parameters or "{}"))
    except ValueError as error:
        raise ThinkerError("tool_schema", f"tools: parameters of {tool.name!r} are not JSON ({error})") from error
    function: Json = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def _call(entry: ContextEntry) -> Json:
    return {"id": entry.call, "type": "function", "function": {"name": entry.name, "arguments": entry.text}}


class _Refused(Exception):
    pass


class _Answer:
    """Chunks into thoughts. Calls come in fragments, several side by side; they are told whole, at the end."""

    def __init__(self, tell: Callable[[Thought], None], seed: int) -> None:
        self._tell = tell
        self._seed = seed
        self._ended = False
        self._calls: dict[int, list[str]] = {}
        self._reason = ""
        self._read = 0
        self._written = 0

    def hear(self, data: str) -> None:
        if data == "[DONE]":
            self._ended = True
            return
        try:
            chunk = cast(Json, json.loads(data))
        except ValueError as error:
            raise ThinkerError("llm_bad_response", "the endpoint sent a chunk that is not JSON") from error
        if not isinstance(chunk, dict):
            raise ThinkerError("llm_bad_response", "the endpoint sent a chunk that is not an object")
        if error_ := chunk.get("error"):
            message = error_.get("message") if isinstance(error_, dict) else error_
            raise _Refused(str(message)[:200])
        if isinstance(usage := chunk.get("usage"), dict):
            self._read = _count(usage.get("prompt_tokens"))
            self._written = _count(usage.get("completion_tokens"))
        choices = chunk.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            return
        if isinstance(reason := choice.get("finish_reason"), str):
            self._reason = reason
        if not isinstance(delta := choice.get("delta"), dict):
            return
        if isinstance(text := delta.get("content"), str) and text:
            self._tell(TextPiece(text))
        fragments = delta.get("tool_calls")
        for fragment in fragments if isinstance(fragments, list) else []:
            if isinstance(fragment, dict):
                self._collect(fragment)

    def _collect(self, fragment: dict[str, Json]) -> None:
        index = fragment.get("index")
        # An endpoint that leaves the index out sends whole calls.
        call = self._calls.setdefault(index if isinstance(index, int) else len(self._calls), ["", "", ""])
        function = fragment.get("function")
        parts = function if isinstance(function, dict) else {}
        if isinstance(identity := fragment.get("id"), str) and identity:
            call[0] = identity
        if isinstance(name := parts.get("name"), str) and not call[1]:
            call[1] = name
        if isinstance(arguments := parts.get("arguments"), str):
            call[2] += arguments

    def finish(self) -> Thinking:
        if not self._ended and not self._reason:
            raise ThinkerError("llm_bad_response", "the endpoint ended its answer in the middle; see its log")
        for index, (identity, name, arguments) in sorted(self._calls.items()):
            if not name:
                raise ThinkerError("llm_bad_response", "the endpoint sent a tool call without a name")
            self._tell(ToolCall(identity or f"call_{self._seed:08x}{index}", name, arguments or "{}"))
        return Thinking(_REASONS.get(self._reason, "completed"), self._read, self._written)


def _count(value: Json) -> int:
    return value if isinstance(value, int) else 0
