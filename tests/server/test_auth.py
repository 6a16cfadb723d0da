"""Who may connect: the rules by themselves, then over real connections."""

from __future__ import annotations

import json
from typing import Any

import pytest
from websockets.typing import Origin

from server.auth import Access, Denied, Scope, bearer, is_local, key_of
from server.client_secrets import ClientSecrets, Wanted
from server.keys import KeyRing
from tests.server.serving import API_KEY, refusal, served

OTHER = "another-key-0123456789"


def header(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def access(*keys: str, **options: Any) -> Access:
    return Access(KeyRing(keys), ClientSecrets(), **options)


@pytest.mark.parametrize("text", ["Bearer abc", "bearer abc", "BEARER  abc ", " Bearer abc"])
def test_the_scheme_is_read_in_any_case(text: str) -> None:
    assert bearer(text) == "abc"


@pytest.mark.parametrize("text", ["", "Bearer", "Bearer ", "abc", "Basic abc", "Token abc"])
def test_another_scheme_is_refused_even_where_no_key_is_needed(text: str) -> None:
    with pytest.raises(Denied) as refused:
        access().session({"authorization": text})
    assert (refused.value.status, refused.value.code) == (401, "invalid_api_key")


def test_a_browser_brings_its_key_as_a_subprotocol() -> None:
    assert key_of(["realtime", "openai-insecure-api-key.abc"]) == "abc"
    assert key_of(["realtime", "openai-insecure-api-key."]) is None
    assert key_of(["realtime"]) is None


def test_without_keys_any_key_or_none_is_accepted() -> None:
    assert access().session({}).secret is None
    assert access().session(header("anything")).secret is None
    assert access().session(header("ek_dev")).secret is None
    access().administration({}, Scope.MANAGE)


def test_with_keys_each_of_them_is_accepted_and_no_other() -> None:
    guarded = access(API_KEY, OTHER)
    for key in (API_KEY, OTHER):
        guarded.session(header(key))
        guarded.session({}, ["realtime", f"openai-insecure-api-key.{key}"])
        guarded.administration(header(key), Scope.MANAGE)
    for wrong in (API_KEY[:-1], API_KEY + "x", API_KEY.upper(), "", "é" * 20, "\udce9"):
        with pytest.raises(Denied):
            guarded.session(header(wrong))
        with pytest.raises(Denied):
            guarded.session({}, [f"openai-insecure-api-key.{wrong}"])
    with pytest.raises(Denied, match="no API key was given"):
        guarded.session({}, ["realtime"])


def test_a_refusal_never_repeats_the_key() -> None:
    for wrong in ("sk-this-is-my-other-key", "ek_this_is_not_ours"):
        with pytest.raises(Denied) as refused:
            access(API_KEY).session(header(wrong))
        assert wrong not in refused.value.message
        assert API_KEY not in refused.value.message


def test_a_header_decides_before_a_subprotocol() -> None:
    with pytest.raises(Denied):
        access(API_KEY).session(header("wrong"), [f"openai-insecure-api-key.{API_KEY}"])


def test_an_ephemeral_key_opens_sessions_and_nothing_else() -> None:
    for guarded in (access(API_KEY), access()):
        value, secret = guarded.secrets.mint(Wanted({"type": "realtime"}, 600))
        assert guarded.session(header(value)).secret is secret
        assert guarded.session({}, ["realtime", f"openai-insecure-api-key.{value}"]).secret is secret
        with pytest.raises(Denied) as refused:
            guarded.administration(header(value), Scope.MANAGE)
        assert (refused.value.status, refused.value.code) == (403, "insufficient_scope")


def test_an_ephemeral_key_of_another_server_is_refused_even_where_none_is_needed() -> None:
    foreign, _ = ClientSecrets().mint(Wanted(None, 600))
    for guarded in (access(API_KEY), access()):
        with pytest.raises(Denied, match="another server"):
            guarded.session(header(foreign))


@pytest.mark.parametrize(
    ("origin", "local"),
    [
        ("http://localhost:5173", True),
        ("https://127.0.0.1", True),
        ("http://127.8.9.10:80", True),
        ("http://[::1]:8787", True),
        ("http://app.localhost", True),
        ("https://example.com", False),
        ("http://localhost.example.com", False),
        ("http://127.0.0.1.example.com", False),
        ("http://192.168.1.5", False),
        ("null", False),
        ("", False),
        ("http://[::1", False),
    ],
)
def test_a_page_is_local_by_its_host(origin: str, local: bool) -> None:
    assert is_local(origin) is local


def test_without_keys_pages_of_other_hosts_are_kept_out() -> None:
    foreign = {"origin": "https://example.com"}
    with pytest.raises(Denied) as refused:
        access().session(foreign)
    assert (refused.value.status, refused.value.code) == (403, "origin_not_allowed")
    access().session({"origin": "http://localhost:3000"})
    access(open_to_all=True).session(foreign)
    access(origins=("https://example.com",)).session(foreign)
    access(API_KEY).session({**foreign, **header(API_KEY)})
    minted = access()
    value, _ = minted.secrets.mint(Wanted(None, 600))
    minted.session({**foreign, **header(value)})


# --- over real connections ---------------------------------------------------------------------------------------


async def test_a_handshake_without_a_key_is_answered_with_401_and_the_reason() -> None:
    async with served(api_keys=(API_KEY,)) as place:
        for attempt in (place.socket(), place.socket("wrong"), place.socket(subprotocols=["realtime"])):
            status, error = await refusal(attempt)
            assert status == 401
            assert error["type"] == "invalid_request_error"
            assert error["code"] == "invalid_api_key"
            assert error["param"] is None
            assert "Bearer" in error["message"] or "check it" in error["message"]
        assert place.app.counters.snapshot()["access_denied"] == 3
        assert "sessions_opened" not in place.app.counters.snapshot()


async def test_a_key_opens_a_session_by_header_and_by_subprotocol() -> None:
    async with served(api_keys=(API_KEY, OTHER)) as place:
        async with place.socket(OTHER) as connection:
            assert json.loads(await connection.recv())["type"] == "session.created"
        offered = ["realtime", f"openai-insecure-api-key.{API_KEY}"]
        async with place.socket(subprotocols=offered) as connection:
            assert connection.subprotocol == "realtime"
            assert json.loads(await connection.recv())["type"] == "session.created"


async def test_the_key_is_never_the_subprotocol_that_the_server_chooses() -> None:
    async with (
        served(api_keys=(API_KEY,)) as place,
        place.socket(subprotocols=[f"openai-insecure-api-key.{API_KEY}"]) as connection,
    ):
        assert connection.subprotocol is None
        assert json.loads(await connection.recv())["type"] == "session.created"


async def test_a_page_of_another_host_cannot_connect_to_an_open_server() -> None:
    async with served() as place:
        status, error = await refusal(place.socket(origin=Origin("https://example.com")))
        assert (status, error["code"]) == (403, "origin_not_allowed")
        async with place.socket(origin=Origin("http://localhost:8787")) as connection:
            assert json.loads(await connection.recv())["type"] == "session.created"
