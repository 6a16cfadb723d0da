from __future__ import annotations

import threading
from dataclasses import dataclass

from models.perception.requests import FairQueue


@dataclass(frozen=True)
class Job:
    session: str
    request: int
    final: bool = True


def drained(queue: FairQueue[Job]) -> list[Job]:
    taken = []
    while len(queue):
        job = queue.take()
        assert job is not None
        taken.append(job)
    return taken


def test_sessions_take_turns_and_each_is_first_in_first_out() -> None:
    queue: FairQueue[Job] = FairQueue()
    for request in range(3):
        queue.put(Job("a", request))
    queue.put(Job("b", 10))
    queue.put(Job("c", 20))
    queue.put(Job("c", 21))
    order = [(job.session, job.request) for job in drained(queue)]
    assert order == [("a", 0), ("b", 10), ("c", 20), ("a", 1), ("c", 21), ("a", 2)]


def test_final_requests_go_before_looks() -> None:
    queue: FairQueue[Job] = FairQueue()
    queue.put(Job("a", 1, final=False))
    queue.put(Job("b", 2))
    queue.put(Job("b", 3))
    assert [job.request for job in drained(queue)] == [2, 3, 1]


def test_a_look_is_overtaken_by_the_next_and_keeps_its_turn() -> None:
    queue: FairQueue[Job] = FairQueue()
    old = Job("a", 1, final=False)
    assert queue.put(old) is None
    assert queue.put(Job("b", 2, final=False)) is None
    assert queue.put(Job("a", 3, final=False)) is old
    assert [job.request for job in drained(queue)] == [3, 2]


def test_a_look_does_not_replace_a_final_request() -> None:
    queue: FairQueue[Job] = FairQueue()
    queue.put(Job("a", 1))
    assert queue.put(Job("a", 2, final=False)) is None
    assert [job.request for job in drained(queue)] == [1, 2]


def test_a_cancelled_request_is_taken_out_and_no_other() -> None:
    queue: FairQueue[Job] = FairQueue()
    queue.put(Job("a", 1))
    queue.put(Job("a", 2))
    queue.put(Job("b", 1))
    queue.put(Job("b", 3, final=False))
    queue.cancel("a", 1)
    queue.cancel("b", 3)
    queue.cancel("b", 99)
    queue.cancel("nobody", 1)
    assert [(job.session, job.request) for job in drained(queue)] == [("a", 2), ("b", 1)]


def test_a_dropped_session_leaves_nothing() -> None:
    queue: FairQueue[Job] = FairQueue()
    queue.put(Job("a", 1))
    queue.put(Job("a", 2, final=False))
    queue.put(Job("b", 3))
    queue.drop("a")
    assert [job.request for job in drained(queue)] == [3]


def test_a_waiting_taker_gets_what_comes_and_is_let_go_at_the_end() -> None:
    queue: FairQueue[Job] = FairQueue()
    taken: list[Job | None] = []
    first = threading.Event()

    def take() -> None:
        taken.append(queue.take())
        first.set()
        taken.append(queue.take())

    thread = threading.Thread(target=take)
    thread.start()
    queue.put(Job("a", 1))
    assert first.wait(30)
    queue.close()
    thread.join(30)
    assert taken == [Job("a", 1), None]
    assert queue.take() is None
