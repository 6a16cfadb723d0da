"""Messages that wait: in order, bounded, numbered when they leave."""

from __future__ import annotations

import threading

import pytest

from models.workers import borders
from models.workers.messages import Advance, Beat, Chunk, Message
from models.workers.outbox import Outbox
from sessions.core.fence import Fence
from tests.models.workers.puppet import FRAME, HOP, VERSIONS

HEARD = borders.heard(HOP, VERSIONS)


def chunk(number: int, session: str = "a", epoch: int = 0) -> Chunk:
    start = number * FRAME
    return Chunk(borders.envelope(HEARD, Fence(session, 1, epoch), "t", start, start + FRAME), bytes(2 * HOP))


def drained(outbox: Outbox) -> list[Message]:
    outbox.close()
    return list(iter(outbox.take, None))


def starts(messages: list[Message]) -> list[tuple[str, int, int]]:
    return [
        (message.envelope.request, message.envelope.start // FRAME, message.envelope.sequence)
        for message in messages
        if isinstance(message, Chunk)
    ]


def test_everything_comes_in_order_and_frames_are_numbered_by_session_and_fence() -> None:
    outbox = Outbox()
    given: list[Message] = [
        chunk(0),
        chunk(0, "b"),
        Advance(Fence("a", 1, 1)),
        chunk(1),
        chunk(2, epoch=1),
        chunk(3, epoch=1),
    ]
    for message in given:
        outbox.put(message)
    taken = drained(outbox)
    assert taken[2] == given[2]
    assert starts(taken) == [("a", 0, 0), ("b", 0, 0), ("a", 1, 1), ("a", 2, 0), ("a", 3, 1)]


def test_of_a_session_that_is_not_read_the_oldest_frames_go_and_leave_no_gap_in_the_numbers() -> None:
    outbox = Outbox(waiting=2)
    outbox.put(chunk(0, "b"))
    for number in range(5):
        outbox.put(chunk(number))
        outbox.put(Advance(Fence("a", 1, number)))
    assert outbox.counters == {"frames_dropped": 3}
    taken = drained(outbox)
    assert starts(taken) == [("b", 0, 0), ("a", 3, 0), ("a", 4, 1)]
    assert [message.fence.epoch for message in taken if isinstance(message, Advance)] == [0, 1, 2, 3, 4]


def test_signs_of_life_do_not_heap_up() -> None:
    outbox = Outbox()
    for age in range(1000):
        outbox.put(Beat({}, float(age)))
    outbox.put(chunk(0))
    assert len(outbox) == 2
    assert outbox.take() == Beat({}, 999.0)
    outbox.put(Beat({}, 1.0))
    assert [type(message) for message in drained(outbox)] == [Chunk, Beat]


def test_a_session_that_is_over_is_forgotten_with_its_frames_and_numbers() -> None:
    outbox = Outbox()
    outbox.put(chunk(0))
    assert starts([outbox.take() or chunk(9)]) == [("a", 0, 0)]
    outbox.put(chunk(1))
    outbox.put(chunk(0, "b"))
    outbox.forget("a")
    outbox.put(chunk(2))
    assert starts(drained(outbox)) == [("b", 0, 0), ("a", 2, 0)]


def test_a_reader_waits_until_something_comes_or_nothing_more_will() -> None:
    outbox = Outbox()
    taken: list[Message | None] = []
    reader = threading.Thread(target=lambda: taken.extend([outbox.take(), outbox.take()]))
    reader.start()
    outbox.put(chunk(0))
    outbox.close()
    outbox.put(chunk(1))
    reader.join(20)
    assert starts([message for message in taken if message is not None]) == [("a", 0, 0)]
    assert taken[1] is None


def test_room_for_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="waiting 0"):
        Outbox(0)
