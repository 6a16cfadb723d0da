"""What a worker does before it serves."""

from __future__ import annotations

import gc
import queue
from collections.abc import Iterator

import pytest

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


def test_what_was_loaded_is_not_searched_for_garbage_while_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
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
