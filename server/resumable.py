"""Sessions of clients that asked for the duplex extensions: how they begin, and how a client comes back to one.

Such a client may say first what it wants: a session of its own, or the one that it lost. What that takes of a session
beyond its connection - its dialect, which holds what was said meanwhile, and the token of the newest connection - is
kept here for as long as the session lives.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
from collections.abc import Callable, MutableSet
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, cast

from starlette.websockets import WebSocket, WebSocketDisconnect

from sessions.core.records import Plain
from sessions.counters import Counters
from sessions.handle import SessionHandle
from sessions.manager import SessionManager
from sessions.ownership import DirectoryDown
from sessions.ports import Busy, CarrierPort, NotResumable

from .auth import INVALID_KEY
from .carriers.websocket import TRY_LATER, WebSocketCarrier
from .client_secrets import UsedUp
from .dialects.checks import Rejected
from .dialects.realtime import RealtimeDialect
from .dialects.realtime_duplex import RealtimeDuplexDialect, refusal
from .dialects.realtime_duplex_in import Resume, resumption

log = logging.getLogger(__name__)

FIRST_MESSAGE_WITHIN: Final = 10.0
"""Seconds that a client has to say what it wants, where it said that it would."""

DUPLEX: Final = "duplex"
"""Of a session's note: that it is this kind of client's."""
EXPIRED: Final = "session_resume_expired"
_POLICY: Final = 1008
"""Close code: what was said first cannot be done (RFC 6455 section 7.4.1)."""


@dataclass(slots=True)
class _Kept:
    """`previous`: the token before the newest, which holds as long as the client has not shown that it got that."""

    dialect: RealtimeDuplexDialect
    handle: SessionHandle
    previous: str | None = None

    def knows(self, token: str) -> bool:
        given = token.encode("utf-8", "surrogatepass")
        newest = secrets.compare_digest(self.handle.resume_token.encode(), given)
        if self.previous is None or self.dialect.spoken_to:
            return newest
        return newest or secrets.compare_digest(self.previous.encode(), given)


class Resumables:
    """All sessions of this process that a client may come back to. Methods are called on the event loop."""

    def __init__(
        self, counters: Counters, carriers: MutableSet[WebSocketCarrier], message_most: Callable[[str], int]
    ) -> None:
        """`carriers`: where the carriers are that run. `message_most`: how long a tenant's messages may be."""
        self._message_most = message_most
        self._counters = counters
        self._carriers = carriers
        self._kept: dict[str, _Kept] = {}
        self._forgetting: set[asyncio.Task[None]] = set()

    def of(self, tenant: str) -> dict[str, str]:
        """The sessions of a tenant whose clients may come back, by themselves."""
        return {name: name for name, kept in self._kept.items() if kept.dialect.config.tenant == tenant}

    def __len__(self) -> int:
        return len(self._kept)

    async def serve(
        self,
        socket: WebSocket,
        dialect: RealtimeDuplexDialect,
        manager: SessionManager,
        first: str | bytes | None,
        opening: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """Serve an accepted `socket` to its end. `first`: what the client said first, where it was waited for.

        `dialect`: for a session of its own; `opening` is around its opening and raises UsedUp.
        """
        try:
            wanted = None if first is None else resumption(first)
        except Rejected as why:
            await refuse(socket, why.code, why.message, why.param)
            return
        if wanted is not None:
            if dialect.resumable:
                await self._resume(socket, wanted, manager, dialect)
            else:
                message = "sessions end with their connection here; begin a new one"
                await refuse(socket, "unsupported_session_resume", message, "type")
            return
        carrier = self._carrier(socket, dialect)
        try:
            with opening():
                handle = manager.open(carrier, dialect.config)
        except Busy as busy:
            self._counters.add("sessions_refused")
            await refuse(socket, busy.code, str(busy), close=TRY_LATER)
            return
        except UsedUp as used:
            self._counters.add("access_denied")
            await refuse(socket, INVALID_KEY, str(used))
            return
        dialect.attach(handle.session, handle.resume_token, handle.attachment)
        if dialect.resumable:
            self._keep(_Kept(dialect, handle))
        await self._run(carrier, handle, first)

    async def _resume(
        self, socket: WebSocket, wanted: Resume, manager: SessionManager, dialect: RealtimeDuplexDialect
    ) -> None:
        """`dialect`: the connection's own, which goes on with the session where that is another process's."""
        kept = self._kept.get(wanted.session)
        if kept is None:
            await self._recover(socket, wanted, manager, dialect)
        elif not kept.knows(wanted.token) or kept.dialect.config.tenant != dialect.config.tenant:
            message = "the resume token is not the newest one of this session, or the API key is not the session's"
            await refuse(socket, "invalid_resume_token", message, "resume_token")
        elif wanted.after > kept.dialect.outbox.last:
            message = f"event {wanted.after} was never sent in this session"
            await refuse(socket, "session_resume_conflict", message, "last_received_server_event_seq")
        elif wanted.after + 1 < kept.dialect.outbox.first:
            lost = {"type": "session.resync_required", "session_id": wanted.session, "reason": "journal_gap"}
            await _say(socket, {"event_id": "event_0", **lost}, 1000)
        else:
            await self._join(socket, wanted, kept, manager)

    async def _recover(
        self, socket: WebSocket, wanted: Resume, manager: SessionManager, dialect: RealtimeDuplexDialect
    ) -> None:
        """Another process has the session, or had it."""
        dialect.outbox.go_on(wanted.after)
        carrier = self._carrier(socket, dialect, joins=True)
        try:
            handle = await go_on(manager, wanted.session, wanted.token, dialect, DUPLEX, carrier)
        except NotResumable as why:
            if why.code == "invalid_token":
                await refuse(socket, "invalid_resume_token", str(why), "resume_token")
            else:
                await refuse(socket, EXPIRED, str(why), "session_id")
        except Busy as why:
            await refuse(socket, "server_busy", str(why), close=TRY_LATER)
        except DirectoryDown as why:
            log.warning("session %s is not taken over: %s", wanted.session, why)
            await refuse(socket, "server_busy", "no session can be taken over now; try again soon", close=TRY_LATER)
        else:
            dialect.attach(handle.session, handle.resume_token, handle.attachment, wanted.after)
            self._keep(_Kept(dialect, handle, wanted.token))
            await self._run(carrier, handle, None)

    async def _join(self, socket: WebSocket, wanted: Resume, kept: _Kept, manager: SessionManager) -> None:
        carrier = self._carrier(socket, kept.dialect, joins=True)
        newest = kept.handle.resume_token
        try:
            handle = manager.attach(wanted.session, newest, carrier)
        except NotResumable as why:
            await refuse(socket, EXPIRED, str(why), "session_id")
            return
        kept.handle, kept.previous = handle, newest
        kept.dialect.attach(handle.session, handle.resume_token, handle.attachment, wanted.after)
        kept.dialect.changed()
        await self._run(carrier, handle, None)

    def _carrier(self, socket: WebSocket, dialect: RealtimeDuplexDialect, joins: bool = False) -> WebSocketCarrier:
        most = self._message_most(dialect.config.tenant)
        return WebSocketCarrier(socket, dialect, self._counters, max_message=most, joins=joins)

    async def _run(self, carrier: WebSocketCarrier, handle: SessionHandle, first: str | bytes | None) -> None:
        self._carriers.add(carrier)
        try:
            await carrier.run(handle, first)
        finally:
            self._carriers.discard(carrier)

    def _keep(self, kept: _Kept) -> None:
        self._kept[kept.handle.session] = kept
        keep_noted(kept.dialect, lambda: kept.handle, DUPLEX)
        task = asyncio.create_task(self._forget(kept.handle), name=f"{kept.handle.session}-kept")
        self._forgetting.add(task)
        task.add_done_callback(self._forgetting.discard)

    async def _forget(self, handle: SessionHandle) -> None:
        await handle.closed()
        del self._kept[handle.session]


async def go_on(
    manager: SessionManager, session: str, token: str, dialect: RealtimeDialect, kind: str, carrier: CarrierPort
) -> SessionHandle:
    """Go on with another process's session, with `carrier` and its `dialect`, which recalls what was noted.

    `kind`: of the clients that come back to such sessions. Raises NotResumable, Busy, DirectoryDown.
    """
    found = await manager.recover(session, dialect.config.tenant, token)
    try:
        dialect.recall(_noted(found.note, kind))
    except Rejected as why:
        manager.keeper.let_go(found)
        raise NotResumable("unknown_session", f"{why.message}; begin a new one") from why
    return manager.go_on(found, carrier)


def keep_noted(dialect: RealtimeDialect, handle: Callable[[], SessionHandle], kind: str) -> None:
    """Keep with the session, from now on, what `go_on` needs of its dialect. `handle`: of the newest connection."""

    def note() -> Plain:
        return {"kind": kind, "dialect": cast(Plain, dialect.note())}

    def keep() -> None:
        handle().note(note)

    dialect.changed = keep
    keep()


def _noted(note: Plain, kind: str) -> Plain:
    """What the dialect noted of a session that clients of `kind` come back to. Raises Rejected."""
    if not isinstance(note, dict) or note.get("kind") != kind:
        raise Rejected("invalid_value", f"the session was not begun by a client of the kind {kind!r}", "session_id")
    return note.get("dialect")


async def first_message(socket: WebSocket) -> str | bytes | None:
    """What the client of an accepted `socket` says first; None where it left, or said nothing and was told so."""
    try:
        async with asyncio.timeout(FIRST_MESSAGE_WITHIN):
            message = await socket.receive()
    except TimeoutError:
        wait = f"{FIRST_MESSAGE_WITHIN:.0f} s"
        await refuse(socket, "config_timeout", f"nothing was said for {wait}; begin with session.update")
        return None
    if message["type"] == "websocket.disconnect":
        return None
    text = message.get("text")
    said: str | bytes = message["bytes"] if text is None else text
    return said


async def refuse(socket: WebSocket, code: str, message: str, param: str | None = None, close: int = _POLICY) -> None:
    """Tell the client of an accepted `socket` that it gets no session, and close."""
    await _say(socket, {"event_id": "event_0", **refusal(code, message, param)}, close)


async def _say(socket: WebSocket, event: dict[str, object], close: int) -> None:
    # A peer that left in the meantime has nothing to be told.
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):
        await socket.send_text(json.dumps(event, separators=(",", ":")))
        await socket.close(close)
