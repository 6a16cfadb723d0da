"""The directory of sessions in Redis: leases, fencing tokens and the state to go on from.

Every change is one Lua script, so that reading who owns a session and acting on it cannot be torn apart. Times are
those of the Redis server: the clocks of the processes do not matter. Keys, for a session `ID`:

    talkover:{ID}            hash: incarnation, owner, tenant, tokens (SHA-256, newest first), until (ms)
    talkover:{ID}:snapshot   the newest snapshot of the core
    talkover:{ID}:entries    list: every event since
    talkover:tenant:NAME     sorted set: the tenant's sessions by the time when their leases run out
    talkover:wanted:OWNER    channel: ids of sessions that somebody else wants

A session that is over leaves its hash for a while, with no owner, so that a former owner that wakes up late finds that
it is over instead of taking it up again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias, TypeVar, cast

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from sessions.ownership import (
    HAND_OVER_WITHIN,
    DirectoryDown,
    Lease,
    Taken,
    Write,
    Written,
    digest,
    too_many,
    unknown,
    wrong_token,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

_Arguments: TypeAlias = "list[str | bytes | int | float]"

TTL: Final = 6.0
"""Seconds that a lease holds without renewal."""
KEPT: Final = 120.0
"""Seconds that a session whose owner is gone can still be taken over."""
ANSWER_WITHIN: Final = 1.0
"""Seconds that Redis has to answer before it counts as unreachable."""
TOMBSTONE: Final = 600.0

_NOW = """
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
"""

_CLAIM: Final = (
    _NOW
    + """
-- KEYS: hash, tenant set. ARGV: session, owner, tenant, token, ttl ms, kept ms, limit (or -1)
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
local limit = tonumber(ARGV[7])
if limit >= 0 and redis.call('ZCARD', KEYS[2]) >= limit then return 0 end
redis.call('HSET', KEYS[1], 'incarnation', 1, 'owner', ARGV[2], 'tenant', ARGV[3], 'tokens', ARGV[4],
           'until', now + ARGV[5])
redis.call('PEXPIRE', KEYS[1], ARGV[5] + ARGV[6])
redis.call('ZADD', KEYS[2], now + ARGV[5], ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[5] + ARGV[6])
return 1
"""
)

_TAKE: Final = (
    _NOW
    + """
-- KEYS: hash, snapshot, entries, tenant set. ARGV: session, owner, tenant, token, next token, ttl ms, kept ms, force
local h = redis.call('HMGET', KEYS[1], 'incarnation', 'owner', 'tenant', 'tokens', 'until')
if not h[1] or h[2] == '' or h[3] ~= ARGV[3] then return {'unknown'} end
local good = false
for token in string.gmatch(h[4], '%S+') do good = good or token == ARGV[4] end
if not good then return {'token'} end
if h[2] ~= ARGV[2] and h[2] ~= '-' and tonumber(h[5]) > now and ARGV[8] == '0' then return {'owned', h[2]} end
if redis.call('EXISTS', KEYS[2]) == 0 then return {'unknown'} end
local incarnation = h[1] + 1
redis.call('HSET', KEYS[1], 'incarnation', incarnation, 'owner', ARGV[2], 'until', now + ARGV[6],
           'tokens', ARGV[4] .. ' ' .. ARGV[5])
for i = 1, 3 do redis.call('PEXPIRE', KEYS[i], ARGV[6] + ARGV[7]) end
redis.call('ZADD', KEYS[4], now + ARGV[6], ARGV[1])
return {'taken', incarnation, redis.call('GET', KEYS[2]), redis.call('LRANGE', KEYS[3], 0, -1)}
"""
)

_WRITE: Final = (
    _NOW
    + """
-- KEYS: hash, snapshot, entries, tenant set. ARGV: session, incarnation, owner, tenant, ttl ms, kept ms,
--       1 if the next is a snapshot (else 0), [snapshot], entries ...
local h = redis.call('HMGET', KEYS[1], 'incarnation', 'owner')
local answer = 1
if not h[1] then
  redis.call('HSET', KEYS[1], 'incarnation', ARGV[2], 'owner', ARGV[3], 'tenant', ARGV[4], 'tokens', '')
  answer = 2
elseif h[1] ~= ARGV[2] or h[2] ~= ARGV[3] then
  return 0
end
redis.call('HSET', KEYS[1], 'until', now + ARGV[5])
local first = 8
if ARGV[7] == '1' then
  redis.call('SET', KEYS[2], ARGV[8])
  redis.call('DEL', KEYS[3])
  first = 9
