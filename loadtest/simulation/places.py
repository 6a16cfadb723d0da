"""Nodes and workers: how full they are, and how slow that makes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from loadtest.simulation.clock import Clock
from loadtest.simulation.times import ServiceTimes
from sessions.core.timeline import TICK_RATE, Ticks, from_ms

if TYPE_CHECKING:
    from loadtest.simulation.call import Call

FULL = 0.98
"""Share of a core beyond which what is asked of it next to its media hardly gets a turn."""


@dataclass(slots=True, eq=False)
class Worker:
    """Runs models for so many sessions at a time. `parallel`: replies that it begins at once without being slower."""

    name: str
    slots: int
    parallel: int
    taken: int = 0
    beginning: int = 0

    def engine_ms(self, times: ServiceTimes) -> float:
        """To the first audio of a reply that is asked for now."""
        return times.engine * max(1.0, (self.beginning + 1) / self.parallel)


@dataclass(slots=True, eq=False)
class Node:
    """A server process on a core of its own.

    Media and speech detection are work that comes evenly; it takes its share of the core first. What is left serves the
    rest in turn, so it takes longer the fuller the core is. A core that is asked for more than it has falls behind.
    """

    name: str
    clock: Clock
    times: ServiceTimes
    room: int
    ready: bool = True
    alive: bool = True
    calls: dict[int, Call] = field(default_factory=dict)
    speaking: int = 0
    busy: float = 0.0
    """CPU seconds so far."""
    most: int = 0
    fullest: float = 0.0
    _since: Ticks = 0
    _behind: float = 0.0
    """Seconds of work that wait."""
    _free_at: Ticks = 0

    @property
    def load(self) -> float:
        """Share of the core that media takes."""
        times = self.times
        return (
            times.base_per_s + len(self.calls) * times.listening_per_s + self.speaking * times.speaking_per_s
        ) / 1000

    def changed(self, sessions: int = 0, speaking: int = 0) -> None:
        """Account for the time so far, then let `speaking` more (or fewer) sessions speak. To be called ahead of any
        change of `calls` too."""
        passed = (self.clock.now - self._since) / TICK_RATE
        self._since = self.clock.now
        load = self.load
        self.busy += min(1.0, load) * passed
        self._behind = max(0.0, self._behind + (load - 1.0) * passed)
        self.speaking += speaking
        self.most = max(self.most, len(self.calls) + sessions)
        self.fullest = max(self.fullest, load)

    def work(self, milliseconds: float) -> Ticks:
        """Do something that takes so much CPU; returns when it is done."""
        self.changed()
        took = milliseconds / 1000
        self.busy += took
        stretched = took / max(1.0 - FULL, 1.0 - self.load)
        begin = max(self.clock.now, self._free_at)
        self._free_at = begin + round(stretched * TICK_RATE)
        return self._free_at + round(self._behind * TICK_RATE)

    def hearing(self) -> Ticks:
        """How long a window of speech detection takes now."""
        self.changed()
        wait = self.times.hearing / 1000 / max(1.0 - FULL, 1.0 - self.load / 2) + self._behind
        return round(wait * TICK_RATE)


def roomiest(nodes: list[Node]) -> Node | None:
    """Where the next session goes: the node with the most room that is ready; None where all are full."""
    with_room = [node for node in nodes if node.alive and node.ready and len(node.calls) < node.room]
    return max(with_room, key=lambda node: node.room - len(node.calls), default=None)


def free_worker(workers: list[Worker]) -> Worker | None:
    """The worker with the most free slots; None where there is none."""
    worker = max(workers, key=lambda one: one.slots - one.taken)
    return worker if worker.taken < worker.slots else None


def after(clock: Clock, milliseconds: float, action: Callable[[], None]) -> None:
    """Plan `action`."""
    clock.at(clock.now + from_ms(milliseconds), action)
