"""Waiting requests of many sessions, taken fairly."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from typing import Generic, Protocol, TypeVar


class Queued(Protocol):
    """A request as the queue sees it."""

    @property
    def session(self) -> str: ...

    @property
    def request(self) -> int: ...

    @property
    def final(self) -> bool:
        """A look (not final) waits behind every final request, and only the newest of a session is worth doing."""


J = TypeVar("J", bound=Queued)


class FairQueue(Generic[J]):
    """Final requests before looks; among either, sessions take turns and each session is first in, first out."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._final: OrderedDict[str, deque[J]] = OrderedDict()
        self._looks: OrderedDict[str, J] = OrderedDict()
        self._closed = False

    def __len__(self) -> int:
        with self._changed:
            return len(self._looks) + sum(len(waiting) for waiting in self._final.values())

    def put(self, job: J) -> J | None:
        """Add a job; a look takes the place, and the turn, of the session's older look, which is returned."""
        overtaken: J | None = None
        with self._changed:
            if job.final:
                self._final.setdefault(job.session, deque()).append(job)
            else:
                overtaken = self._looks.get(job.session)
                self._looks[job.session] = job
            self._changed.notify()
        return overtaken

    def take(self) -> J | None:
        """The next job; waits for one. None when the queue is closed."""
        with self._changed:
            while not self._closed:
                if self._final:
                    session, waiting = self._final.popitem(last=False)
                    job = waiting.popleft()
                    if waiting:
                        self._final[session] = waiting
                    return job
                if self._looks:
                    return self._looks.popitem(last=False)[1]
                self._changed.wait()
            return None

    def cancel(self, session: str, request: int) -> None:
        """Take out a job that still waits."""
        with self._changed:
            if (look := self._looks.get(session)) is not None and look.request == request:
                del self._looks[session]
            if (waiting := self._final.get(session)) is not None:
                kept = deque(job for job in waiting if job.request != request)
                if kept:
                    self._final[session] = kept
                else:
                    del self._final[session]

    def drop(self, session: str) -> None:
        """Take out everything of a session."""
        with self._changed:
            self._final.pop(session, None)
            self._looks.pop(session, None)

    def close(self) -> None:
        """Let every taker go, now and later."""
        with self._changed:
            self._closed = True
            self._final.clear()
            self._looks.clear()
            self._changed.notify_all()
