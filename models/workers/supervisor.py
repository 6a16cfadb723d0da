"""The life of one worker: started, watched, started again after a crash, stopped."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from .backoff import Backoff
from .errors import WorkerChanged, WorkerError, WorkerLost, restored
from .link import Launch, Link
from .messages import Beat, Command, LoadFailed, Loading, Note, Ready, Stop

log = logging.getLogger(__name__)

State = Literal["starting", "ready", "restarting", "stopped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """When a worker counts as dead that did not end by itself, and what then. Lengths in seconds."""

    backoff: Backoff = field(default_factory=Backoff)
    silence: float = 5.0
    """Without a sign of life: it was stopped, or hangs as a whole."""
    stuck: float = 15.0
    """Without a tick while sessions are there: its device hangs."""
    loading: float = 600.0
    """Until it is ready."""
    stop: float = 5.0
    """That it has to end when it is asked to."""


@dataclass(frozen=True, slots=True)
class Vitals:
    """How a worker does. Ages in seconds; `tick_age` is None while it has nobody to tick for."""

    state: State
    pid: int | None
    restarts: int
    beat_age: float | None
    tick_age: float | None
    trouble: str
    """Why it is not there, or was not the last time; empty where it never was in trouble."""


class Supervisor:
    """Keeps one worker alive. `hear` gets all that the present one says, and `lost` is called when it is gone.

    Both are called with `lock` held, so that nothing of a worker is heard after it was lost. `counters`:
    "workers_lost", "workers_silent", "notes_stale".
    """

    def __init__(
        self,
        launch: Launch,
        hear: Callable[[Note], None],
        lost: Callable[[str], None],
        lock: threading.RLock,
        *,
        watch: Watch | None = None,
        progress: Callable[[str, float], None] | None = None,
    ) -> None:
        self._launch = launch
        self._hear = hear
        self._lost = lost
        self._progress = progress
        self._changed = threading.Condition(lock)
        self._watch = watch or Watch()
        self._link: Link | None = None
        self._generation = 0
        self._state: State = "starting"
        self._ready: Ready | None = None
        self._failure: Exception | None = None
        self._failures = 0
        self._restarts = 0
        self._since = self._beaten = time.monotonic()
        self._due = 0.0
        self._tick_age: float | None = None
        self._counters: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()
        """Counters of links that are gone."""
        self._thread: threading.Thread | None = None

    def start(self) -> Ready:
        """Start the worker and wait until it is ready. Raises the error that it met while loading, or WorkerError."""
        self._begin()
        until = time.monotonic() + self._watch.loading
        with self._changed:
            while self._ready is None and self._failure is None and self._state == "starting":
                if not self._changed.wait(max(0.0, until - time.monotonic())):
                    self._failure = WorkerError(f"the worker was not ready after {self._watch.loading:.0f} s")
            ready, failure = self._ready, self._failure
        if ready is None:
            self.stop()
            raise failure or WorkerError("the worker was stopped before it was ready")
        self._thread = threading.Thread(target=self._run, name="worker-watch", daemon=True)
        self._thread.start()
        return ready

    def send(self, command: Command) -> None:
        """Never waits; nothing happens while there is no worker."""
        with self._changed:
            if self._link is not None:
                self._link.send(command)

    def forget(self, session: str) -> None:
        """Frames of that session that still wait are not wanted any more."""
        with self._changed:
            if self._link is not None:
                self._link.forget(session)

    @property
    def ready(self) -> bool:
        with self._changed:
            return self._state == "ready"

    @property
    def waiting(self) -> int:
        """Messages that the worker has not taken yet."""
        with self._changed:
            return self._link.waiting if self._link is not None else 0

    @property
    def retry_after(self) -> float:
        """Seconds until there is probably a worker again."""
        with self._changed:
            return max(0.1, self._due - time.monotonic()) if self._state == "restarting" else 1.0

    @property
    def vitals(self) -> Vitals:
        with self._changed:
            alive = self._state == "ready"
            return Vitals(
                self._state,
                self._link.pid if self._link is not None else None,
                self._restarts,
                time.monotonic() - self._beaten if alive else None,
                self._tick_age if alive else None,
                str(self._failure) if self._failure is not None else "",
            )

    @property
    def counters(self) -> Mapping[str, int]:
        with self._changed:
            dropped = self._dropped + Counter(self._link.counters if self._link is not None else {})
            return {**self._counters, **dropped}

    def stop(self) -> None:
        """Ask it to end, wait, and end it. Idempotent."""
        with self._changed:
            link, self._link = self._link, None
            self._state = "stopped"
            self._generation += 1
            self._changed.notify_all()
        if link is not None:
            link.send(Stop())
            if not link.join(self._watch.stop):
                log.warning("the worker did not end when it was asked to; it is killed")
                link.kill()
                link.join(self._watch.stop)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    # --- one worker --------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        with self._changed:
            if self._state == "stopped":
                return
            self._generation += 1
            generation = self._generation
            self._state, self._since = "starting", time.monotonic()
        # Without the lock: a process takes a while to start, and the sessions' thread must not wait for it.
        link = self._launch(lambda note: self._note(generation, note), lambda reason: self._gone(generation, reason))
        with self._changed:
            if generation == self._generation:
                self._link = link
                return
        # Stopped meanwhile, or gone already.
        link.kill()

    def _note(self, generation: int, note: Note) -> None:
        with self._changed:
            if generation != self._generation:
                self._counters["notes_stale"] += 1
                return
            self._beaten = time.monotonic()
            match note:
                case Loading(stage, fraction):
                    self._tell_progress(stage, fraction)
                case Ready():
                    self._is_ready(note)
                case LoadFailed():
                    self._failure = restored(note)
                    self._changed.notify_all()
                case _:
                    if isinstance(note, Beat):
                        self._tick_age = note.tick_age
                    self._hear(note)

    def _tell_progress(self, stage: str, fraction: float) -> None:
        if self._progress is None or self._ready is not None:
            return
        try:
            self._progress(stage, fraction)
        except Exception as error:
            # Whoever is told may say by it that nobody wants the worker any more.
            self._failure = error
            self._changed.notify_all()

    def _is_ready(self, ready: Ready) -> None:
        if self._ready is not None and ready != self._ready:
            self._failure = WorkerChanged(
                "after its restart the worker runs another model or other sizes than before; restart the server"
            )
            link = self._link
            self._gone(self._generation, "it is another one")
            if link is not None:
                link.kill()
            return
        self._ready, self._state, self._since = ready, "ready", time.monotonic()
        self._tick_age = None
        self._changed.notify_all()

    def _gone(self, generation: int, reason: str) -> None:
        with self._changed:
            if generation != self._generation:
                return
            now = time.monotonic()
            if self._link is not None:
                self._dropped.update(self._link.counters)
            self._link = None
            self._generation += 1
            self._counters["workers_lost"] += 1
            calm = self._state == "ready" and now - self._since >= self._watch.backoff.calm
            self._failures = 1 if calm else self._failures + 1
            if self._failure is None or self._state == "ready":
                self._failure = WorkerLost(f"the worker ended: {reason}")
            self._due = now + self._watch.backoff.wait(self._failures)
            first, self._state = self._ready is None, "restarting"
            if not first:
                log.error("%s; another one starts in %.1f s", self._failure, self._due - now)
                self._lost(reason)
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._state == "stopped":
                    return
                now = time.monotonic()
                begin = self._state == "restarting" and now >= self._due
                if begin:
                    self._restarts += 1
                elif self._overdue(now) and self._link is not None:
                    self._counters["workers_silent"] += 1
                    log.error("the worker gives no sign of life; it is killed")
                    # Its sessions end now and not when its last words have been read.
                    link, generation = self._link, self._generation
                    link.kill()
                    self._gone(generation, "it gave no sign of life")
                    continue
                else:
                    self._changed.wait(max(0.01, self._until() - now))
            if begin:
                try:
                    self._begin()
                except Exception as error:
                    log.exception("a worker could not be started")
                    self._gone(self._generation, f"it could not be started: {error}")

    def _overdue(self, now: float) -> bool:
        if self._state == "starting":
            return now - self._since > self._watch.loading
        if self._state != "ready":
            return False
        stuck = self._tick_age is not None and self._tick_age > self._watch.stuck
        return stuck or now - self._beaten > self._watch.silence

    def _until(self) -> float:
        """When there is something to look at."""
        if self._state == "restarting":
            return self._due
        if self._state == "ready":
            return self._beaten + self._watch.silence
        return self._since + self._watch.loading


__all__ = ["State", "Supervisor", "Vitals", "Watch"]
