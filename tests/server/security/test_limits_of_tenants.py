"""What a tenant may use: requests, audio, and who is told what when it is used up."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from server.security.audio import EXCEEDED, AudioQuota
from server.security.quotas import Quota
from server.security.rates import Rates
from server.security.tenancy import end_disabled
from server.security.tenants import Tenants, changed, switched
from sessions.core.events import Close, CommandRejected
from sessions.core.timeline import TICK_RATE
from sessions.counters import Counters
from sessions.ports import Busy
from tests.server.security.making import make_tenants


class Clock:
    def __init__(self) -> None:
        self.now = 20_000 * 86_400.0 + 80_000  # a good while before midnight

    def __call__(self) -> float:
        return self.now


@dataclass
class Session:
    session: str
    tenant: str
    heard: int = 0
    posted: list[CommandRejected | Close] = field(default_factory=list)

    def post(self, event: CommandRejected | Close) -> None:
        self.posted.append(event)

    def hear(self, seconds: float) -> None:
        self.heard += round(seconds * TICK_RATE)


def quota(**limits: int) -> tuple[AudioQuota, Clock, Counters]:
    clock, counters = Clock(), Counters()
    of = {"acme": Quota(**limits)}
    return AudioQuota(lambda tenant: of.get(tenant, Quota()), counters, clock), clock, counters


def test_a_session_that_is_beyond_the_days_share_is_told_and_ended() -> None:
    audio, clock, counters = quota(audio_day=100)
    one, other, free = Session("1", "acme"), Session("2", "acme"), Session("3", "bolt")
    for _ in range(2):
        for session in (one, other, free):
            session.hear(24)
        audio.look([one, other, free])
        assert one.posted == []
        audio.check("acme")
    one.hear(4)
    audio.look([one, other, free])
    audio.look([one, other, free])
    for session in (one, other):
        told, ended = session.posted
        assert isinstance(told, CommandRejected)
        assert told.code == EXCEEDED
        assert "100 s of audio that it may send in a day" in told.message
        assert ended == Close(EXCEEDED)
    assert free.posted == []
    with pytest.raises(Busy) as refused:
        audio.check("acme")
    assert refused.value.code == EXCEEDED
    assert 0 < refused.value.retry_after <= 86_400
    assert counters[EXCEEDED] == 3
    audio.check("bolt")
    clock.now += refused.value.retry_after
    audio.check("acme")


def test_a_minutes_share_comes_back_evenly() -> None:
    audio, clock, _ = quota(audio_minute=60)
    one = Session("1", "acme")
    one.hear(60)
    audio.look([one])
    assert [type(event) for event in one.posted] == [CommandRejected, Close]
    with pytest.raises(Busy):
        audio.check("acme")
    clock.now += 2
    audio.check("acme")


def test_audio_is_counted_once_and_not_again_after_a_session_has_gone() -> None:
    audio, _, _ = quota(audio_day=100)
    one = Session("1", "acme")
    one.hear(60)
    for _ in range(5):
        audio.look([one])
    audio.check("acme")
    audio.look([])
    audio.check("acme")
    again = Session("4", "acme")
    again.hear(50)
    audio.look([again])
    assert again.posted != []


def test_what_was_used_can_be_forgotten() -> None:
    audio, _, _ = quota(audio_day=10)
    one = Session("1", "acme")
    one.hear(60)
    audio.look([one])
    assert "acme" in audio
    audio.forget("acme")
    assert "acme" not in audio
    audio.check("acme")


def test_a_tenant_without_limits_is_not_remembered() -> None:
    audio, _, _ = quota()
    audio.look([Session("1", "acme", 10**9)])
    audio.check("acme")
    assert "acme" not in audio


def test_requests_come_at_their_rate_and_a_minutes_worth_at_once() -> None:
    now = [0.0]
    limits = {"acme": Quota(http=3)}
    rates = Rates(lambda tenant: limits.get(tenant, Quota()), lambda: now[0])
    assert [rates.wait("acme") for _ in range(3)] == [0, 0, 0]
    assert rates.wait("acme") == pytest.approx(20)
    assert rates.wait("acme") == pytest.approx(20), "one that came too early is not counted"
    assert rates.wait("bolt") == 0
    assert "bolt" not in rates
    now[0] += 20
    assert rates.wait("acme") == 0
    limits["acme"] = Quota(http=10)
    assert rates.wait("acme") == 0, "other limits hold at once"
    rates.forget("acme")
    assert "acme" not in rates


def test_sessions_of_a_disabled_or_deleted_tenant_end(tmp_path: Path) -> None:
    path = tmp_path / "tenants.json"
    make_tenants(path, ["acme", "bolt", "core"])
    tenants, counters = Tenants(path), Counters()
    sessions = [Session(name, name) for name in ("acme", "bolt", "core", "of a token")]
    end_disabled(tenants, sessions, counters)
    assert all(one.posted == [] for one in sessions)
    with changed(path) as those:
        those["acme"] = switched(those["acme"], None, on=False)
        del those["bolt"]
    end_disabled(tenants, sessions, counters)
    assert [one.posted for one in sessions] == [[Close("tenant_disabled")], [Close("tenant_disabled")], [], []]
    assert counters["sessions_of_disabled_tenants"] == 2
