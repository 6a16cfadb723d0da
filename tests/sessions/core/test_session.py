"""The session as a whole: dispatch, time, life and end, snapshot and restore."""

from __future__ import annotations

import json
import typing
from dataclasses import replace

import pytest

from sessions.core import counters
from sessions.core.config import SessionConfig, TurnConfig
from sessions.core.effects import (
    AdmitFrame,
    AdvanceEpoch,
    ClearTimer,
    CloseEngine,
    Count,
    EndSession,
    FlushCarrier,
    OpenEngine,
    OpenPerception,
    StartResponse,
)
from sessions.core.events import (
    AudioArrived,
    CarrierAttached,
    CarrierBlocked,
    CarrierLost,
    CarrierReady,
    Close,
    EngineAudio,
    EngineFailed,
    Event,
    ItemCreate,
    ItemDelete,
    OwnershipLost,
    OwnershipTaken,
    ResponseCreate,
    TimerDue,
)
from sessions.core.fence import Fence
from sessions.core.notices import (
    CommandFailed,
    EpochBegan,
    InputTranscriptFailed,
    PlaybackCleared,
    ResponseClosed,
    ResponseOpened,
)
from sessions.core.records import RecordError
from sessions.core.session import _OWN, Session
from sessions.core.state import Abilities
from sessions.core.timeline import from_ms

from .checker import Checker
from .driver import World, effects_in, notices_in

PATIENT = SessionConfig(grace=from_ms(20_000))


def world(config: SessionConfig | None = None, *, acknowledged: bool = False, attach: bool = True) -> World:
    config = config or SessionConfig()
    return World(config, acknowledged=acknowledged, attach=attach, observers=(Checker(config),))


# --- time and dispatch ---------------------------------------------------------------------------------------------


def test_time_never_goes_back() -> None:
    session = Session("sess_t", 1, SessionConfig(), Abilities())
    session.handle(CarrierAttached(), 1000)
    session.handle(CarrierBlocked(), 1000)
    with pytest.raises(ValueError, match="session time went back from 1000 to 999"):
        session.handle(CarrierBlocked(), 999)
    assert session.state.now == 1000


def test_every_event_has_a_handler() -> None:
    session = Session("sess_t", 1, SessionConfig(), Abilities())
    assert sorted([*session._handlers, *_OWN], key=str) == sorted(typing.get_args(Event), key=str)


def test_the_engine_and_the_perception_are_opened_once() -> None:
    room = world(PATIENT)
    assert room.effects(OpenEngine) == [OpenEngine(Fence("sess_t", 1, 0), PATIENT)]
    assert room.effects(OpenPerception) == [OpenPerception(True, "en")]
    room.post(CarrierLost())
    assert room.post(CarrierAttached()) == [ClearTimer("grace"), FlushCarrier(Fence("sess_t", 1, 1))]


def test_a_refused_command_is_told_and_the_session_lives() -> None:
    room = world()
    effects = room.post(ItemDelete("nobody", "evt_1"))
    assert [(failed.code, failed.command) for failed in notices_in(effects, CommandFailed)] == [
        ("item_not_found", "evt_1")
    ]
    room.converse(3000)
    assert room.notices(ResponseClosed)[0].response.status == "completed"


def test_a_peer_that_does_not_read_stops_admission_until_it_does() -> None:
    room = world()
    room.converse(300)
    room.post(CarrierBlocked(100_000))
    sent = len(room.effects(AdmitFrame))
    room.quiet(500)
    assert len(room.effects(AdmitFrame)) == sent
    assert effects_in(room.post(CarrierReady()), AdmitFrame)


def test_a_response_that_fails_is_not_the_end_of_the_session() -> None:
    room = world()
    room.engine.fails_at = from_ms(400)
    room.converse(700)
    assert room.notices(ResponseClosed)[0].response.status == "failed"
    assert not room.session.state.closed


def test_an_unknown_timer_is_nothing() -> None:
    assert world().post(TimerDue("tea")) == []


def test_ids_are_the_same_in_every_replay_and_no_two_are_alike() -> None:
    def ids() -> list[str]:
        room = world()
        room.converse(3000)
        room.converse(1000)
        return [opened.response.id for opened in room.notices(ResponseOpened)]

    assert ids() == ids()
    assert len(set(ids())) == 2


# --- attach and detach ---------------------------------------------------------------------------------------------


def test_a_session_without_grace_ends_with_its_carrier_and_says_why() -> None:
    room = world()
    room.converse(700)
    effects = room.post(CarrierLost("connection_lost"))
    assert [began.cause for began in notices_in(effects, EpochBegan)] == ["detached", "superseded"]
    assert effects[-2:] == [CloseEngine(), EndSession("connection_lost")]


