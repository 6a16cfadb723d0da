from __future__ import annotations

import gc
import queue
import weakref
from collections.abc import Iterator

import pytest

from models.garbage import YOUNG, spare_what_stays
from models.workers import serving
from models.workers.host import Built, Host
from models.workers.messages import Command, Stop
from models.workers.outbox import Outbox
from tests.models.workers import puppet


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    threshold = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*threshold)


class Node:
    def __init__(self) -> None:
        self.itself = self


def test_what_was_there_is_not_searched_again_and_what_comes_later_is_still_freed() -> None:
    old = [Node() for _ in range(1000)]
    spare_what_stays()
    assert gc.get_freeze_count() >= len(old)
    assert not any(isinstance(thing, Node) for thing in gc.get_objects())
    assert gc.get_threshold()[0] == YOUNG
    later = Node()
    gone = weakref.ref(later)
    del later
    gc.collect()
    assert gone() is None


def test_a_worker_spares_what_it_loaded_before_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    spared: list[int] = []

    def host(built: Built) -> Host:
        spared.append(gc.get_freeze_count())
        return Host(built)

    monkeypatch.setattr(Built, "host", host)
    commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
    commands.put(Stop())
    gc.unfreeze()
    serving.run(puppet.build, commands, Outbox(), "thread")
    assert spared[0] > 1000
