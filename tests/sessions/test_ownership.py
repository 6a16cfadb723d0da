"""The directory of sessions: what every one of them owes, in memory and in a real Redis."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from server.redis_ownership import RedisOwnership
from sessions.ownership import (
    DirectoryDown,
    Lease,
    MemoryDirectory,
    OwnershipInMemory,
    OwnershipPort,
    Write,
)
from sessions.ports import Busy, NotResumable
from tests.redis_server import RedisServer, needs_redis

Owners = Callable[[], OwnershipPort]

TTL = 0.15
"""Seconds, so short that a test can outlive it."""


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with tempfile.TemporaryDirectory(prefix="r") as folder, RedisServer(Path(folder)) as server:
        yield server


@pytest.fixture(params=["memory", pytest.param("redis", marks=needs_redis)])
async def owner(request: pytest.FixtureRequest) -> AsyncIterator[Owners]:
    """Makes processes that share a directory."""
    made: list[OwnershipPort] = []
    directory = MemoryDirectory(ttl=5.0)

    def make() -> OwnershipPort:
        if request.param == "memory":
            made.append(OwnershipInMemory(directory))
        else:
            made.append(RedisOwnership(request.getfixturevalue("redis").url, ttl=5.0, prefix=request.node.name))
        return made[-1]

    yield make
    for port in made:
        await port.close()


async def kept(port: OwnershipPort, session: str = "sess_1") -> Lease:
    lease = await port.claim(session, "acme", "token-1", None)
    await port.write([Write(lease, (), b"snapshot-1")])
    await port.write([Write(lease, (b"a", b"b"))])
    await port.write([Write(lease, (b"c",))])
    return lease


async def test_another_owner_gets_the_snapshot_and_everything_since(owner: Owners) -> None:
    first, second = owner(), owner()
    lease = await kept(first)
    await first.hand_over(lease)
    taken = await second.take_over("sess_1", "acme", "token-1", "token-2")
    assert taken.lease == Lease("sess_1", 2)
    assert (taken.snapshot, taken.entries) == (b"snapshot-1", (b"a", b"b", b"c"))


async def test_a_snapshot_replaces_what_was_kept_before_it(owner: Owners) -> None:
    first, second = owner(), owner()
    lease = await kept(first)
    await first.write([Write(lease, (b"d",), b"snapshot-2")])
    await first.hand_over(lease)
    taken = await second.take_over("sess_1", "acme", "token-1", "token-2")
    assert (taken.snapshot, taken.entries) == (b"snapshot-2", (b"d",))


async def test_a_former_owner_changes_nothing_and_is_told(owner: Owners) -> None:
    first, second = owner(), owner()
    lease = await kept(first)
    await first.hand_over(lease)
    taken = await second.take_over("sess_1", "acme", "token-1", "token-2")
    written = await first.write([Write(lease, (b"late",), b"late")])
    assert written.lost == (lease,)
    assert (await first.write([Write(lease)])).lost == (lease,)
    await first.tokens(lease, ["mine"])
    await first.release(lease)
    assert (await second.write([Write(taken.lease, (b"d",))])).lost == ()
    await second.hand_over(taken.lease)
    again = await first.take_over("sess_1", "acme", "token-2", "token-3")
    assert again.lease.incarnation == 3
    assert again.entries == (b"a", b"b", b"c", b"d")


async def test_only_who_has_a_good_token_of_the_same_tenant_takes_over(owner: Owners) -> None:
    first, second = owner(), owner()
    lease = await kept(first)
    await first.hand_over(lease)
    with pytest.raises(NotResumable) as refused:
        await second.take_over("sess_1", "acme", "guessed", "token-2")
    assert refused.value.code == "invalid_token"
    for session, tenant in (("sess_1", "other"), ("sess_2", "acme")):
        with pytest.raises(NotResumable) as refused:
            await second.take_over(session, tenant, "token-1", "token-2")
        assert refused.value.code == "unknown_session"


async def test_tokens_rotate(owner: Owners) -> None:
    first, second = owner(), owner()
    lease = await kept(first)
    await first.tokens(lease, ["token-2"])
    await first.hand_over(lease)
    with pytest.raises(NotResumable):
        await second.take_over("sess_1", "acme", "token-1", "x")
    taken = await second.take_over("sess_1", "acme", "token-2", "token-3")
    # The client may not have got the answer: the token that it came with holds until it has shown that it did.
    await second.hand_over(taken.lease)
    again = await first.take_over("sess_1", "acme", "token-2", "token-4")
    await first.tokens(again.lease, ["token-4"])
    await first.hand_over(again.lease)
    with pytest.raises(NotResumable):
        await second.take_over("sess_1", "acme", "token-2", "x")
    assert (await second.take_over("sess_1", "acme", "token-4", "x")).lease.incarnation == 4


async def test_a_session_that_is_over_cannot_be_taken(owner: Owners) -> None:
    first, second = owner(), owner()
    lease = await kept(first)
    await first.release(lease)
    with pytest.raises(NotResumable) as refused:
        await second.take_over("sess_1", "acme", "token-1", "token-2")
    assert refused.value.code == "unknown_session"


async def test_an_owner_that_lives_is_asked_to_hand_over(owner: Owners) -> None:
    first, second = owner(), owner()
    lease = await kept(first)
    handing: list[asyncio.Task[None]] = []

    async def hand_over() -> None:
        await first.write([Write(lease, (b"last",))])
        await first.hand_over(lease)

    def wanted(session: str) -> None:
        assert session == "sess_1"
        handing.append(asyncio.create_task(hand_over()))

    first.on_wanted(wanted)
    taken = await second.take_over("sess_1", "acme", "token-1", "token-2")
    assert taken.entries == (b"a", b"b", b"c", b"last")
    assert len(handing) == 1


async def test_an_owner_that_does_not_answer_is_not_waited_for_long(owner: Owners) -> None:
    first, second = owner(), owner()
    lease = await kept(first)
    first.on_wanted(lambda session: None)
    taken = await second.take_over("sess_1", "acme", "token-1", "token-2")
    assert taken.lease.incarnation == 2
    assert (await first.write([Write(lease)])).lost == (lease,)


async def test_a_tenant_has_as_many_sessions_as_it_may_over_all_processes(owner: Owners) -> None:
    first, second = owner(), owner()
    one = await first.claim("sess_1", "acme", "t", 2)
    await second.claim("sess_2", "acme", "t", 2)
    await second.claim("sess_3", "other", "t", 2)
    with pytest.raises(Busy, match="all 2 sessions"):
        await second.claim("sess_4", "acme", "t", 2)
    await first.release(one)
    await second.claim("sess_4", "acme", "t", 2)


async def test_of_two_that_want_it_at_once_one_after_the_other_owns_it(owner: Owners) -> None:
    first, second, third = owner(), owner(), owner()
    lease = await kept(first)
    await first.hand_over(lease)
    takes = [port.take_over("sess_1", "acme", "token-1", f"next-{n}") for n, port in enumerate((second, third))]
    incarnations = sorted(taken.lease.incarnation for taken in await asyncio.gather(*takes))
    assert incarnations == [2, 3]


# --- Redis alone -----------------------------------------------------------------------------------------------------


@needs_redis
async def test_without_redis_every_call_says_so_and_all_goes_on_when_it_is_back(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="r") as folder:
        server = RedisServer(Path(folder))
        server.start()
        port = RedisOwnership(server.url)
        lease = await kept(port)
        server.kill()
        for call in (port.write([Write(lease)]), port.write([]), port.claim("s", "", "t", None), port.release(lease)):
            with pytest.raises(DirectoryDown):
                await call
        server.start()
        # It has forgotten everything: the owner is the owner again, and is asked for a snapshot.
        assert (await port.write([Write(lease)])).missing == (lease,)
        await port.tokens(lease, ["token-1"])
        await port.write([Write(lease, (b"d",), b"snapshot-2")])
        await port.hand_over(lease)
        other = RedisOwnership(server.url)
        assert (await other.take_over("sess_1", "acme", "token-1", "x")).entries == (b"d",)
        await port.close()
        await other.close()
        server.kill()


@needs_redis
async def test_a_session_without_a_snapshot_yet_cannot_be_taken(redis: RedisServer) -> None:
    first, second = RedisOwnership(redis.url, prefix="bare"), RedisOwnership(redis.url, prefix="bare")
    lease = await first.claim("sess_1", "acme", "token-1", None)
    await first.hand_over(lease)
    with pytest.raises(NotResumable) as refused:
        await second.take_over("sess_1", "acme", "token-1", "x")
    assert refused.value.code == "unknown_session"
    await first.close()
    await second.close()


@needs_redis
async def test_nothing_is_left_in_redis_of_what_nobody_renews(redis: RedisServer) -> None:
    port = RedisOwnership(redis.url, ttl=TTL, kept=TTL, prefix="gone")
    lease = await kept(port)
    keys = [key async for key in port._redis.scan_iter("gone:*")]
    assert len(keys) == 4
    assert all([await port._redis.pttl(key) > 0 for key in keys])
    await port.release(lease)
    assert [key async for key in port._redis.scan_iter("gone:*")] == [b"gone:{sess_1}"]
    assert await port._redis.hget("gone:{sess_1}", "owner") == b""
    await port.close()
