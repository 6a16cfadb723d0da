"""All sessions of a process: beginning, joining, ending. Each runs by itself in a `Runner`."""

from __future__ import annotations

import asyncio
import secrets

from .core.config import SessionConfig
from .core.events import Close
from .counters import Counters
from .crossing import Crossing
from .handle import SessionHandle
from .journal import Recorder
from .mailbox import Mail
from .ports import Busy, CarrierPort, EnginePort, NotResumable, PerceptionPort
from .runner import Runner


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
    ) -> None:
        self.engine = engine
        self.perception = perception
        self.counters = counters or Counters()
        self.recorder = recorder
        self.incarnation = incarnation
        self.max_sessions = max_sessions
        self.crossing = Crossing()
        self._runners: dict[str, Runner] = {}
        self._closing = False

    def __len__(self) -> int:
        return len(self._runners)

    @property
    def waiting(self) -> int:
        """Mails that wait, over all sessions."""
        return sum(len(runner.mailbox) for runner in self._runners.values())

    def open(self, carrier: CarrierPort, config: SessionConfig) -> SessionHandle:
        """Begin a session on `carrier`. Raises `Busy` at once when there is no room."""
        if self._closing:
            raise Busy("the server is shutting down; connect to another one", retry_after=5.0)
        if self.max_sessions is not None and len(self._runners) >= self.max_sessions:
            raise Busy(f"all {self.max_sessions} sessions are in use; try again soon", retry_after=5.0)
        session = f"sess_{secrets.token_hex(8)}"
        runner = Runner(self, session, carrier, config)
        runner.begin()
        self._runners[session] = runner
        self.counters.add("sessions_opened")
        return runner.handle()

    def attach(self, session: str, token: str, carrier: CarrierPort) -> SessionHandle:
        """Join `carrier` to a living session; the one before, if it still has one, is told `end("replaced")`.

        `token`: the `resume_token` of the session's newest handle; the new handle has another. Raises NotResumable.
        """
        runner = self._runners.get(session)
        if runner is None:
            raise NotResumable("unknown_session", f"there is no session {session!r} any more; begin a new one")
        if not secrets.compare_digest(runner.token.encode(), token.encode("utf-8", "surrogatepass")):
            raise NotResumable("invalid_token", "the resume token is not the newest one of this session")
        runner.join(carrier)
        self.counters.add("sessions_resumed")
        return runner.handle()

    def forget(self, session: str) -> None:
        if self._runners.pop(session, None) is not None:
            self.counters.add("sessions_closed")

    async def close(self, reason: str = "server_shutdown") -> None:
        """End all sessions and wait for them; further ones are refused."""
        self._closing = True
        runners = list(self._runners.values())
        for runner in runners:
            runner.put(Mail(Close(reason)))
        await asyncio.gather(*(runner.done.wait() for runner in runners))
        if self.recorder is not None:
            await asyncio.to_thread(self.recorder.close)
