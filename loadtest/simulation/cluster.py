"""N nodes and W workers under so many sessions: admission, the loss of a node, a rolling deploy."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from loadtest.simulation.call import Behaviour, Call, Figures, configuration
from loadtest.simulation.clock import Clock
from loadtest.simulation.places import Node, Rooms, Worker, after
from loadtest.simulation.times import ServiceTimes
from sessions.core.config import SessionConfig
from sessions.core.timeline import TICK_RATE, Ticks, from_ms

RETRY_S = (0.5, 2.0)
"""When a client whose server is gone tries another."""
NOTICED_S = 0.3
"""From an owner's death until another node may take its session: the one that is asked first and does not answer."""


@dataclass(slots=True)
class Cluster:
    """Everything that is simulated. `sessions` are held: who hangs up is followed by somebody else."""

    sessions: int
    nodes: list[Node]
    workers: list[Worker]
    times: ServiceTimes
    behaviour: Behaviour
    clock: Clock
    mean_call_s: float | None = None
    """None: nobody hangs up."""
    ramp_s: float = 2.0
    silence_ms: int = 200
    frame_ms: int = 100
    seed: int = 1
    calls: type[Call] = Call
    figures: Figures = field(default_factory=Figures)
    refused: int = 0
    opened: int = 0
    ended: int = 0
    stranded: int = 0
    """Sessions that found no room on another node within their grace."""
    told: Callable[[str], None] = lambda text: None

    config: SessionConfig = field(init=False)
    silence: Ticks = field(init=False)
    _chance: random.Random = field(init=False)
    _rooms: Rooms[Node] = field(init=False)
    _slots: Rooms[Worker] = field(init=False)

    def __post_init__(self) -> None:
        self.config = configuration(self.silence_ms, self.frame_ms)
        self.silence = from_ms(self.silence_ms)
        self._chance = random.Random(self.seed)
        self._rooms, self._slots = Rooms(self.nodes), Rooms(self.workers)

    @classmethod
    def of(
        cls,
        sessions: int,
        nodes: int,
        workers: int,
        *,
        room: int,
        slots: int,
        parallel: int = 8,
        times: ServiceTimes | None = None,
        behaviour: Behaviour | None = None,
        **more: object,
    ) -> Cluster:
        """`room`: sessions that a node takes; `slots`: that a worker takes."""
        clock, times = Clock(), times or ServiceTimes()
        return cls(
            sessions,
            [Node(number, clock, times, room) for number in range(nodes)],
            [Worker(number, slots, parallel) for number in range(workers)],
            times,
            behaviour or Behaviour(),
            clock,
            **more,  # type: ignore[arg-type]
        )

    # --- sessions ----------------------------------------------------------------------------------------------------

    def open_all(self) -> None:
        """Plan the calls of all sessions over the ramp."""
        for number in range(self.sessions):
            after(self.clock, 1000 * self.ramp_s * number / self.sessions, self._dial)

    def _dial(self) -> None:
        node, worker = self._rooms.most(), self._slots.most()
        if node is None or worker is None:
            self.refused += 1
            after(self.clock, 1000 * self._chance.uniform(*RETRY_S), self._dial)
            return
        call = self.calls(self, self.opened, node, worker)
        self.opened += 1
        self._seat(call, node, worker)
        call.begin()
        if self.mean_call_s is not None:
            after(self.clock, 1000 * self._chance.expovariate(1 / self.mean_call_s), self._hang_up, call)

    def _seat(self, call: Call, node: Node, worker: Worker) -> None:
        node.changed(sessions=1)
        call.node, call.worker = node, worker
        node.calls[call.number] = call
        worker.taken += 1
        self._rooms.changed(node)
        self._slots.changed(worker)

    def _unseat(self, call: Call) -> None:
        call.node.changed(sessions=-1)
        call.worker.taken -= 1
        del call.node.calls[call.number]
        self._rooms.changed(call.node)
        self._slots.changed(call.worker)

    def _hang_up(self, call: Call) -> None:
        if call.number not in call.node.calls:
            return  # it is between two nodes: it ends there
        call.end()
        self.figures.events += call.handled
        self._unseat(call)
        self.ended += 1
        self._dial()

    # --- faults and deploys ------------------------------------------------------------------------------------------

    def kill(self, node: Node) -> None:
        """The node dies now. Its sessions go on elsewhere, if there is room."""
        self.told(f"{node.name} dies with {len(node.calls)} sessions")
        node.alive = False
        for call in list(node.calls.values()):
            self._unseat(call)
            call.lost()
            self._come_back(call, self.clock.now, NOTICED_S)

    def revive(self, node: Node) -> None:
        """It is back, with nobody on it."""
        node.changed()
        node.alive = node.ready = True
        self._rooms.changed(node)

    def deploy(self, restart_s: float, between_s: float) -> None:
        """Replace one node after the other: drain, hand over, restart."""

        def replace(number: int) -> None:
            if number == len(self.nodes):
                self.told("every node was replaced")
                return
            node = self.nodes[number]
            self.told(f"{node.name} is drained of {len(node.calls)} sessions")
            node.ready = False
            for call in list(node.calls.values()):
                call.hand_over()
                self._unseat(call)
                self._come_back(call, self.clock.now, 0.0)
            node.alive = False
            after(self.clock, 1000 * restart_s, lambda: self.revive(node))
            after(self.clock, 1000 * (restart_s + between_s), lambda: replace(number + 1))

        replace(0)

    def _come_back(self, call: Call, since: Ticks, noticed_s: float) -> None:
        wait = max(noticed_s, self._chance.uniform(*RETRY_S))

        def knock() -> None:
            node, worker = self._rooms.most(), self._slots.most()
            if node is None or worker is None:
                self.refused += 1
                if self.clock.now - since > 30 * TICK_RATE:
                    self.stranded += 1
                    self.figures.events += call.handled
                else:
                    after(self.clock, 1000 * self._chance.uniform(*RETRY_S), knock)
                return
            self._seat(call, node, worker)
            self.clock.at(node.work(self.times.takeover), self._take_over, call, node, since)

        after(self.clock, 1000 * wait, knock)

    def _take_over(self, call: Call, node: Node, since: Ticks) -> None:
        if call.number in node.calls:  # else that node is gone as well
            call.taken_over(since)

    # --- the end -----------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Account for the time up to now."""
        for node in self.nodes:
            for call in node.calls.values():
                call.settle()
                self.figures.events += call.handled
            node.changed()
