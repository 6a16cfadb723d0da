"""One response's way to the session: events and audio in order, in short chunks, never beyond the credit."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from sessions.codes_track import CodedPcm, CodeSpan
from sessions.core.events import EngineAudio, EngineWords, Event
from sessions.core.fence import Fence
from sessions.core.timeline import Ticks, Word, from_ms, ticks_per_sample
from sessions.ports import Emit

CHUNK: Ticks = from_ms(200)
"""Longest stretch in one `EngineAudio`: what a cancel may have to wait for."""


@dataclass(slots=True)
class _Audio:
    pcm: memoryview
    words: tuple[Word, ...]
    span: CodeSpan | None


class ResponseLane:
    """Emits what a response makes, in order; audio beyond the credit waits here, uncounted, until it is granted.

    Safe to use from any thread. Nothing is emitted after `stop`. `rate` is the Hz of the PCM (mono int16 LE).
    """

    def __init__(self, fence: Fence, response: str, credit: Ticks, rate: int, emit: Emit) -> None:
        self.fence = fence
        self.response = response
        self._tick = ticks_per_sample(rate)
        self._emit = emit
        self._lock = threading.RLock()
        self._queue: deque[_Audio | Event] = deque()
        self._position: Ticks = 0
        self._end: Ticks = 0
        self._credit = credit
        self._window = credit
        self._stopped = False
        self._sealed = False

    @property
    def wants_audio(self) -> bool:
        """Whether audio offered now would begin within the credit."""
        return not self._stopped and self._end < self._credit

    @property
    def ahead(self) -> Ticks:
        """How much more audio there is than has been admitted, reckoned from the credit: slack before a gap."""
        return max(0, self._end - max(0, self._credit - self._window))

    @property
    def end(self) -> Ticks:
        """Content position at which the next audio will begin."""
        return self._end

    @property
    def finished(self) -> bool:
        """Whether the last event has been emitted."""
        return self._sealed and not self._queue

    def say(self, pcm: bytes, words: Iterable[Word] = (), span: CodeSpan | None = None) -> None:
        """Append audio; `words` lie relative to its start and are emitted just before its first chunk.

        `span`: the codes that it was decoded from; its chunks then are `CodedPcm`.
        """
        samples = len(pcm) // 2
        with self._lock:
            begin = self._end
            placed = tuple(Word(word.text, begin + word.start, begin + word.end) for word in words)
            self._queue.append(_Audio(memoryview(pcm)[: samples * 2], placed, span))
            self._end += samples * self._tick
            self._drain()

    def post(self, event: Event, *, last: bool = False) -> None:
        """Append an event, emitted after all audio that was appended before it. `last`: it ends the response."""
        with self._lock:
            self._sealed = self._sealed or last
            self._queue.append(event)
            self._drain()

    def grant(self, until: Ticks) -> None:
        """Let audio go out up to content position `until`; an earlier, larger grant stays."""
        with self._lock:
            self._credit = max(self._credit, until)
            self._drain()

    def stop(self) -> None:
        """Emit nothing more; takes effect at the next chunk. Idempotent."""
        self._stopped = True

    def _drain(self) -> None:
        while self._queue and not self._stopped:
            head = self._queue[0]
            if not isinstance(head, _Audio):
                self._queue.popleft()
                self._emit(head)
                continue
            # A chunk ends at the credit, and at a whole sample.
            room = min(CHUNK, self._credit - self._position) // self._tick
            if room <= 0 and len(head.pcm):
                return
            if head.words:
                self._emit(EngineWords(self.fence, self.response, head.words))
                head.words = ()
            chunk = head.pcm[: room * 2]
            head.pcm = head.pcm[room * 2 :]
            if not len(head.pcm):
                self._queue.popleft()
            if len(chunk):
                start = self._position
                self._position += len(chunk) // 2 * self._tick
                span = head.span
                pcm = bytes(chunk) if span is None else CodedPcm(chunk, span)
                head.span = None if span is None else span.after(self._position - start)
                self._emit(EngineAudio(self.fence, self.response, start, self._position), pcm)
