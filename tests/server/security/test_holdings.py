"""What is kept of a tenant or a session is found and removed: in memory, in Redis and on the disk.

The proof looks where nobody thought of as well: through every object of the process, every key of Redis and every byte
below the folder of recordings.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect

from server.keys import HOUSE
from sessions.core.config import SessionConfig
from sessions.core.fence import Fence
from sessions.ports import Emit
from tests.caller import Caller
from tests.redis_server import RedisServer, needs_redis
from tests.server.serving import Served, served
from tests.sessions.fakes import CountingEngine

from .leftovers import holders_of
from .making import make_tenants
from .outside import until

SECRET = " ".join(("the", "horse", "is", "called", "Bucephalus"))
"""Said in the conversation. In pieces here, so that nothing that holds this file's text holds it."""


class Keeping(CountingEngine):
    """Keeps something of each tenant, as engines keep prompts' beginnings."""

    def __init__(self) -> None:
        super().__init__(seconds=1.0, delay=0.0)
        self.kept: dict[str, list[str]] = {}

    def open(self, fence: Fence, config: SessionConfig, emit: Emit) -> None:
        super().open(fence, config, emit)
        self.kept.setdefault(config.tenant, []).append(config.instructions)

    def held(self, tenant: str) -> Mapping[str, int]:
        return {"prefixes": len(self.kept.get(tenant, ()))}

    def forget(self, tenant: str) -> None:
        self.kept.pop(tenant, None)


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with tempfile.TemporaryDirectory(prefix="r") as folder, RedisServer(Path(folder)) as server:
        yield server


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def hear(connection: ClientConnection, kind: str) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while True:
            event: dict[str, Any] = json.loads(await connection.recv())
            if event["type"] == kind:
                return event


async def talk(place: Served, key: str, stack: contextlib.AsyncExitStack) -> str:
    """A session that could be come back to, in which the secret was written and answered; its id."""
    url = f"{place.realtime}&duplex=1&autostart=0"
    # Without bound on what waits here: nobody reads the rest, and a full queue would delay the closing.
    dialled = connect(url, additional_headers=bearer(key), proxy=None, max_queue=None)
    connection = await stack.enter_async_context(dialled)
    await connection.send(json.dumps({"type": "session.heartbeat"}))
    created = await hear(connection, "session.created")
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": SECRET}]}
    await connection.send(json.dumps({"type": "conversation.item.create", "item": item}))
    await connection.send(json.dumps({"type": "response.create"}))
    await hear(connection, "response.created")
    return str(created["session"]["id"])


async def state(http: httpx.AsyncClient, path: str, method: str = "GET") -> dict[str, Any]:
    answer = await http.request(method, f"/v1/talkover/tenants/{path}/state", timeout=60)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def kinds(held: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(one["place"], one["kind"]) for one in held}


async def written(http: httpx.AsyncClient, tenant: str, *wanted: tuple[str, str]) -> None:
    """Until what is written elsewhere, batch by batch, is there."""

    async def there() -> bool:
        return set(wanted) <= kinds((await state(http, tenant))["held"])

    await until(there)


def on_disk(root: Path, *marks: str) -> list[str]:
    """Files below `root` whose name or content shows one of `marks`."""
    return [
        str(path)
        for path in root.rglob("*")
        if any(
            mark in str(path.relative_to(root)) or (path.is_file() and mark.encode() in path.read_bytes())
            for mark in marks
        )
    ]


async def test_all_that_is_kept_of_a_tenant_is_listed_and_removed(tmp_path: Path) -> None:
    keys = make_tenants(
        tmp_path / "tenants.json", ["acme", "bolt", "ops"], operators=["ops"], http=1000, audio_day=1000
    )
    root, engine = tmp_path / "recordings", Keeping()
    async with contextlib.AsyncExitStack() as stack:
        place = await stack.enter_async_context(
            served(engine, tenants_file=tmp_path / "tenants.json", record=root, resume_grace_s=60)
        )
        mine, theirs = await talk(place, keys["acme"], stack), await talk(place, keys["bolt"], stack)
        caller = Caller()
        stack.push_async_callback(caller.close)
        async with place.http(keys["acme"]) as http:
            await caller.call(http, {"type": "realtime", "instructions": SECRET})
            await caller.event("session.created")
            await http.post(
                "/v1/realtime/client_secrets", json={"session": {"type": "realtime", "instructions": SECRET}}
            )
            place.app.telephony.numbers._recent[("acme", "+15550100123")] = deque([1.0])
            await written(http, "acme", ("disk", "recording"))
            before = await state(http, "acme")
            assert kinds(before["held"]) == {
                ("memory", "session"),
                ("memory", "resumable"),
                ("memory", "lease"),
                ("memory", "call"),
                ("memory", "ephemeral_keys"),
                ("memory", "limits"),
                ("memory", "phone_numbers"),
                ("disk", "recording"),
                ("engine", "prefixes"),
            }
            assert on_disk(root, mine)
        async with place.http(keys["ops"]) as http:
            deleted = await state(http, "acme", "DELETE")
            assert kinds(deleted["held"]) == kinds(before["held"])
            assert deleted["left"] == []
            assert (await state(http, "acme"))["held"] == []
            kept = await state(http, "bolt")
            assert {("memory", "session"), ("disk", "recording")} <= kinds(kept["held"]), "nothing of another tenant"
        assert on_disk(root, mine, "acme") == []
        assert on_disk(root, theirs)
        assert "acme" not in engine.kept
        manager = place.app.manager
        assert manager is not None
        assert theirs in manager