end
for i = first, #ARGV do redis.call('RPUSH', KEYS[3], ARGV[i]) end
for i = 1, 3 do redis.call('PEXPIRE', KEYS[i], ARGV[5] + ARGV[6]) end
redis.call('ZADD', KEYS[4], now + ARGV[5], ARGV[1])
redis.call('PEXPIRE', KEYS[4], ARGV[5] + ARGV[6])
return answer
"""
)

_TOKENS: Final = """
-- KEYS: hash. ARGV: incarnation, owner, tokens
local h = redis.call('HMGET', KEYS[1], 'incarnation', 'owner')
if h[1] == ARGV[1] and h[2] == ARGV[2] then redis.call('HSET', KEYS[1], 'tokens', ARGV[3]) end
return 1
"""

_LEAVE: Final = """
-- KEYS: hash, snapshot, entries, tenant set. ARGV: session, incarnation, owner, 1 if it is over, tombstone ms
local h = redis.call('HMGET', KEYS[1], 'incarnation', 'owner')
if h[1] ~= ARGV[2] or h[2] ~= ARGV[3] then return 0 end
if ARGV[4] == '1' then
  redis.call('HSET', KEYS[1], 'owner', '', 'tokens', '')
  redis.call('PEXPIRE', KEYS[1], ARGV[5])
  redis.call('DEL', KEYS[2], KEYS[3])
  redis.call('ZREM', KEYS[4], ARGV[1])
else
  redis.call('HSET', KEYS[1], 'owner', '-', 'until', 0)