def test_a_session_waits_for_another_carrier_as_long_as_its_grace_and_no_longer() -> None:
    room = world(replace(SessionConfig(), grace=from_ms(2000)))
    room.converse(700)
    room.detach()
    room.wait(1999)
    assert not room.session.state.closed
    room.wait(2)
    assert room.effects(EndSession) == [EndSession("detached")]
    assert room.session.state.ledger.balanced


def test_a_session_that_found_another_carrier_does_not_end_when_the_grace_is_over() -> None:
    room = world(replace(SessionConfig(), grace=from_ms(2000)))
    room.detach()
    room.wait(1000)
    room.attach()
    room.wait(1500)
    room.detach()
    room.wait(1500)
    assert not room.session.state.closed


def test_a_carrier_that_takes_the_place_of_another_begins_an_epoch_and_nothing_old_is_heard() -> None:
    room = world(PATIENT)
    room.converse(700)
    before = len(room.effects(AdmitFrame))
    effects = room.attach()
    assert [began.cause for began in notices_in(effects, EpochBegan)] == ["detached"]
    assert effects_in(effects, FlushCarrier)[-1].fence == Fence("sess_t", 1, 1)
    room.wait(1000)
    assert len(room.effects(AdmitFrame)) == before
    room.converse(700)
    assert all(frame.fence.epoch == 1 for frame in room.effects(AdmitFrame)[before:])


def test_what_the_lost_carrier_had_is_unknown_where_it_reported_and_modelled_where_it_did_not() -> None:
    for acknowledged in (False, True):
        room = world(PATIENT, acknowledged=acknowledged)
        room.converse(1200)
        (cleared,) = notices_in(room.attach(), PlaybackCleared)
        assert cleared.heard_by == ("report" if acknowledged else "model")
        assert room.session.state.ledger.unknown > 0


def test_a_detach_begins_an_epoch_once() -> None:
    room = world(PATIENT)
    room.converse(700)
    effects = room.post(CarrierLost())
    assert [began.cause for began in notices_in(effects, EpochBegan)] == ["detached"]
    assert room.post(CarrierLost()) == []
    assert room.session.fence == Fence("sess_t", 1, 1)


def test_the_old_tail_is_not_heard_after_a_reconnect() -> None:
    room = world(PATIENT)
    room.engine.late = from_ms(3000)
    room.engine.pace = from_ms(150)
    room.converse(300)
    room.detach()
    room.wait(200)
    room.attach()
    sent = len(room.effects(AdmitFrame))
    room.wait(2000)
    assert len(room.effects(AdmitFrame)) == sent
    assert room.count(counters.STALE_AUDIO) > 0


def test_a_turn_that_waits_for_its_words_is_answered_after_a_reconnect() -> None:
    room = world(PATIENT)
    room.perception.delay = from_ms(1500)
    room.ask()
    room.detach()
    room.wait(2500)
    assert room.effects(AdmitFrame) == []
    room.attach()
    room.wait(2500)
    assert [closed.response.status for closed in room.notices(ResponseClosed)] == ["completed"]


# --- the end -------------------------------------------------------------------------------------------------------


def test_a_close_cuts_frees_and_ends() -> None:
    room = world()
    room.converse(700)
    effects = room.post(Close("bye"))
    assert effects_in(effects, AdvanceEpoch)
    assert effects_in(effects, FlushCarrier)
    assert effects[-2:] == [CloseEngine(), EndSession("bye")]
    assert [closed.response.status for closed in notices_in(effects, ResponseClosed)] == ["cancelled"]
    ledger = room.session.state.ledger
    assert ledger.balanced
    assert ledger.tracks == {}
    assert room.session.state.requests == {}


def test_after_close_events_are_only_counted() -> None:
    room = world()
    room.converse(700)
    room.post(Close())
    for event in (AudioArrived(0, 960), Close(), CarrierAttached(), ItemCreate("user"), TimerDue("pump")):
        assert room.post(event) == [Count(counters.AFTER_CLOSE)]


def test_a_turn_that_was_not_answered_begins_nothing_at_the_close() -> None:
    room = world()
    room.talk(320)
    room.post(ResponseCreate())
    room.quiet(700)
    assert room.session.state.respond
    effects = room.post(Close())
    assert effects_in(effects, StartResponse) == []
    assert effects[-1] == EndSession("closed")


def test_calls_without_an_answer_are_counted_at_the_close() -> None:
    room = world()
    for call in ("call_1", "call_2"):
        room.post(ItemCreate("assistant", "function_call", call=call, name="look_up"))
    room.post(ItemCreate("user", "function_call_output", call="call_1"))
    room.post(Close())
    assert room.count(counters.UNANSWERED_TOOLS) == 1


def test_a_ledger_that_does_not_balance_is_a_fault_that_is_told() -> None:
    room = World()
    room.session.state.ledger.generated += 1
    assert Count(counters.LEDGER_FAULT) in room.post(Close())


