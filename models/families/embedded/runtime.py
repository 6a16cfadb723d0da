"""CTranslate2 with the beginnings of prompts that it keeps.

The runtime keeps the keys and values of a `static_prompt` and finds them by its tokens alone: it knows no tenant and
has no way to let go of one. So the tenant is looked up here before the runtime is asked, and what is not wanted any
more goes when the runtime is replaced by a fresh one, which is loaded beside it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import ctranslate2

from ...caches import CacheMetrics, StateCache, prefix_key
from ...graph.states import StateKind
from ...memory import return_freed_memory
from ...priority import load_lowered
from .stop import Stop


@dataclass(slots=True)
class _Kept:
    """One beginning: whose it is, its size in bytes, the open sessions that begin so, and whether it has been read."""

    tenant: str
    size: int
    sessions: set[str] = field(default_factory=set)
    read: bool = False


class Runtime:
    """One loaded model. It is unloaded once it is retired and nobody runs on it."""

    def __init__(self, generator: ctranslate2.Generator) -> None:
        self.generator = generator
        self.kept: dict[tuple[str, ...], _Kept] = {}
        """Beginnings in its memory, or about to be."""
        self.size = 0
        """Bytes of their keys and values."""
        self.runs = 0
        self.retired = False


def load(folder: Path, cores: int) -> Runtime:
    """The model in `folder`, int8, with `cores` replicas of one thread each. Raises what CTranslate2 raises."""
    return Runtime(
        load_lowered(
            lambda: ctranslate2.Generator(
                str(folder), device="cpu", compute_type="int8", inter_threads=cores, intra_threads=1
            )
        )
    )


class Prefixes:
    """A runtime whose kept beginnings each serve one tenant; it is replaced when they outgrow `budget` bytes.

    `preamble` begins every prompt and belongs to nobody; it is read whenever a runtime is loaded, by `warm_up`.
    `token_bytes` are those of one position's keys and values in all layers. Safe to use from any thread.
    """

    def __init__(
        self,
        load: Callable[[], Runtime],
        warm_up: Callable[[Runtime], None],
        preamble: Sequence[str],
        version: str,
        *,
        budget: int,
        token_bytes: int,
    ) -> None:
        self._load = load
        self._warm_up = warm_up
        self._preamble = tuple(preamble)
        self._version = version
        self._token_bytes = token_bytes
        self._lock = threading.Lock()
        self._replacing = threading.Lock()
        self.budget = budget
        self._found: StateCache[Runtime] = StateCache(StateKind.KV, budget)
        self._closed = False
        self._runtime = load()
        warm_up(self._runtime)

    @property
    def metrics(self) -> CacheMetrics:
        """Of beginnings beyond the preamble."""
        return self._found.metrics

    def enter(self) -> Runtime | None:
        """The runtime to run on, until `leave`; None once closed."""
        with self._lock:
            if self._closed:
                return None
            self._runtime.runs += 1
            return self._runtime

    def leave(self, runtime: Runtime) -> None:
        with self._lock:
            runtime.runs -= 1
            idle = runtime.retired and not runtime.runs
        if idle:
            _unload(runtime)

    def beginning(self, runtime: Runtime, tenant: str, head: Sequence[str]) -> tuple[str, ...]:
        """What of preamble and `head` `runtime` has read for `tenant`: both, or the preamble alone."""
        if not tenant or not head:
            return self._preamble
        tokens = (*self._preamble, *head)
        if self._found.get(prefix_key(tenant, tokens, self._version)) is not runtime:
            return self._preamble
        return tokens

    def keep(
        self,
        tenant: str,
        session: str,
        head: Sequence[str],
        read: Callable[[Runtime, Sequence[str]], bool],
        stop: Stop,
    ) -> bool:
        """Have preamble and `head` read by `read`, unless they are; whether they serve `tenant` now.

        `read` returns whether it did. `session` begins so; `stop` is set when it ends. Where what no open session uses
        stands in the way, a fresh runtime takes this one's place first, which takes about as long as a start.
        """
        tokens = (*self._preamble, *head)
        size = len(tokens) * self._token_bytes
        runtime, full = self._reserve(tenant, session, tokens, size)
        # Not for less than half of it: the sessions that go on have to be read for anew.
        if full and self.in_use + size <= self.budget // 2 and self._replace():
            runtime, _ = self._reserve(tenant, session, tokens, size)
        if runtime is None:
            return False
        kept = runtime.kept[tokens]
        try:
            kept.read = kept.read or read(runtime, tokens)
            if kept.read:
                with self._lock:
                    # A runtime that was replaced meanwhile serves nobody, and nothing of it is to be found again.
                    if runtime is self._runtime:
                        self._found.put(prefix_key(tenant, tokens, self._version), runtime, size)
            return kept.read
        finally:
            if not kept.read:
                with self._lock:
                    del runtime.kept[tokens]
                    runtime.size -= size
            self.leave(runtime)
            if stop:
                self.release(session)

    @property
    def in_use(self) -> int:
        """Bytes of what open sessions begin with."""
        with self._lock:
            return sum(kept.size for kept in self._runtime.kept.values() if kept.sessions)

    def release(self, session: str) -> None:
        """`session` is over; what it began with stays for the next one of its tenant, while there is room."""
        with self._lock:
            for kept in self._runtime.kept.values():
                kept.sessions.discard(session)

    def held(self, tenant: str) -> int:
        """How many beginnings are kept of a tenant."""
        with self._lock:
            return sum(kept.tenant == tenant for kept in self._runtime.kept.values())

    def forget(self, tenant: str) -> None:
        """Let go of all that is kept of a tenant whose sessions are over.

        The runtime has no way to let go of one beginning, so a fresh one takes its place: it blocks for as long as a
        start, and other tenants' beginnings are read anew.
        """
        self._found.evict(tenant=tenant)
        if self.held(tenant):
            self._replace(patient=True)

    def _reserve(self, tenant: str, session: str, tokens: tuple[str, ...], size: int) -> tuple[Runtime | None, bool]:
        """The runtime, entered, with room made for `tokens`; or None, and whether that is for want of room."""
        with self._lock:
            runtime = self._runtime
            if self._closed:
                return None, False
            known = runtime.kept.get(tokens)
            if known is not None and known.tenant != tenant:
                # The runtime finds it by its tokens, so the time that it takes would tell one tenant of another.
                return None, False
            if known is None:
                if runtime.size + size > self.budget:
                    return None, True
                known = runtime.kept[tokens] = _Kept(tenant, size)
                runtime.size += size
            known.sessions.add(session)
            runtime.runs += 1
            return runtime, False

    def close(self) -> None:
        """Unload the model; idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            runtime = self._runtime
            runtime.retired = True
            idle = not runtime.runs
        if idle:
            _unload(runtime)

    def _replace(self, *, patient: bool = False) -> bool:
        """A fresh runtime in this one's place; False where another thread is at it, unless `patient`."""
        if not self._replacing.acquire(blocking=patient):
            return False
        try:
            fresh = self._load()
            self._warm_up(fresh)
            with self._lock:
                closed = self._closed
                old = fresh if closed else self._runtime
                if not closed:
                    self._runtime = fresh
                old.retired = True
                idle = not old.runs
            if idle:
                _unload(old)
            if not closed:
                self._found.evict()
            return not closed
        finally:
            self._replacing.release()


def _unload(runtime: Runtime) -> None:
    # Left to the interpreter's exit, the native threads may abort the process.
    runtime.generator.unload_model()
    del runtime.generator
    return_freed_memory()
