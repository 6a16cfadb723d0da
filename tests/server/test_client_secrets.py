"""Ephemeral keys: the store by itself, then the endpoint over HTTP, with bad input and with the vendor's client."""

from __future__ import annotations

import json
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI

from server.client_secrets import MAX_BODY, ClientSecrets, NoRoom, UsedUp, Wanted, looks_ephemeral, parse_wanted
from server.dialects.checks import Rejected
from tests.server.serving import API_KEY, Served, refusal, served

PATH = "/v1/realtime/client_secrets"
SESSION = {"type": "realtime", "instructions": "Speak like a pirate.", "audio": {"output": {"speed": 1.25}}}


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.5

    def __call__(self) -> float:
        return self.now


# --- the store ---------------------------------------------------------------------------------------------------


def test_a_key_is_valid_until_the_second_that_was_promised() -> None:
    clock = Clock()
    store = ClientSecrets(clock=clock)
    value, secret = store.mint(Wanted({"type": "realtime"}, 10))
    assert secret.expires_at == 1_000_010
    clock.now = 1_000_009.9
    assert store.find(value) is secret
    clock.now = 1_000_010.0
    assert store.find(value) is None


def test_keys_have_the_form_of_ephemeral_keys_and_are_all_different() -> None:
    store = ClientSecrets()
    values = {store.mint(Wanted(None, 600))[0] for _ in range(100)}
    assert len(values) == 100
    assert all(looks_ephemeral(value) for value in values)
    assert not looks_ephemeral("ek_test")


def test_what_has_expired_is_gone_from_memory_without_being_asked_for() -> None:
    clock = Clock()
    store = ClientSecrets(clock=clock)
    for number in range(100):
        store.mint(Wanted({"type": "realtime", "instructions": "x" * 100}, 10 + number))
    clock.now += 60
    assert len(store) == 49
    clock.now += 1000
    store.mint(Wanted(None, 10))
    assert len(store) == 1
    assert store._bytes == 0
    assert len(store._by_expiry) == 1


def test_a_key_may_open_many_sessions_unless_it_is_for_one() -> None:
    many = ClientSecrets()
    value, secret = many.mint(Wanted(None, 600))
    with many.opening(secret), many.opening(secret), many.opening(None):
        assert many.find(value) is secret
    for single, wanted in ((ClientSecrets(single_use=True), Wanted(None, 600)), (many, Wanted(None, 600, True))):
        value, secret = single.mint(wanted)
        with single.opening(secret):
            assert single.find(value) is None
            with pytest.raises(UsedUp), single.opening(secret):
                pass
        with pytest.raises(UsedUp), single.opening(secret):
            pass
        assert single.find(value) is None


def test_a_key_for_one_session_is_good_again_where_that_could_not_be_opened() -> None:
    store = ClientSecrets(single_use=True)
    value, secret = store.mint(Wanted({"type": "realtime"}, 600))
    with pytest.raises(RuntimeError), store.opening(secret):
        raise RuntimeError
    assert store.find(value) is secret
    with store.opening(secret):
        pass
    assert store.find(value) is None
    assert store._bytes == 0


def test_a_tenants_keys_are_forgotten_together_and_no_others() -> None:
    store = ClientSecrets()
    mine = [store.mint(Wanted(None, 600), "acme")[0] for _ in range(3)]
    other, _ = store.mint(Wanted(None, 600), "bolt")
    assert (store.of("acme"), store.of("bolt")) == (3, 1)
    assert store.forget("acme") == 3
    assert (store.of("acme"), store.of("bolt")) == (0, 1)
    assert [store.find(value) for value in mine] == [None] * 3
    assert store.find(other) is not None


def test_used_up_keys_do_not_pile_up_until_they_would_have_expired() -> None:
    store = ClientSecrets(single_use=True)
    for _ in range(1000):
        with store.opening(store.mint(Wanted({"type": "realtime"}, 7200))[1]):
            pass
    assert len(store) == 0
    assert len(store._by_expiry) <= 64
    assert store._bytes == 0


