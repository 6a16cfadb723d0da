"""`models.families.embedded.thinker_openai`, against a real HTTP server on the loopback."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

from models.families.embedded.stop import Stop
from models.families.embedded.thinker import TextPiece, ThinkerError, Thinking, ThinkRequest, Thought, ToolCall
from models.families.embedded.thinker_openai import OpenAIThinker, messages
from sessions.core.config import Tool
from sessions.core.context import ContextEntry

from ..hearing import PATIENCE

KEY = "sk-very-secret"
WEATHER = Tool(name="get_weather", description="Weather of a city", parameters='{"type": "object"}')


class Endpoint(BaseHTTPRequestHandler):
    """Answers with `chunks` as server-sent events; can hang before a chunk, and tells when the client has gone."""

    status: ClassVar[int] = 200
    body: ClassVar[bytes] = b""
    chunks: ClassVar[list[object]] = []
    done: ClassVar[bool] = True
    hang_before: ClassVar[int | None] = None
    asked: ClassVar[list[dict[str, Any]]] = []
    headers_seen: ClassVar[list[dict[str, str]]] = []
    hung: ClassVar[threading.Event]
    gone: ClassVar[threading.Event]

    def do_POST(self) -> None:
        cls = type(self)
        cls.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        cls.headers_seen.append(dict(self.headers))
        self.send_response(cls.status)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        if cls.status != 200:
            self.wfile.write(cls.body)
            return
        self.wfile.write(b": a comment\n\n")
        for number, chunk in enumerate(cls.chunks):
            if number == cls.hang_before:
                self.wfile.flush()
                cls.hung.set()
                # Blocks until the client closes the connection.
                with contextlib.suppress(ConnectionError):
                    self.rfile.read(1)
                cls.gone.set()
                return
            data = chunk if isinstance(chunk, str) else json.dumps(chunk)
            self.wfile.write(f"event: message\ndata: {data}\n\n".encode())
        if cls.done:
            self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def endpoint() -> Iterator[tuple[type[Endpoint], str]]:
    class Handler(Endpoint):
        asked: ClassVar[list[dict[str, Any]]] = []
        headers_seen: ClassVar[list[dict[str, str]]] = []
        hung = threading.Event()
        gone = threading.Event()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield Handler, f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()
    thread.join()


def request(**changes: object) -> ThinkRequest:
    fields: dict[str, object] = {
        "context": (ContextEntry("user", "message", "Hi"),),
        "instructions": "Be kind.",
        "tools": (),
        "tool_choice": "auto",
        "max_output_tokens": None,
        "temperature": 0.5,
        "spoken": True,
        "seed": 7,
        "urgency": lambda: (0, 0),
    }
    return ThinkRequest(**(fields | changes))  # type: ignore[arg-type]


def delta(finish: str | None = None, **content: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": content, "finish_reason": finish}]}


def think(url: str, asked: ThinkRequest | None = None, **options: object) -> tuple[list[Thought], Thinking]:
    thinker = OpenAIThinker(url, "m", KEY, **options)  # type: ignore[arg-type]
    try:
        told: list[Thought] = []
        return told, thinker.think(asked or request(), told.append, Stop())
    finally:
        thinker.close()


def test_text_streams_in_and_usage_is_counted(endpoint: tuple[type[Endpoint], str]) -> None:
    handler, url = endpoint
    usage = {"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 3}}
    handler.chunks = [
        delta(role="assistant", content=""),
        delta(content="Hel"),
        delta(content="lo."),
        delta("stop"),
        usage,
    ]
    told, thinking = think(url)
    assert told == [TextPiece("Hel"), TextPiece("lo.")]
    assert thinking == Thinking("completed", 11, 3)
    body = handler.asked[0]
    assert body["model"] == "m"
    assert body["stream"] is True
    assert body["temperature"] == 0.5
    assert body["seed"] == 7
    assert "max_tokens" not in body
    assert "tools" not in body
    assert handler.headers_seen[0]["Authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    ("finish", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter"), ("stop", "completed")]
)
def test_the_reason_of_the_end_is_translated(endpoint: tuple[type[Endpoint], str], finish: str, reason: str) -> None:
    handler, url = endpoint
    handler.chunks = [delta(content="a"), delta(finish)]
    assert think(url, request(max_output_tokens=5))[1].reason == reason
    assert handler.asked[0]["max_tokens"] == 5


def test_the_limit_goes_by_the_name_that_the_endpoint_knows(endpoint: tuple[type[Endpoint], str]) -> None:
    handler, url = endpoint
    handler.chunks = [delta("stop")]
    think(url, request(max_output_tokens=5), limit_field="max_completion_tokens")
    assert handler.asked[0]["max_completion_tokens"] == 5


def test_parallel_calls_are_put_together_from_their_fragments(endpoint: tuple[type[Endpoint], str]) -> None:
    handler, url = endpoint

    def fragment(index: int, **parts: object) -> dict[str, object]:
        return delta(tool_calls=[{"index": index, **parts}])

    handler.chunks = [
        fragment(0, id="c1", type="function", function={"name": "get_weather", "arguments": ""}),
        fragment(0, function={"arguments": '{"city": '}),
        fragment(1, id="c2", type="function", function={"name": "get_weather", "arguments": '{"city": "Rome"}'}),
        fragment(0, function={"arguments": '"Paris"}'}),
        delta("tool_calls"),
    ]
    told, thinking = think(url, request(tools=(WEATHER,), tool_choice="required"))
    assert told == [
        ToolCall("c1", "get_weather", '{"city": "Paris"}'),
        ToolCall("c2", "get_weather", '{"city": "Rome"}'),
    ]
    assert thinking.reason == "completed"
    assert handler.asked[0]["tools"][0]["function"]["name"] == "get_weather"
    assert handler.asked[0]["tool_choice"] == "required"


def test_a_named_tool_is_asked_for_by_name(endpoint: tuple[type[Endpoint], str]) -> None:
    handler, url = endpoint
    handler.chunks = [delta("stop")]
    think(url, request(tools=(WEATHER,), tool_choice="get_weather"))
    assert handler.asked[0]["tool_choice"] == {"type": "function", "function": {"name": "get_weather"}}


def test_the_history_becomes_chat_messages_with_neighbouring_calls_in_one() -> None:
    context = (
        ContextEntry("user", "message", "Weather in Paris and Rome?"),
        ContextEntry("assistant", "function_call", '{"city": "Paris"}', "c1", "get_weather"),
        ContextEntry("assistant", "function_call", '{"city": "Rome"}', "c2", "get_weather"),
        ContextEntry("user", "function_call_output", "18", "c1"),
        ContextEntry("user", "function_call_output", "25", "c2"),
        ContextEntry("system", "message", "Be quick."),
    )
    out = messages(request(context=context, spoken=False))
    assert [message["role"] for message in out] == ["system", "user", "assistant", "tool", "tool", "system"]
    assert out[0]["content"] == "Be kind."
    assert [call["id"] for call in out[2]["tool_calls"]] == ["c1", "c2"]  # type: ignore[index, union-attr, call-overload]
    assert out[4] == {"role": "tool", "tool_call_id": "c2", "content": "25"}


def test_a_spoken_answer_is_asked_for_as_speech_and_empty_instructions_add_nothing() -> None:
    assert "read aloud" in str(messages(request())[0]["content"])
    assert messages(request(instructions=" ", spoken=False))[0]["role"] == "user"


def test_a_stop_closes_the_connection_at_once(endpoint: tuple[type[Endpoint], str]) -> None:
    handler, url = endpoint
    handler.chunks = [delta(content="a"), delta(content="never sent")]
    handler.hang_before = 1
    thinker = OpenAIThinker(url, "m")
    stop = Stop()
    told: list[Thought] = []
    thread = threading.Thread(target=lambda: thinker.think(request(), told.append, stop))
    thread.start()
    assert handler.hung.wait(PATIENCE)
    stop.set()
    assert handler.gone.wait(PATIENCE)
    thread.join(PATIENCE)
    assert not thread.is_alive()
    thinker.close()


def test_a_stop_before_the_start_asks_nothing_of_the_endpoint(endpoint: tuple[type[Endpoint], str]) -> None:
    _, url = endpoint
    thinker = OpenAIThinker(url, "m")
    stop = Stop()
    stop.set()
    told: list[Thought] = []
    thinker.think(request(), told.append, stop)
    thinker.close()
    assert told == []


@pytest.mark.parametrize(
    ("status", "body", "hint"),
    [
        (401, b'{"error": {"message": "bad key sk-very-secret"}}', "check llm-key"),
        (404, b"no such model", "check llm-url and llm-model"),
        (500, b"\xff\xfe", "see the endpoint's log"),
        (429, b'{"error": "slow down"}', "try again later"),
    ],
)
def test_a_refusing_status_is_a_typed_failure_without_the_key(
    endpoint: tuple[type[Endpoint], str], caplog: pytest.LogCaptureFixture, status: int, body: bytes, hint: str
) -> None:
    handler, url = endpoint
    handler.status, handler.body = status, body
    caplog.set_level(logging.DEBUG)
    with pytest.raises(ThinkerError) as failed:
        think(url)
    assert failed.value.code == "llm_http_status"
    assert str(status) in str(failed.value)
    assert hint in str(failed.value)
    assert KEY not in str(failed.value)
    assert KEY not in caplog.text


def test_an_endpoint_that_is_not_there_is_a_typed_failure() -> None:
    with pytest.raises(ThinkerError) as failed:
        think("http://127.0.0.1:9/v1")
    assert failed.value.code == "llm_unreachable"
    assert "check address" in str(failed.value)


def test_a_silent_endpoint_times_out(endpoint: tuple[type[Endpoint], str]) -> None:
    handler, url = endpoint
    handler.chunks = [delta(content="a")]
    handler.hang_before = 0
    with pytest.raises(ThinkerError) as failed:
        think(url, timeout=0.05)
    assert failed.value.code == "llm_timeout"


@pytest.mark.parametrize(
    ("chunk", "code"),
    [
        ("{broken", "llm_bad_response"),
        ("[]", "llm_bad_response"),
        ({"error": {"message": "overloaded"}}, "llm_refused"),
        (delta("tool_calls", tool_calls=[{"index": 0, "function": {"arguments": "{}"}}]), "llm_bad_response"),
    ],
)
def test_nonsense_in_the_stream_is_a_typed_failure(
    endpoint: tuple[type[Endpoint], str], chunk: object, code: str
) -> None:
    handler, url = endpoint
    handler.chunks = [chunk]
    with pytest.raises(ThinkerError) as failed:
        think(url)
    assert failed.value.code == code


def test_an_answer_that_breaks_off_is_a_failure_and_not_an_end(endpoint: tuple[type[Endpoint], str]) -> None:
    handler, url = endpoint
    handler.chunks, handler.done = [delta(content="half")], False
    with pytest.raises(ThinkerError) as failed:
        think(url)
    assert failed.value.code == "llm_bad_response"


def test_unusual_but_harmless_chunks_are_passed_over(endpoint: tuple[type[Endpoint], str]) -> None:
    handler, url = endpoint
    odd: list[object] = [
        {"choices": []},
        {"choices": [{"delta": None}]},
        {"choices": [{"delta": {"content": None, "tool_calls": None}}]},
        {"x": 1},
        delta("stop"),
    ]
    handler.chunks = odd
    assert think(url) == ([], Thinking())


def test_tool_parameters_that_are_not_json_are_a_typed_failure(endpoint: tuple[type[Endpoint], str]) -> None:
    _, url = endpoint
    with pytest.raises(ThinkerError) as failed:
        think(url, request(tools=(Tool(name="f", parameters="{"),)))
    assert failed.value.code == "tool_schema"


def test_a_url_without_a_scheme_or_an_empty_model_is_refused() -> None:
    with pytest.raises(ValueError, match="llm-url"):
        OpenAIThinker("localhost:8000", "m")
    with pytest.raises(ValueError, match="llm-model"):
        OpenAIThinker("http://localhost", "")


def test_a_closed_thinker_says_so() -> None:
    thinker = OpenAIThinker("http://127.0.0.1:9", "m")
    thinker.close()
    thinker.close()
    with pytest.raises(ThinkerError) as failed:
        thinker.think(request(), print, Stop())
    assert failed.value.code == "thinker_closed"