def test_a_newer_owner_ends_the_session_here() -> None:
    room = world(acknowledged=True)
    room.converse(700)
    assert room.post(OwnershipLost(1)) == []
    effects = room.post(OwnershipLost(2))
    assert effects[-1] == EndSession("ownership_lost")
    (cleared,) = notices_in(effects, PlaybackCleared)
    assert room.session.state.ledger.unknown > 0
    assert cleared.heard == room.session.state.ledger.played


def test_a_new_owner_cuts_what_was_being_said_and_begins_anew_with_engine_and_perception() -> None:
    room = world(PATIENT)
    room.converse(700)
    sequence = room.session.state.sequence
    assert sequence > 0
    effects = room.take_over()
    state = room.session.state
    assert (state.incarnation, state.epoch, state.sequence, state.attached) == (2, 1, 0, False)
    (opened,) = effects_in(effects, OpenEngine)
    assert opened.fence == Fence("sess_t", 2, 0)
    assert effects_in(effects, OpenPerception)
    (cleared,) = notices_in(effects, PlaybackCleared)
    assert cleared.text
    assert cleared.text in [item.text for item in state.conversation.items]
    assert state.alone_until == room.now + PATIENT.grace
    room.attach()
    room.converse(700)
    said = room.effects(AdmitFrame)[sequence:]
    assert {frame.fence.incarnation for frame in said} == {2}
    assert said[0].sequence == 0


def test_a_session_that_waits_for_nobody_ends_with_its_owner() -> None:
    room = world()
    room.converse(700)
    assert room.take_over()[-1] == EndSession("detached")


def test_words_that_a_former_owner_was_asked_for_are_told_as_lost() -> None:
    room = world(replace(PATIENT, transcribe_input=True))
    room.perception.silent = True
    room.ask()
    (failed,) = notices_in(room.take_over(), InputTranscriptFailed)
    assert failed.code == "perception_lost"
    assert room.session.state.awaiting == []


def test_a_claim_that_is_not_newer_is_refused_and_counted() -> None:
    room = world()
    before = room.session.snapshot()
    assert room.post(OwnershipTaken(1)) == [Count(counters.OLD_OWNER)]
    assert room.session.snapshot() == before


def test_an_engine_that_is_gone_ends_the_session() -> None:
    room = world()
    room.converse(700)
    assert room.post(EngineFailed(Fence("sess_t", 0, 0), "", "gone", "gone")) == []
    effects = room.post(EngineFailed(Fence("sess_t", 1, 0), "", "gone", "the engine is gone"))
    assert effects[-1] == EndSession("gone")


def test_a_close_after_a_detach_loses_nothing() -> None:
    room = world()
    room.converse(700)
    room.post(CarrierLost())
    room.post(Close())
    assert room.session.state.ledger.balanced


# --- snapshot and restore ------------------------------------------------------------------------------------------


def conversation(room: World) -> None:
    """A bit of everything."""
    room.perception.look = "mm-hmm"
    room.engine.calls = 1
    room.converse(900)
    room.talk(128)
    room.quiet(900)
    room.perception.look = "stop"
    room.talk(700)
    room.quiet(1200)
    room.detach()
    room.wait(300)
    room.attach()
    room.converse(400)
    room.post(ItemCreate("user", text="typed"))
    room.quiet(700)
    room.post(Close())


@pytest.mark.parametrize("kind", ["server_vad", "semantic_vad"])
@pytest.mark.parametrize("acknowledged", [False, True])
def test_a_restored_session_goes_on_identically(kind: typing.Any, acknowledged: bool) -> None:
    config = SessionConfig(turns=TurnConfig(kind=kind), transcribe_input=True)
    room = world(config, acknowledged=acknowledged)
    conversation(room)
    whole = Session("sess_t", 1, config, Abilities())
    for number, step in enumerate(room.log):
        assert whole.handle(step.event, step.now) == step.effects
        if number % 7 == 0:
            plain = json.loads(json.dumps(whole.snapshot()))
            whole = Session.restore(plain)
            assert whole.snapshot() == plain
    assert whole.snapshot() == room.session.snapshot()


def test_a_snapshot_is_not_touched_by_what_happens_later() -> None:
    room = world()
    room.converse(500)
    plain = room.session.snapshot()
    text = json.dumps(plain)
    room.quiet(1000)
    assert json.dumps(plain) == text


def test_a_snapshot_that_does_not_fit_is_refused() -> None:
    plain = typing.cast(dict[str, typing.Any], world().session.snapshot())
    plain["epoch"] = "seven"
    with pytest.raises(RecordError, match="epoch: 'seven' does not fit"):
        Session.restore(plain)


def test_a_snapshot_of_a_closed_session_stays_closed() -> None:
    room = world()
    room.post(Close())
    restored = Session.restore(room.session.snapshot())
    assert restored.handle(EngineAudio(Fence("sess_t", 1, 0), "r", 0, 1), room.now) == [Count(counters.AFTER_CLOSE)]