def test_a_full_store_refuses_and_says_when_to_come_back() -> None:
    clock = Clock()
    store = ClientSecrets(most=2, clock=clock)
    store.mint(Wanted(None, 100))
    kept, _ = store.mint(Wanted(None, 200))
    with pytest.raises(NoRoom) as full:
        store.mint(Wanted(None, 600))
    assert 99 <= full.value.retry_after <= 100
    clock.now += 100
    store.mint(Wanted(None, 600))
    assert store.find(kept) is not None


def test_the_store_is_bounded_in_bytes_too() -> None:
    store = ClientSecrets(most_bytes=1000)
    store.mint(Wanted({"instructions": "x" * 800}, 600))
    with pytest.raises(NoRoom):
        store.mint(Wanted({"instructions": "x" * 800}, 600))


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"session": []}, "session"),
        ({"session": "realtime"}, "session"),
        ({"expires_after": 600}, "expires_after"),
        ({"expires_after": {"seconds": 9}}, "expires_after.seconds"),
        ({"expires_after": {"seconds": 7201}}, "expires_after.seconds"),
        ({"expires_after": {"seconds": "600"}}, "expires_after.seconds"),
        ({"expires_after": {"seconds": 60.5}}, "expires_after.seconds"),
        ({"expires_after": {"seconds": True}}, "expires_after.seconds"),
        ({"expires_after": {"anchor": "used_at", "seconds": 60}}, "expires_after.anchor"),
        ({"expires_after": {"anchor": 1, "seconds": 60}}, "expires_after.anchor"),
    ],
)
def test_a_wrong_field_is_named(body: dict[str, Any], param: str) -> None:
    with pytest.raises(Rejected) as rejected:
        parse_wanted(json.dumps(body))
    assert rejected.value.param == param


@pytest.mark.parametrize("body", ["", "  \n", "{}", '{"session": null}', '{"expires_after": null}'])
def test_what_is_not_asked_for_has_a_default(body: str) -> None:
    assert parse_wanted(body) == Wanted(None, 600)


# --- the endpoint ------------------------------------------------------------------------------------------------


async def created(place: Served, key: str) -> dict[str, Any]:
    """The session that a connection with `key` begins with."""
    async with place.socket(key) as connection:
        event = json.loads(await connection.recv())
    assert event["type"] == "session.created"
    session: dict[str, Any] = event["session"]
    return session


async def mint(place: Served, body: dict[str, Any], key: str | None = API_KEY) -> dict[str, Any]:
    async with place.http(key) as client:
        answer = await client.post(PATH, json=body)
    assert answer.status_code == 200, answer.text
    minted: dict[str, Any] = answer.json()
    return minted


