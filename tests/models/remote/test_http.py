"""`models.remote.http`: requests that are made once more where that may help, and answers that have a bound."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from models.remote.backoff import Backoff
from models.remote.errors import RemoteError
from models.remote.http import HttpEndpoint

AT_ONCE = Backoff(first=0.001, longest=0.001, attempts=2)


class Server:
    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def endpoint(server: Callable[[httpx.Request], httpx.Response], **changes: int) -> HttpEndpoint:
    transport = httpx.MockTransport(server)
    return HttpEndpoint("tts-url", "http://h/v1/", "sk", backoff=AT_ONCE, transport=transport, **changes)


@pytest.mark.parametrize("first", [httpx.Response(503), httpx.Response(429), httpx.RemoteProtocolError("cut")])
def test_a_server_that_was_busy_or_went_away_is_asked_once_more(first: httpx.Response | Exception) -> None:
    server = Server(first, httpx.Response(200, content=b"ok", headers={"content-type": "Audio/PCM; x=y"}))
    there = endpoint(server)
    answer = there.post("/audio/speech", json={"input": "x"})
    assert (answer.body, answer.kind) == (b"ok", "audio/pcm")
    assert [str(request.url) for request in server.asked] == ["http://h/v1/audio/speech"] * 2
    assert server.asked[0].headers["authorization"] == "Bearer sk"
    there.close()


@pytest.mark.parametrize("first", [httpx.Response(400), httpx.ReadTimeout("slow")])
def test_what_would_fail_again_is_not_asked_again(first: httpx.Response | Exception) -> None:
    server = Server(first)
    there = endpoint(server)
    with pytest.raises(RemoteError):
        there.post("/x")
    assert len(server.asked) == 1
    there.close()


def test_an_answer_without_end_is_cut_off() -> None:
    there = endpoint(Server(httpx.Response(200, content=bytes(11))), longest=10)
    with pytest.raises(RemoteError, match="more than 10 bytes"):
        there.post("/x")
    there.close()


def test_a_form_carries_its_file_and_fields() -> None:
    server = Server(httpx.Response(200))
    there = endpoint(server)
    there.post("/x", fields={"model": "m", "kinds[]": ["word"]}, file=("u.wav", b"RIFF", "audio/wav"))
    body = server.asked[0].read()
    for part in (b'name="model"\r\n\r\nm', b'name="kinds[]"\r\n\r\nword', b'filename="u.wav"', b"RIFF"):
        assert part in body
    there.close()


def test_an_address_must_be_http() -> None:
    with pytest.raises(RemoteError, match="http://"):
        HttpEndpoint("tts-url", "ftp://h")
