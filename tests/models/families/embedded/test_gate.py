"""`models.families.embedded.gate`."""

from __future__ import annotations

import threading

import pytest

from models.families.embedded.gate import Gate, Urgency
from models.families.embedded.stop import Stop
from sessions.core.timeline import from_ms

from ..hearing import PATIENCE


class Queue:
    """Threads that wait at a gate; a test lets them in one by one."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.order: list[str] = []
        self.entered = threading.Semaphore(0)
        self.threads: list[threading.Thread] = []

    def come(self, name: str, urgency: Urgency, stop: Stop | None = None) -> Stop:
        asked = threading.Event()
        halt = stop or Stop()
        halt.then(self.gate.wake)

        def ask() -> Urgency:
            asked.set()
            return urgency

        def wait() -> None:
            if self.gate.enter(ask, halt):
                self.order.append(name)
            else:
                self.order.append(f"not {name}")
            self.entered.release()

        thread = threading.Thread(target=wait)
        self.threads.append(thread)
        thread.start()
        while not asked.is_set():
            # A waiter is asked for its urgency when the gate looks around; make it look until it has come.
            self.gate.wants_back((1, 0))
        return halt

    def let_in(self) -> None:
        assert self.entered.acquire(timeout=PATIENCE)

    def join(self) -> None:
        for thread in self.threads:
            thread.join(PATIENCE)


def held_gate() -> Gate:
    gate = Gate(1)
    assert gate.enter(lambda: (0, 0), Stop())
    return gate


def test_who_has_not_been_heard_goes_first_then_who_would_fall_silent_first() -> None:
    queue = Queue(held_gate())
    queue.come("plenty", (1, 9000))
    queue.come("second", (0, 2))
    queue.come("short", (1, 100))
    queue.come("first", (0, 1))
    for _ in range(4):
        queue.gate.leave()
        queue.let_in()
    queue.join()
    assert queue.order == ["first", "second", "short", "plenty"]


def test_a_stopped_waiter_leaves_without_a_permit() -> None:
    queue = Queue(held_gate())
    stop = queue.come("gone", (0, 1))
    stop.set()
    queue.let_in()
    queue.come("next", (0, 2))
    queue.gate.leave()
    queue.let_in()
    queue.join()
    assert queue.order == ["not gone", "next"]


def test_as_many_as_there_are_permits_compute_at_once() -> None:
    gate = Gate(2)
    assert gate.enter(lambda: (0, 1), Stop())
    assert gate.enter(lambda: (0, 2), Stop())
    queue = Queue(gate)
    queue.come("third", (0, 3))
    assert queue.order == []
    gate.leave()
    queue.let_in()
    queue.join()
    assert queue.order == ["third"]


@pytest.mark.parametrize(
    ("waiter", "holder", "wanted"),
    [
        ((0, 5), (1, 0), True),
        ((0, 5), (0, 1), False),
        ((1, 0), (0, 5), False),
        ((1, 0), (1, from_ms(9000)), True),
        ((1, 0), (1, from_ms(500)), False),
    ],
)
def test_a_holder_steps_back_only_for_somebody_clearly_more_urgent(
    waiter: Urgency, holder: Urgency, wanted: bool
) -> None:
    queue = Queue(held_gate())
    queue.come("waiter", waiter)
    assert queue.gate.wants_back(holder) is wanted
    queue.gate.leave()
    queue.let_in()
    queue.join()


def test_nobody_is_asked_to_step_back_while_a_permit_is_free() -> None:
    gate = Gate(2)
    assert gate.enter(lambda: (1, 9_999_999), Stop())
    assert not gate.wants_back((1, 9_999_999))


def test_a_gate_without_permits_is_refused() -> None:
    with pytest.raises(ValueError, match="permits 0"):
        Gate(0)
