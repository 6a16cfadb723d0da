"""The worker's end: what is checked before the engine sees it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from models.envelope import Versions
from models.workers import borders
from models.workers.host import Built, Host
from models.workers.messages import Advance, Chunk, Close, Frame, Note, Open, Rewind, Stop, Told
from sessions.core.config import SessionConfig
from sessions.core.events import EngineFailed
from sessions.core.fence import Fence
from tests.models.workers.puppet import FRAME, HOP, VERSIONS, Puppet

CONFIG = SessionConfig(tenant="t")


class Stage:
    """A host, and what it told."""

    def __init__(self, slots: int = 2) -> None:
        self.puppet = Puppet(slots)
        self.host = Host(Built(self.puppet, VERSIONS))
        self.told: list[Note] = []
        self.numbers = borders.Numbering()
        self.edge = borders.heard(HOP, VERSIONS)

    def open(self, fence: Fence, config: SessionConfig = CONFIG) -> None:
        self.host.receive(Open(fence, config), self.told.append)

    def chunk(self, fence: Fence, number: int, tenant: str = "t", level: int = 0) -> Chunk:
        envelope = borders.envelope(self.edge, fence, tenant, number * FRAME, (number + 1) * FRAME)
        return Chunk(self.numbers.number(envelope), np.full(HOP, level, "<i2").tobytes())

    def receive(self, *commands: Chunk | Advance | Rewind | Close | Stop) -> None:
        for command in commands:
            self.host.receive(command, self.told.append)

    @property
    def frames(self) -> list[Frame]:
        return [note for note in self.told if isinstance(note, Frame)]

    @property
    def failures(self) -> list[EngineFailed]:
        events = [note.event for note in self.told if isinstance(note, Told)]
        return [event for event in events if isinstance(event, EngineFailed)]

    @property
    def appended(self) -> int:
        return sum(entry[0] == "append" for entry in self.puppet.log)


FENCE = Fence("s", 1, 0)


def test_a_frame_of_the_user_is_answered_in_an_envelope() -> None:
    stage = Stage()
    stage.open(FENCE)
    stage.receive(stage.chunk(FENCE, 0), stage.chunk(FENCE, 1))
    assert [(frame.envelope.start, frame.envelope.end) for frame in stage.frames] == [(0, FRAME), (FRAME, 2 * FRAME)]
    envelope = stage.frames[0].envelope
    assert (envelope.tenant, envelope.fence, envelope.shape, envelope.versions) == ("t", FENCE, (1, HOP), VERSIONS)
    assert stage.host.sessions == 1
    assert stage.host.beat().counters["steps"] == 2


def test_a_malformed_frame_ends_its_session_with_the_reason_and_never_reaches_the_engine() -> None:
    stage = Stage()
    stage.open(FENCE)
    stage.open(well := Fence("well", 1, 0))
    good = stage.chunk(FENCE, 0)
    stage.receive(replace(good, envelope=replace(good.envelope, shape=(1, 960)), pcm=bytes(1920)))
    (failed,) = stage.failures
    assert (failed.fence, failed.response, failed.code) == (FENCE, "", "transfer_refused")
    assert "worker.heard: shape: [1, 960]" in failed.message
    assert stage.appended == 0
    stage.receive(good, stage.chunk(well, 0))
    assert [frame.envelope.fence for frame in stage.frames] == [well]
    assert stage.host.beat().counters["requests_unknown"] == 1


def test_another_tenants_frame_and_another_models_are_refused() -> None:
    for wrong in ("tenant", "model"):
        stage = Stage()
        stage.open(FENCE)
        chunk = stage.chunk(FENCE, 0, tenant="other" if wrong == "tenant" else "t")
        if wrong == "model":
            chunk = replace(chunk, envelope=replace(chunk.envelope, versions=Versions(model="puppet-2")))
        stage.receive(chunk)
        assert [wrong in failed.message for failed in stage.failures] == [True]
        assert stage.appended == 0


def test_what_is_late_by_an_epoch_is_dropped_and_counted_and_the_session_goes_on() -> None:
    stage = Stage()
    stage.open(FENCE)
    late = stage.chunk(FENCE, 0)
    newer = Fence("s", 1, 1)
    stage.receive(Advance(newer), late, stage.chunk(newer, 1))
    assert stage.failures == []
    assert [frame.envelope.start for frame in stage.frames] == [FRAME]
    assert stage.host.beat().counters["frames_refused"] == 1


def test_a_former_owner_who_wakes_up_can_do_nothing() -> None:
    stage = Stage()
    stage.open(FENCE)
    owner = Fence("s", 2, 5)
    stage.open(owner)
    before = list(stage.puppet.log)
    stage.open(FENCE)
    stage.receive(Advance(Fence("s", 1, 9)), Rewind(Fence("s", 1, 9), 0), stage.chunk(FENCE, 0), Close(FENCE))
    assert stage.puppet.log == before
    assert stage.host.beat().counters["requests_stale"] == 4
    stage.receive(stage.chunk(owner, 0))
    assert [frame.envelope.fence for frame in stage.frames] == [owner]
    stage.receive(Close(owner))
    assert stage.host.sessions == 0


def test_a_session_of_one_tenant_cannot_be_taken_by_another() -> None:
    stage = Stage()
    stage.open(FENCE)
    stage.open(Fence("s", 2, 0), SessionConfig(tenant="other"))
    stage.receive(stage.chunk(FENCE, 0))
    assert [frame.envelope.fence for frame in stage.frames] == [FENCE]


def test_no_room_is_told_and_leaves_nothing_behind() -> None:
    stage = Stage(slots=1)
    stage.open(FENCE)
    stage.open(Fence("b", 1, 0))
    assert [(failed.fence.session, failed.code) for failed in stage.failures] == [("b", "engine_busy")]
    assert stage.host.sessions == 1


def test_a_session_that_the_engine_ended_is_forgotten() -> None:
    stage = Stage()
    stage.open(FENCE)
    stage.receive(stage.chunk(FENCE, 0, level=Puppet.FAIL), stage.chunk(FENCE, 1))
    assert [failed.code for failed in stage.failures] == ["not_finite"]
    assert stage.host.sessions == 0
    assert stage.appended == 1


def test_a_rewind_reaches_the_engine_with_what_was_heard() -> None:
    stage = Stage()
    stage.open(FENCE)
    stage.receive(Rewind(Fence("s", 1, 1), 12 * FRAME))
    assert stage.puppet.log[1:] == [("advance", Fence("s", 1, 1)), ("rewind", 12 * FRAME)]


def test_a_stop_closes_every_session() -> None:
    stage = Stage()
    stage.open(FENCE)
    stage.open(Fence("b", 1, 0))
    stage.receive(Stop())
    assert [entry for entry in stage.puppet.log if entry[0] == "close"] == [("close", "s"), ("close", "b")]
    assert stage.host.sessions == 0