end
return 1
"""


_ERASE: Final = """
-- KEYS: hash, snapshot, entries, tenant set. ARGV: session, tombstone ms
redis.call('DEL', KEYS[2], KEYS[3])
redis.call('ZREM', KEYS[4], ARGV[1])
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('HSET', KEYS[1], 'owner', '', 'tokens', '')
redis.call('HDEL', KEYS[1], 'tenant', 'until')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
"""


class RedisOwnership:
    """One process's view of the directory."""

    shared = True

    def __init__(self, url: str, *, ttl: float = TTL, kept: float = KEPT, prefix: str = "talkover") -> None:
        """`url`: redis://, rediss:// or unix://. Nothing is connected yet. Raises ValueError for another scheme."""
        self.ttl = ttl
        self.owner = secrets.token_hex(8)
        self._prefix = prefix
        self._kept = kept
        self._redis: Redis = Redis.from_url(
            url,
            socket_timeout=ANSWER_WITHIN,
            socket_connect_timeout=ANSWER_WITHIN,
            # A connection that broke while this process slept says nothing about Redis: try once more.
            retry=Retry(ExponentialBackoff(cap=0.05, base=0.01), 1),
            retry_on_error=[RedisConnectionError],
        )
        self._claim = self._redis.register_script(_CLAIM)
        self._take = self._redis.register_script(_TAKE)
        self._write = self._redis.register_script(_WRITE)
        self._tokens = self._redis.register_script(_TOKENS)
        self._leave = self._redis.register_script(_LEAVE)
        self._erase = self._redis.register_script(_ERASE)
        self._tenants: dict[str, str] = {}
        self._wanted: Callable[[str], None] = lambda session: None
        self._listening: asyncio.Task[None] | None = None
        self._closed = False

    # --- keys ------------------------------------------------------------------------------------------------------

    def _hash(self, session: str) -> str:
        return f"{self._prefix}:{{{session}}}"

    def _tenant(self, tenant: str) -> str:
        return f"{self._prefix}:tenant:{tenant}"

    def _keys(self, session: str) -> list[str]:
        base = self._hash(session)
        return [base, f"{base}:snapshot", f"{base}:entries", self._tenant(self._tenants.get(session, ""))]

    def _channel(self, owner: str) -> str:
        return f"{self._prefix}:wanted:{owner}"

    def _times(self) -> tuple[int, int]:
        return round(self.ttl * 1000), round(self._kept * 1000)

    # --- the port --------------------------------------------------------------------------------------------------

    async def claim(self, session: str, tenant: str, token: str, limit: int | None) -> Lease:
        self._listen()
        keys = [self._hash(session), self._tenant(tenant)]
        wanted = -1 if limit is None else limit
        arguments: _Arguments = [session, self.owner, tenant, digest(token), *self._times(), wanted]
        if not await _asked(self._claim(keys, arguments)):
            raise too_many(wanted)
        self._tenants[session] = tenant
        return Lease(session, 1)

    async def tokens(self, lease: Lease, good: Sequence[str]) -> None:
        arguments: _Arguments = [lease.incarnation, self.owner, " ".join(map(digest, good))]
        await _asked(self._tokens([self._hash(lease.session)], arguments))

    async def take_over(self, session: str, tenant: str, token: str, next_token: str) -> Taken:
        self._listen()
        answer = await self._try(session, tenant, token, next_token, force=False)
        if answer[0] == b"owned":
            owner = answer[1].decode()
            await _asked(self._redis.publish(self._channel(owner), session))
            answer = await self._patiently(session, tenant, token, next_token)
        match answer[0]:
            case b"taken":
                self._tenants[session] = tenant
                return Taken(Lease(session, int(answer[1])), answer[2], tuple(answer[3]))
            case b"token":
                raise wrong_token()
            case _:
                raise unknown(session)

    async def _patiently(self, session: str, tenant: str, token: str, next_token: str) -> list[Any]:
        """Until the owner has handed over or its time for that is up."""
        loop = asyncio.get_running_loop()
        until = loop.time() + HAND_OVER_WITHIN
        while True:
            answer = await self._try(session, tenant, token, next_token, force=loop.time() >= until)
            if answer[0] != b"owned":
                return answer
            await asyncio.sleep(0.02)

    async def _try(self, session: str, tenant: str, token: str, next_token: str, force: bool) -> list[Any]:
        base = self._hash(session)
        keys = [base, f"{base}:snapshot", f"{base}:entries", self._tenant(tenant)]
        tokens = [digest(token), digest(next_token)]
        arguments: _Arguments = [session, self.owner, tenant, *tokens, *self._times(), int(force)]
        return cast("list[Any]", await _asked(self._take(keys, arguments)))

    async def write(self, writes: Sequence[Write]) -> Written:
        if not writes:
            await _asked(self._redis.ping())
            return Written()
        async with self._redis.pipeline(transaction=False) as pipeline:
            for write in writes:
                await self._queue(write, pipeline)
            answers = await _asked(pipeline.execute())
        lost = [write.lease for write, answer in zip(writes, answers, strict=True) if answer == 0]
        missing = [write.lease for write, answer in zip(writes, answers, strict=True) if answer == 2]
        for lease in lost:
            self._tenants.pop(lease.session, None)
        return Written(tuple(lost), tuple(missing))

    async def _queue(self, write: Write, pipeline: Redis) -> None:
        lease = write.lease
        head: _Arguments = [lease.session, lease.incarnation, self.owner]
        head += [self._tenants.get(lease.session, ""), *self._times()]
        body: _Arguments = [1, write.snapshot] if write.snapshot is not None else [0]
        await self._write(self._keys(lease.session), [*head, *body, *write.entries], client=pipeline)

    async def release(self, lease: Lease) -> None:
        await self._let_go(lease, over=True)

    async def hand_over(self, lease: Lease) -> None:
        await self._let_go(lease, over=False)

    async def _let_go(self, lease: Lease, over: bool) -> None:
        arguments: _Arguments = [lease.session, lease.incarnation, self.owner, int(over), round(TOMBSTONE * 1000)]
        await _asked(self._leave(self._keys(lease.session), arguments))
        self._tenants.pop(lease.session, None)

    # --- what is kept of a tenant ------------------------------------------------------------------------------------

    async def sessions_of(self, tenant: str) -> list[str]:
        """All sessions that the directory has of a tenant, whoever owns them, and those whose owner died. Goes through
        all keys. Raises DirectoryDown."""
        return await _asked(self._sessions_of(tenant))

    async def _sessions_of(self, tenant: str) -> list[str]:
        head, tail = f"{self._prefix}:{{", "}"
        found = []
        async for key in self._redis.scan_iter(match=f"{head}*{tail}", count=1000):
            name: str = key.decode("utf-8", "replace")
            if await cast("Awaitable[bytes | None]", self._redis.hget(name, "tenant")) == tenant.encode():
                found.append(name.removeprefix(head).removesuffix(tail))
        return found

    async def erase(self, session: str, tenant: str) -> None:
        """Nothing of the session is left but its id, for ten minutes, so that an owner who still writes is refused; by
        that it learns that the session is over. Raises DirectoryDown."""
        base = self._hash(session)
        keys = [base, f"{base}:snapshot", f"{base}:entries", self._tenant(tenant)]
        await _asked(self._erase(keys, [session, round(TOMBSTONE * 1000)]))

    async def erase_tenant(self, tenant: str) -> None:
        """Nothing of the tenant is left, whoever owns its sessions. Raises DirectoryDown."""
        for session in await self.sessions_of(tenant):
            await self.erase(session, tenant)
        await _asked(self._redis.delete(self._tenant(tenant)))

    # --- who wants a session of ours ---------------------------------------------------------------------------------

    def on_wanted(self, wanted: Callable[[str], None]) -> None:
        self._wanted = wanted

    def _listen(self) -> None:
        if self._listening is None:
            self._listening = asyncio.get_running_loop().create_task(self._hear(), name="redis-wanted")

    async def _hear(self) -> None:
        while not self._closed:
            try:
                async with self._redis.pubsub() as channel:
                    await channel.subscribe(self._channel(self.owner))
                    await self._hear_all(channel)
            except (RedisError, OSError):
                await asyncio.sleep(0.5)

    async def _hear_all(self, channel: PubSub) -> None:
        while not self._closed:
            message = await channel.get_message(ignore_subscribe_messages=True, timeout=ANSWER_WITHIN / 2)
            if message is not None:
                self._wanted(message["data"].decode("utf-8", "replace"))

    async def close(self) -> None:
        # The client has been seen to lose a cancellation, so the task looks for itself too.
        self._closed = True
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        with contextlib.suppress(RedisError, OSError):
            await self._redis.aclose()


async def _asked(answer: Awaitable[T]) -> T:
    """The answer of Redis. Raises DirectoryDown where none comes."""
    try:
        return await answer
    except (RedisConnectionError, RedisTimeoutError, OSError) as error:
        raise DirectoryDown(str(error) or type(error).__name__) from error
    except RedisError as error:
        # It answers, but not to us: loading its data, read only, out of memory, a wrong password.
        raise DirectoryDown(f"Redis refuses: {error}") from error