def error_of(answer: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = answer.json()["error"]
    assert set(error) == {"type", "code", "message", "param"}
    return error


async def test_a_session_opened_with_an_ephemeral_key_begins_as_it_was_minted() -> None:
    async with served(api_keys=(API_KEY,)) as place:
        minted = await mint(place, {"session": SESSION})
        assert minted["session"]["instructions"] == "Speak like a pirate."
        session = await created(place, minted["value"])
        assert session.pop("id") != minted["session"].pop("id")
        assert session.pop("model") == "m"
        minted["session"].pop("model")
        assert session == minted["session"]
        async with place.socket(API_KEY) as connection:
            assert json.loads(await connection.recv())["session"]["instructions"] != "Speak like a pirate."


async def test_a_model_that_was_minted_holds_whatever_the_client_asks_for() -> None:
    async with served(api_keys=(API_KEY,)) as place:
        minted = await mint(place, {"session": {"type": "realtime", "model": "theirs"}})
        assert (await created(place, minted["value"]))["model"] == "theirs"


async def test_an_ephemeral_key_can_be_used_again_while_it_is_valid() -> None:
    async with served(api_keys=(API_KEY,)) as place:
        value = (await mint(place, {}))["value"]
        for _ in range(3):
            await created(place, value)


async def test_a_single_use_key_opens_one_session() -> None:
    async with served(api_keys=(API_KEY,), ephemeral_single_use=True) as place:
        value = (await mint(place, {}))["value"]
        await created(place, value)
        status, error = await refusal(place.socket(value))
        assert (status, error["code"]) == (401, "invalid_api_key")
        assert "mint a new one" in error["message"]


async def test_an_expired_key_opens_nothing_and_an_open_session_goes_on() -> None:
    for keys in ((API_KEY,), ()):
        async with served(api_keys=keys) as place:
            clock = Clock()
            place.app.access.secrets = ClientSecrets(clock=clock)
            minted = await mint(place, {"expires_after": {"anchor": "created_at", "seconds": 10}})
            assert minted["expires_at"] == 1_000_010
            async with place.socket(minted["value"]) as connection:
                await connection.recv()
                clock.now += 10
                status, error = await refusal(place.socket(minted["value"]))
                assert (status, error["code"]) == (401, "invalid_api_key")
                assert "expired" in error["message"]
                await connection.send(json.dumps({"type": "session.update", "session": SESSION}))
                assert json.loads(await connection.recv())["type"] == "session.updated"


async def test_a_key_of_another_server_is_refused() -> None:
    async with served(api_keys=(API_KEY,)) as here, served(api_keys=(API_KEY,)) as there:
        value = (await mint(there, {}))["value"]
        status, error = await refusal(here.socket(value))
        assert (status, error["code"]) == (401, "invalid_api_key")


async def test_an_ephemeral_key_mints_no_further_ones() -> None:
    for keys in ((API_KEY,), ()):
        async with served(api_keys=keys) as place:
            value = (await mint(place, {}))["value"]
            async with place.http(value) as client:
                for path in (PATH, "/metrics"):
                    answer = await client.request("POST" if path == PATH else "GET", path)
                    assert answer.status_code == 403
                    assert error_of(answer)["code"] == "insufficient_scope"


async def test_minting_needs_an_api_key_where_keys_are_configured() -> None:
    async with served(api_keys=(API_KEY,)) as place:
        for key in (None, "wrong"):
            async with place.http(key) as client:
                answer = await client.post(PATH, json={})
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert error_of(answer)["code"] == "invalid_api_key"
        assert len(place.app.access.secrets) == 0


@pytest.mark.parametrize(
    ("session", "param"),
    [
        ({}, "session.type"),
        ({"type": "nonsense"}, "session.type"),
        ({"type": "realtime", "audio": {"output": {"speed": 9}}}, "session.audio.output.speed"),
        (
            {"type": "realtime", "audio": {"input": {"format": {"type": "audio/mp3"}}}},
            "session.audio.input.format.type",
        ),
        ({"type": "realtime", "tools": [{"type": "function"}]}, "session.tools[0].name"),
        ({"type": "realtime", "output_modalities": ["smell"]}, "session.output_modalities"),
    ],
)
async def test_a_wrong_session_is_refused_as_session_update_would(session: dict[str, Any], param: str) -> None:
    async with served() as place, place.http() as client:
        answer = await client.post(PATH, json={"session": session})
        assert answer.status_code == 400
        error = error_of(answer)
        assert error["type"] == "invalid_request_error"
        assert error["param"] == param
        async with place.socket() as connection:
            await connection.recv()
            await connection.send(json.dumps({"type": "session.update", "session": session}))
            refused = json.loads(await connection.recv())["error"]
        assert (refused["code"], refused["param"], refused["message"]) == (error["code"], param, error["message"])
        assert len(place.app.access.secrets) == 0


@pytest.mark.parametrize("body", [b"{", b"[]", b"null", b'{"session": NaN}', b"[" * 50_000, b"\xff{}"])
async def test_a_body_that_is_not_an_object_is_refused(body: bytes) -> None:
    async with served() as place, place.http() as client:
        answer = await client.post(PATH, content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 400
        assert error_of(answer)["code"] == "invalid_json"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_a_body_of_another_type_is_refused(kind: str) -> None:
    async with served() as place, place.http() as client:
        answer = await client.post(PATH, content=b"{}", headers={"Content-Type": kind})
        assert answer.status_code == 415
        assert "application/json" in error_of(answer)["message"]


async def test_an_empty_body_is_a_key_with_the_defaults() -> None:
    async with served() as place, place.http() as client:
        answer = await client.post(PATH)
        assert answer.status_code == 200
        assert looks_ephemeral(answer.json()["value"])
        content_type = {"Content-Type": "application/json; charset=utf-8"}
        assert (await client.post(PATH, content=b"{}", headers=content_type)).status_code == 200


async def test_a_body_beyond_the_limit_is_refused_declared_or_not() -> None:
    async def pieces() -> Any:
        for _ in range(MAX_BODY // 1024 + 2):
            yield b" " * 1024

    async with served() as place:
        for content in (b" " * (MAX_BODY + 1), pieces()):
            async with place.http() as client:
                answer = await client.post(PATH, content=content, headers={"Content-Type": "application/json"})
            assert answer.status_code == 413
            assert error_of(answer)["code"] == "request_too_large"


async def test_another_method_is_refused() -> None:
    async with served() as place, place.http() as client:
        for method in ("GET", "PUT", "DELETE"):
            answer = await client.request(method, PATH)
            assert answer.status_code == 405
            assert error_of(answer)["code"] == "method_not_allowed"
            assert answer.headers["allow"] == "POST"


async def test_a_full_store_is_429_with_the_time_to_wait() -> None:
    async with served() as place, place.http() as client:
        place.app.access.secrets = ClientSecrets(most=1)
        assert (await client.post(PATH)).status_code == 200
        answer = await client.post(PATH)
        assert answer.status_code == 429
        assert error_of(answer)["code"] == "too_many_client_secrets"
        assert 590 <= int(answer.headers["retry-after"]) <= 600


async def test_a_page_of_another_host_cannot_fill_the_store_of_an_open_server() -> None:
    async with served() as place, place.http() as client:
        answer = await client.post(PATH, headers={"Origin": "https://example.com"})
        assert answer.status_code == 403
        assert len(place.app.access.secrets) == 0


async def test_the_vendors_client_mints_a_key_and_another_one_connects_with_it() -> None:
    async with served(api_keys=(API_KEY,)) as place:
        backend = AsyncOpenAI(api_key=API_KEY, base_url=f"{place.url}/v1")
        minted = await backend.realtime.client_secrets.create(
            expires_after={"anchor": "created_at", "seconds": 60},
            session={"type": "realtime", "instructions": "Be brief.", "audio": {"output": {"voice": "default"}}},
        )
        assert minted.session.type == "realtime"
        assert minted.session.instructions == "Be brief."
        browser = AsyncOpenAI(api_key=minted.value, base_url=f"{place.url}/v1")
        async with browser.realtime.connect(model="talkover") as connection:
            event = await connection.recv()
            assert event.type == "session.created"
            assert event.session.type == "realtime"
            assert event.session.instructions == "Be brief."
        with pytest.raises(openai.PermissionDeniedError):
            await browser.realtime.client_secrets.create()
        stranger = AsyncOpenAI(api_key="nobody", base_url=f"{place.url}/v1")
        with pytest.raises(openai.AuthenticationError) as refused:
            await stranger.realtime.client_secrets.create()
        assert refused.value.code == "invalid_api_key"
        with pytest.raises(openai.BadRequestError) as wrong:
            await backend.realtime.client_secrets.create(expires_after={"anchor": "created_at", "seconds": 1})
        assert wrong.value.param == "expires_after.seconds"
