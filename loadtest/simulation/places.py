"""Nodes and workers: how full they are, and how slow that makes them."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from loadtest.simulation.clock import Clock
from loadtest.simulation.times import ServiceTimes
from sessions.core.timeline import TICK_RATE, Ticks, from_ms

if TYPE_CHECKING:
    from loadtest.simulation.call import Call

FULL = 0.97
"""Share of a core that is never exceeded as long as something can be put off."""
LATELY_S = 5.0
"""Seconds over which a queue forgets how full the core was. People who all begin at once also speak in turns, and what
they say is heard while their agents are silent: the load of the moment says little of how long things wait."""
HARD = 0.5
"""Share of what media costs that is not waking up for it."""


def queueing(share: float) -> float:
    """How many pieces of work are ahead of one that comes to a core so full, in the mean."""
    full = min(FULL, share)
    return full / (1.0 - full)


@dataclass(slots=True, eq=False)
class Worker:
    """Runs models for so many sessions at a time. `parallel`: replies that it begins at once without being slower."""

    number: int
    slots: int
    parallel: int
    taken: int = 0
    beginning: int = 0

    @property
    def room(self) -> int:
        return self.slots - self.taken

    def engine_ms(self, times: ServiceTimes) -> float:
        """To the first audio of a reply that is asked for now."""
        return times.engine * max(1.0, (self.beginning + 1) / self.parallel)


@dataclass(slots=True, eq=False)
class Node:
    """A server process on a core of its own.

    Media and speech detection are work that comes evenly; it takes its share of the core first, and the rest is done in
    turn. A good part of it is waking up for each piece. A core that is nearly full finds several pieces each time, so
    that part yields; one that is asked for more than it has even so falls behind. What is heard waits its turn, as in
    any queue: not at all or long, and in the mean the longer the fuller the core is.
    """

    number: int
    clock: Clock
    times: ServiceTimes
    capacity: int
    ready: bool = True
    alive: bool = True
    calls: dict[int, Call] = field(default_factory=dict)
    speaking: int = 0
    busy: float = 0.0
    """CPU seconds so far."""
    most: int = 0
    fullest: float = 0.0
    load: float = 0.0
    """Share of the core that is asked for."""
    _since: Ticks = 0
    _worked: float = 0.0
    """Seconds of other work since then."""
    _behind: float = 0.0
    """Seconds of work that wait."""
    _free_at: Ticks = 0
    _media: float = 0.0
    """Share of the core that media takes, woken up for piece by piece."""
    _hearing: Ticks = 0
    _lately: float = 0.0
    """Load of the last seconds."""
    _wait: float = 0.0
    """Mean, in ticks, of what waits its turn."""

    def __post_init__(self) -> None:
        self._weigh(0)

    @property
    def name(self) -> str:
        return f"node-{self.number}"

    @property
    def room(self) -> int:
        """For so many sessions more."""
        return self.capacity - len(self.calls) if self.alive and self.ready else 0

    def changed(self, sessions: int = 0, speaking: int = 0) -> None:
        """Account for the time so far, then have so many more (or fewer) sessions, and let so many more speak. To be
        called ahead of any change of `calls`."""
        passed = (self.clock.now - self._since) / TICK_RATE
        self._since = self.clock.now
        must = HARD * self._media * passed + self._worked + self._behind
        wants = self.load * passed + self._worked + self._behind
        self._worked = 0.0
        self._behind = max(0.0, must - passed)
        self.busy += min(passed, max(must, min(FULL * passed, wants)))
        self._lately += (self.load - self._lately) * passed / (LATELY_S + passed)
        self._wait = self.times.queue * TICK_RATE / 1000 * queueing(self._lately)
        if sessions or speaking:
            self.speaking += speaking
            self._weigh(len(self.calls) + sessions)

    def _weigh(self, held: int) -> None:
        times = self.times
        self._media = (held * times.listening_per_s + self.speaking * times.speaking_per_s) / 1000
        self.load = self._media + (times.base_per_s / 1000 if self.alive else 0.0)
        self.most = max(self.most, held)
        self.fullest = max(self.fullest, self.load)
        self._hearing = from_ms(times.hearing)

    def work(self, milliseconds: float, altogether: float | None = None) -> Ticks:
        """Do something that takes so much CPU (`altogether`: with what follows it); returns when it is done."""
        took = milliseconds if altogether is None or altogether < milliseconds else altogether
        self._worked += took / 1000
        begin = max(self.clock.now, self._free_at)
        self._free_at = begin + from_ms(took)
        return begin + from_ms(milliseconds) + round(self._behind * TICK_RATE)

    def hearing(self, chance: random.Random) -> Ticks:
        """How long it takes now from the arrival of a window's last frame to what the core makes of it."""
        behind = round(self._behind * TICK_RATE) if self._behind else 0
        waits = int(-math.log(1.0 - chance.random()) * self._wait) if self._wait else 0
        return self._hearing + behind + waits


P = TypeVar("P", Node, Worker)


class Rooms(Generic[P]):
    """Finds the place with the most room, of equal ones the first."""

    def __init__(self, places: Sequence[P]) -> None:
        self._places: Sequence[P] = places
        self._begin()

    def _begin(self) -> None:
        self._heap = [(-place.room, place.number) for place in self._places]
        heapq.heapify(self._heap)

    def changed(self, place: P) -> None:
        """To be told of each change of a place's room."""
        if len(self._heap) > 4 * len(self._places) + 100:
            self._begin()
        else:
            heapq.heappush(self._heap, (-place.room, place.number))

    def most(self) -> P | None:
        """Where the next session goes; None where all are full."""
        heap = self._heap
        while heap:
            taken, number = heap[0]
            place = self._places[number]
            if place.room == -taken:
                return place if taken else None
            heapq.heappop(heap)  # it was so once
        return None


def after(clock: Clock, milliseconds: float, action: Callable[..., object], *arguments: object) -> None:
    """Plan `action`."""
    clock.at(clock.now + from_ms(milliseconds), action, *arguments)