async def test_nothing_in_the_memory_of_the_process_holds_what_was_deleted(tmp_path: Path) -> None:
    keys = make_tenants(tmp_path / "tenants.json", ["acme"])
    engine = CountingEngine(seconds=1.0, delay=0.0)
    settings = {"tenants_file": tmp_path / "tenants.json", "record": tmp_path / "recordings"}
    async with served(engine, **settings) as place:
        async with contextlib.AsyncExitStack() as stack:
            marks = [await talk(place, keys["acme"], stack), SECRET]
            assert len(holders_of(marks)) > 10, "the search finds what is there"
            async with place.http(keys["acme"]) as http:
                assert (await state(http, "acme", "DELETE"))["left"] == []
        assert place.app.manager is not None
        for played in (engine, place.app.manager.perception):
            # Engine and perception are played: what these write down for other tests is not the server's.
            for remembered in vars(played).values():
                if isinstance(remembered, list | dict):
                    remembered.clear()
        left = holders_of(marks, but=[globals()])
        async with asyncio.timeout(60):
            while left:  # what ends with its connection
                await asyncio.sleep(0.1)
                left = holders_of(marks, but=[globals()])
        assert left == []


async def test_one_session_can_be_removed_and_the_others_stay(tmp_path: Path) -> None:
    keys = make_tenants(tmp_path / "tenants.json", ["acme"])
    root = tmp_path / "recordings"
    async with contextlib.AsyncExitStack() as stack:
        place = await stack.enter_async_context(served(tenants_file=tmp_path / "tenants.json", record=root))
        first, second = await talk(place, keys["acme"], stack), await talk(place, keys["acme"], stack)
        async with place.http(keys["acme"]) as http:
            await written(http, f"acme/sessions/{first}", ("disk", "recording"))
            await written(http, f"acme/sessions/{second}", ("disk", "recording"))
            gone = await state(http, f"acme/sessions/{first}", "DELETE")
            assert ("memory", "session") in kinds(gone["held"])
            assert {one["name"] for one in gone["held"]} == {first}
            assert gone["left"] == []
            assert (await state(http, f"acme/sessions/{first}"))["held"] == []
            assert ("memory", "session") in kinds((await state(http, f"acme/sessions/{second}"))["held"])
        assert on_disk(root, first) == []
        assert on_disk(root, second)


async def test_a_server_without_keys_has_one_tenant_without_a_name() -> None:
    async with contextlib.AsyncExitStack() as stack:
        place = await stack.enter_async_context(served())
        await talk(place, "any", stack)
        async with place.http() as http:
            assert (await http.get("/v1/talkover/tenants")).json()["data"] == ["-"]
            assert ("memory", "session") in kinds((await state(http, "-"))["held"])
            assert (await state(http, "-", "DELETE"))["left"] == []
            assert place.app.sessions == 0


async def test_the_keys_of_options_are_one_tenants() -> None:
    keys = ("key-one-of-the-tests-0123", "key-two-of-the-tests-0123")
    for order in (keys, keys[::-1]):
        async with contextlib.AsyncExitStack() as stack:
            place = await stack.enter_async_context(served(api_keys=order))
            await talk(place, keys[0], stack)
            async with place.http(keys[1]) as http:
                assert (await http.get("/v1/talkover/tenants")).json()["data"] == [HOUSE]
                assert ("memory", "session") in kinds((await state(http, HOUSE))["held"])


# --- Redis -----------------------------------------------------------------------------------------------------------


def everything(url: str) -> dict[bytes, list[bytes]]:
    """Every key of Redis and all that it holds."""
    import redis as client

    found: dict[bytes, list[bytes]] = {}
    with client.Redis.from_url(url) as connection:
        for key in connection.scan_iter():
            kind = connection.type(key)
            if kind == b"hash":
                found[key] = [part for pair in connection.hgetall(key).items() for part in pair]
            elif kind == b"list":
                found[key] = connection.lrange(key, 0, -1)
            elif kind == b"zset":
                found[key] = connection.zrange(key, 0, -1)
            else:
                found[key] = [connection.get(key) or b""]
    return found


def shows(found: Mapping[bytes, list[bytes]], mark: str) -> list[bytes]:
    return [key for key, held in found.items() if mark.encode() in key or any(mark.encode() in one for one in held)]


@needs_redis
async def test_nothing_in_redis_shows_what_was_deleted_wherever_its_owner_is(
    tmp_path: Path, redis: RedisServer
) -> None:
    file = tmp_path / "tenants.json"
    keys = make_tenants(file, ["acme", "bolt"])
    settings: dict[str, Any] = {"tenants_file": file, "directory": redis.url, "resume_grace_s": 60}
    async with contextlib.AsyncExitStack() as stack:
        here, there = [await stack.enter_async_context(served(**settings)) for _ in range(2)]
        own, elsewhere = await talk(here, keys["acme"], stack), await talk(there, keys["acme"], stack)
        theirs = await talk(there, keys["bolt"], stack)
        async with here.http(keys["acme"]) as http, there.http(keys["bolt"]) as other:

            async def kept() -> bool:
                held = (await state(http, "acme"))["held"]
                names = {one["name"] for one in held if one["place"] == "directory"}
                return names == {own, elsewhere} and len(shows(everything(redis.url), SECRET)) >= 3

            await until(kept)
            await written(other, "bolt", ("directory", "session"))
            assert (await state(http, "acme", "DELETE"))["left"] == []
        manager = there.app.manager
        assert manager is not None

        async def learned() -> bool:
            return elsewhere not in manager  # its owner learns it with its next write

        await until(learned)
        found = everything(redis.url)
        assert shows(found, "acme") == []
        left = shows(found, own) + shows(found, elsewhere)
        assert all(set(found[key]) <= {b"incarnation", b"1", b"owner", b"tokens", b""} for key in left), left
        assert shows(found, theirs)
        assert theirs in manager
