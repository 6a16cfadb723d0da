"""All sessions of a process: beginning, joining, ending. Each runs by itself in a `Runner`."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from .core.config import SessionConfig
from .core.events import Close
from .core.records import Plain
from .core.timeline import Ticks
from .counters import Counters
from .crossing import Crossing
from .figures import Figure
from .handle import SessionHandle
from .journal import Recorder
from .keeper import Keeper, Recovered
from .mailbox import Mail
from .ownership import unknown, wrong_token
from .ports import Busy, CarrierPort, EnginePort, PerceptionPort, Repeats
from .runner import Runner


class Observer(Protocol):
    """Is told how the conversations go. `now`: session time in ticks."""

    def opened(self, session: str, now: Ticks) -> None: ...

    def figures(self, session: str, figures: Sequence[Figure]) -> None: ...

    def closed(self, session: str) -> None: ...


class SessionManager:
    """All sessions of this process. Methods are called on the event loop."""

    def __init__(
        self,
        engine: EnginePort,
        perception: PerceptionPort,
        *,
        counters: Counters | None = None,
        recorder: Recorder | None = None,
        incarnation: int = 1,
        max_sessions: int | None = None,
        keeper: Keeper | None = None,
        observer: Observer | None = None,
        tenant_sessions: Callable[[str], int | None] = lambda tenant: None,
        engine_named: Mapping[str, Plain] | None = None,
    ) -> None:
        """`keeper`: what keeps the sessions' leases; `observer`: told of their figures; `tenant_sessions`: how many a
        tenant may have, over all processes that share a directory; raises Busy where it may begin none now;
        `engine_named`: which engine it is, for recordings."""
        self.engine = engine
        self.perception = perception
        self.counters = counters or Counters()
        self.recorder = recorder
        self.incarnation = incarnation
        self.max_sessions = max_sessions
        self.keeper = keeper or Keeper(counters=self.counters)
        self.observer = observer
        self.tenant_sessions = tenant_sessions
        self._engine_named = engine_named or {}
        self.crossing = Crossing()
        self._runners: dict[str, Runner] = {}
        self._closing = False

    def engine_told(self, session: str) -> dict[str, Plain]:
        """What a recording of `session` says of its engine, so that it can be run again."""
        own = self.engine.origin(session) if isinstance(self.engine, Repeats) else {}
        return {**self._engine_named, **own}

    def __len__(self) -> int:
        return len(self._runners)

    def __contains__(self, session: object) -> bool:
        return session in self._runners

    def runners(self) -> Iterator[Runner]:
        """Every session that there is."""
        yield from list(self._runners.values())

    @property
    def waiting(self) -> int:
        """Mails that wait, over all sessions."""
        return sum(len(runner.mailbox) for runner in self._runners.values())

    def open(self, carrier: CarrierPort, config: SessionConfig) -> SessionHandle:
        """Begin a session on `carrier`. Raises `Busy` at once when there is no room."""
        self.check_room()
        limit = self.tenant_sessions(config.tenant)
        session = f"sess_{secrets.token_hex(8)}"
        runner = Runner(self, session, carrier, config)
        runner.begin()
        try:
            keeping = self.keeper.begin(runner, config.tenant, runner.token, limit, resumable=config.grace > 0)
        except Busy as why:
            runner.refused(why)
            raise
        runner.keep(keeping)
        return self._begun(runner, "sessions_opened")

    @property
    def full(self) -> bool:
        """Whether another session would be refused for want of room."""
        try:
            self.check_room()
        except Busy:
            return True
        return False

    def check_room(self) -> None:
        """Raises Busy where another session would be refused."""
        if self._closing:
            raise Busy("the server is shutting down; connect to another one", retry_after=5.0)
        if self.max_sessions is not None and len(self._runners) >= self.max_sessions:
            raise Busy(f"all {self.max_sessions} sessions are in use; try again soon", retry_after=5.0)

    def _begun(self, runner: Runner, counter: str) -> SessionHandle:
        self._runners[runner.session] = runner
        self.counters.add(counter)
        if self.observer is not None:
            self.observer.opened(runner.session, runner.now)
        return runner.handle()

    async def recover(self, session: str, tenant: str, token: str) -> Recovered:
        """Take a session of another process, whether that lives or not; `go_on` lets it go on here.

        `token`: of its newest carrier, or of the one before where the newest has shown nothing yet. Raises
        NotResumable, Busy, DirectoryDown.
        """
        self.check_room()
        return await self.keeper.recover(session, tenant, token, secrets.token_urlsafe(24))

    def go_on(self, found: Recovered, carrier: CarrierPort) -> SessionHandle:
        """Go on with what `recover` gave. Raises Busy; then another process may go on with it."""
        lease = found.taken.lease
        try:
            self.check_room()
            runner = Runner(self, lease.session, carrier, found.core.state.config, found.core)
            runner.go_on(lease.incarnation, found.tokens[0])
        except Busy:
            self.keeper.let_go(found)
            raise
        runner.keep(self.keeper.go_on(runner, found.core.state.config.tenant, found))
        return self._begun(runner, "sessions_taken_over")

    def attach(self, session: str, token: str, carrier: CarrierPort) -> SessionHandle:
        """Join `carrier` to a living session; the one before, if it still has one, is told `end("replaced")`.

        `token`: the `resume_token` of the session's newest handle; the new handle has another. Raises NotResumable.
        """
        runner = self._runners.get(session)
        if runner is None:
            raise unknown(session)
        if not secrets.compare_digest(runner.token.encode(), token.encode("utf-8", "surrogatepass")):
            raise wrong_token()
        runner.join(carrier)
        self.counters.add("sessions_resumed")
        return runner.handle()

    def forget(self, session: str) -> None:
        if self._runners.pop(session, None) is not None:
            self.counters.add("sessions_closed")
            self.keeper.end(session)
            if self.observer is not None:
                self.observer.closed(session)

    async def drain(self, patience: float) -> None:
        """Take no more sessions, and give those that there are `patience` seconds to end by themselves."""
        self._closing = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                for runner in list(self._runners.values()):
                    await runner.done.wait()

    async def close(self, reason: str = "server_shutdown") -> None:
        """End all sessions, or hand them over to whoever their clients come back to, and wait for it; further ones are
        refused."""
        self._closing = True
        await self.keeper.hand_over_all()
        runners = list(self._runners.values())
        for runner in runners:
            runner.put(Mail(Close(reason)))
        await asyncio.gather(*(runner.done.wait() for runner in runners))
        await self.keeper.close()
        if self.recorder is not None:
            await asyncio.to_thread(self.recorder.close)
