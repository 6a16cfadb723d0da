"""Messages that wait to be written: whoever puts one never waits, and a slow reader costs media and not memory."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from itertools import count

from .borders import Numbering
from .messages import Beat, Chunk, Frame, Message


class Outbox:
    """A queue in order. Of each session at most `waiting` frames wait; then the oldest goes and is counted.

    Everything but frames is small, rare and never dropped; of two signs of life only the newer waits. Frames are
    numbered when they are taken. Any thread may put; one takes. `counters`: "frames_dropped".
    """

    def __init__(self, waiting: int = 25) -> None:
        if waiting < 1:
            raise ValueError(f"waiting {waiting} must be at least 1")
        self._waiting = waiting
        self._changed = threading.Condition()
        self._places = count()
        self._queue: OrderedDict[int, Message] = OrderedDict()
        self._frames: dict[str, OrderedDict[int, None]] = {}
        """Places of each session's frames."""
        self._beat: int | None = None
        """Place of a sign of life that waits."""
        self._numbering = Numbering()
        self._counters: Counter[str] = Counter()
        self._closed = False

    @property
    def counters(self) -> Mapping[str, int]:
        with self._changed:
            return dict(self._counters)

    def __len__(self) -> int:
        with self._changed:
            return len(self._queue)

    def put(self, message: Message) -> None:
        """Nothing happens once it is closed."""
        with self._changed:
            if self._closed:
                return
            place = next(self._places)
            if isinstance(message, Chunk | Frame):
                places = self._frames.setdefault(message.envelope.request, OrderedDict())
                if len(places) >= self._waiting:
                    oldest, _ = places.popitem(last=False)
                    del self._queue[oldest]
                    self._counters["frames_dropped"] += 1
                places[place] = None
            elif isinstance(message, Beat):
                if self._beat is not None:
                    del self._queue[self._beat]
                self._beat = place
            self._queue[place] = message
            self._changed.notify()

    def take(self) -> Message | None:
        """The next one; waits for it. None once it is closed and everything was taken."""
        with self._changed:
            while not self._queue and not self._closed:
                self._changed.wait()
            if not self._queue:
                return None
            place, message = self._queue.popitem(last=False)
            if place == self._beat:
                self._beat = None
            if isinstance(message, Chunk | Frame):
                session = message.envelope.request
                places = self._frames[session]
                del places[place]
                if not places:
                    del self._frames[session]
                return replace(message, envelope=self._numbering.number(message.envelope))
            return message

    def forget(self, session: str) -> None:
        """A session is over: its frames are not wanted any more."""
        with self._changed:
            for place in self._frames.pop(session, ()):
                del self._queue[place]
            self._numbering.forget(session)

    def close(self) -> None:
        """Nothing more comes; what waits may still be taken."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
