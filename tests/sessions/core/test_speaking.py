"""The agent's side, on a virtual clock: one lane, admission, playback, interruption."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sessions.core import counters
from sessions.core.config import SessionConfig
from sessions.core.effects import (
    AdmitFrame,
    AdvanceEpoch,
    CancelResponse,
    DropAudio,
    Effect,
    FlushCarrier,
    GrantCredit,
    HoldCarrier,
    Notify,
    ReleaseTrack,
    ResumeCarrier,
    SetTimer,
    StartResponse,
)
from sessions.core.events import (
    CarrierAttached,
    CarrierBlocked,
    CarrierLost,
    CarrierReady,
    Close,
    DuplexFrame,
    EngineAudio,
    EngineDone,
    EngineFailed,
    EngineStage,
    EngineText,
    EngineToolCall,
    EngineWords,
    OutputClear,
    PlaybackReported,
    ResponseCancel,
    ResponseCreate,
    TimerDue,
)
from sessions.core.fence import Fence
from sessions.core.notices import (
    CommandFailed,
    EpochBegan,
    OutputClosed,
    OutputOpened,
    OutputText,
    PlaybackAcknowledged,
    PlaybackCleared,
    PlaybackStarted,
    PlaybackStopped,
    ResponseClosed,
    ResponseOpened,
    SpeechStarted,
    StageReached,
)
from sessions.core.speaking import Speaking
from sessions.core.state import Abilities, State
from sessions.core.timeline import Ticks, Word, from_ms

from .checker import Checker
from .driver import HOP, World, effects_in, notices_in

QUIET = SessionConfig(turns=None)
DUPLEX = Abilities(engine_turns=True, engine_listens=True)

PATIENT = replace(QUIET, grace=from_ms(20_000))


def stage(
    config: SessionConfig = QUIET,
    abilities: Abilities | None = None,
    *,
    acknowledged: bool = False,
    paced: bool = False,
    ear: Ticks = 0,
    checked: bool = True,
) -> World:
    """A world with a silent engine, so that a test can say what it makes; under the checker's eyes."""
    abilities = abilities or Abilities()
    observers = (Checker(config, owns_turns=abilities.engine_turns),) if checked else ()
    world = World(config, abilities, acknowledged=acknowledged, paced=paced, ear=ear, observers=observers)
    world.engine.silent = True
    return world


def begin(world: World, request: ResponseCreate | None = None) -> StartResponse:
    """A response that the client has asked for."""
    (start,) = effects_in(world.post(request or ResponseCreate()), StartResponse)
    return start


def make(world: World, start: StartResponse, begins: float, ends: float) -> list[Effect]:
    """The engine makes audio of `start`, in ms of content."""
    return world.post(EngineAudio(start.fence, start.response, from_ms(begins), from_ms(ends)))


def say(world: World, start: StartResponse, *words: tuple[str, float, float]) -> None:
    """Words of `start`, times in ms of content."""
    spoken = tuple(Word(text, from_ms(begins), from_ms(ends)) for text, begins, ends in words)
    world.post(EngineWords(start.fence, start.response, spoken))


WORDS = ((" w0", 0, 200), (" w1", 200, 400), (" w2", 400, 700))


# --- from the first sample to the last -----------------------------------------------------------------------------


def test_a_response_is_opened_spoken_and_closed() -> None:
    world = stage()
    start = begin(world)
    say(world, start, (" w0", 0, 30))
    make(world, start, 0, 40)
    world.post(EngineDone(start.fence, start.response, "completed", 3, 4))
    world.wait(100)
    told = [step.effects for step in world.log]
    kinds = [type(e.notice) for effects in told for e in effects if isinstance(e, Notify)]
    assert kinds == [
        ResponseOpened,
        StageReached,
        OutputOpened,
        PlaybackStarted,
        OutputText,
        OutputClosed,
        ResponseClosed,
        PlaybackStopped,
    ]
    (closed,) = world.notices(ResponseClosed)
    assert (closed.response.status, closed.response.input_tokens, closed.response.output_tokens) == ("completed", 3, 4)
    assert closed.response.items[0].text == " w0"
    assert world.effects(ReleaseTrack) == [ReleaseTrack(start.response)]


def test_audio_is_admitted_in_frames_at_most_the_lead_ahead() -> None:
    world = stage()
    start = begin(world)
    make(world, start, 0, 1000)
    frames = world.effects(AdmitFrame)
    assert len(frames) == 10
    assert [frame.placed_at for frame in frames] == [index * 960 for index in range(10)]
    world.wait(19)
    assert len(world.effects(AdmitFrame)) == 10
    world.wait(1)
    assert len(world.effects(AdmitFrame)) == 11
    world.wait(5000)
    frames = world.effects(AdmitFrame)
    assert [frame.sequence for frame in frames] == list(range(50))
    assert frames[-1].end == from_ms(1000)


def test_a_lead_that_is_shorter_than_a_frame_sends_frame_by_frame() -> None:
    world = stage(replace(QUIET, lead=from_ms(5)), checked=False)
    start = begin(world)
    make(world, start, 0, 100)
    world.wait(200)
    assert [frame.placed_at for frame in world.effects(AdmitFrame)] == [index * 960 for index in range(5)]


def test_a_short_piece_waits_to_become_a_frame_while_there_is_time() -> None:
    world = stage()
    start = begin(world)
    make(world, start, 0, 50)
    assert [frame.end for frame in world.effects(AdmitFrame)] == [960, 1920]
    make(world, start, 50, 70)
    assert world.effects(AdmitFrame)[-1].end == from_ms(60)


def test_a_short_piece_goes_out_when_nothing_else_plays() -> None:
    world = stage()
    start = begin(world)
    make(world, start, 0, 5)
    assert world.effects(AdmitFrame)[-1].end == from_ms(5)


def test_the_last_piece_goes_out_as_it_is() -> None:
    world = stage()
    start = begin(world)
    make(world, start, 0, 50)
    world.post(EngineDone(start.fence, start.response))
    assert world.effects(AdmitFrame)[-1].end == from_ms(50)


def test_credit_follows_admission() -> None:
    world = stage(replace(QUIET, credit=from_ms(1000)))
    start = begin(world)
    assert start.credit == from_ms(1000)
    make(world, start, 0, 1000)
    world.wait(2000)
    grants = world.effects(GrantCredit)
    assert [to.until for to in grants] == sorted({to.until for to in grants})
    assert grants[-1].until > from_ms(1500)


def test_words_are_told_when_their_audio_begins_to_leave() -> None:
    world = stage()
    start = begin(world)
    say(world, start, *WORDS)
    make(world, start, 0, 700)
    assert "".join(text.text for text in world.notices(OutputText)) == " w0"
    world.wait(50)
    assert "".join(text.text for text in world.notices(OutputText)) == " w0 w1"
    world.wait(1000)
    assert "".join(text.text for text in world.notices(OutputText)) == " w0 w1 w2"


def test_words_behind_the_last_sample_are_told_at_the_end() -> None:
    world = stage(checked=False)
    start = begin(world)
    make(world, start, 0, 100)
    say(world, start, (" w0", 0, 90), (" w1", 100, 200))
    world.post(EngineDone(start.fence, start.response))
    (text,) = world.notices(OutputText)
    assert text.text == " w0 w1"
    item = world.session.state.conversation.items[0]
    assert [(word.start, word.end) for word in item.words] == [(0, 4800), (4800, 4800)]


def test_text_is_told_at_once() -> None:
    world = stage()
    start = begin(world, ResponseCreate(modality="text"))
    world.post(EngineText(start.fence, start.response, " w0"))
    world.post(EngineText(start.fence, start.response, " w1"))
    world.post(EngineDone(start.fence, start.response))
    assert [text.text for text in world.notices(OutputText)] == [" w0", " w1"]
    (closed,) = world.notices(ResponseClosed)
    assert closed.response.items[0].text == " w0 w1"
    assert not closed.response.items[0].spoken
    assert world.notices(PlaybackStarted) == []


def test_a_reply_at_its_limit_is_incomplete() -> None:
    world = stage()
    start = begin(world)
    make(world, start, 0, 60)
    world.post(EngineDone(start.fence, start.response, "max_output_tokens"))
    (closed,) = world.notices(ResponseClosed)
    assert (closed.response.status, closed.response.detail) == ("incomplete", "max_output_tokens")
    assert closed.response.items[0].status == "incomplete"


def test_a_stage_of_the_session_is_passed_on_while_its_owner_is_the_same() -> None:
    world = stage()
    world.post(EngineStage(Fence("sess_t", 1, 0), "", "ends_soon"))
    world.post(EngineStage(Fence("sess_t", 0, 0), "", "ends_soon"))
    assert world.notices(StageReached) == [StageReached("", "ends_soon")]
    assert world.count(counters.STALE_EVENT) == 1


def test_a_stage_is_passed_on() -> None:
    world = stage()
    start = begin(world)
    world.post(EngineStage(start.fence, start.response, "first_token"))
    assert [reached.stage for reached in world.notices(StageReached)] == ["words", "first_token"]


def test_stages_are_timed_from_the_request() -> None:
    world = stage()
    start = begin(world)
    world.wait(120)
    world.post(EngineStage(start.fence, start.response, "first_token"))
    world.wait(80)
    world.post(EngineStage(start.fence, start.response, "first_code"))
    assert [(reached.stage, reached.elapsed) for reached in world.notices(StageReached)] == [
        ("words", 0),
        ("first_token", from_ms(120)),
        ("first_code", from_ms(200)),
    ]


def test_a_request_overrides_the_configuration() -> None:
    world = stage(replace(QUIET, instructions="be kind"))
    start = begin(world, ResponseCreate("be brief", "text", "none", 7, (("a", "b"),)))
    assert (start.instructions, start.modality, start.tool_choice) == ("be brief", "text", "none")
    assert start.max_output_tokens == 7
    assert world.notices(ResponseOpened)[0].response.metadata == (("a", "b"),)


# --- tools ---------------------------------------------------------------------------------------------------------


def test_a_tool_call_is_an_output_of_its_own() -> None:
    world = stage()
    start = begin(world)
    make(world, start, 0, 40)
    world.post(EngineToolCall(start.fence, start.response, "call_1", "look_up", "{}"))
    world.post(EngineDone(start.fence, start.response))
    opened = world.notices(OutputOpened)
    assert [(o.index, o.item.kind, o.item.text) for o in opened] == [(0, "message", ""), (1, "function_call", "")]
    closed = world.notices(OutputClosed)
    assert [(c.item.kind, c.item.text) for c in closed] == [("function_call", "{}"), ("message", "")]
    assert world.session.state.conversation.open_calls == ["call_1"]


def test_a_call_that_was_made_before_is_the_engines_fault() -> None:
    world = stage()
    start = begin(world)
    call = EngineToolCall(start.fence, start.response, "call_1", "look_up", "{}")
    world.post(call)
    world.post(call)
    assert world.count(counters.ENGINE_FAULT) == 1
    assert len(world.notices(OutputOpened)) == 1


def test_an_interruption_leaves_a_running_tool_alone() -> None:
    world = stage()
    start = begin(world)
    world.post(EngineToolCall(start.fence, start.response, "call_1", "look_up", "{}"))
    world.post(ResponseCancel())
    assert world.session.state.conversation.open_calls == ["call_1"]
    assert "call_1" in str(world.notices(ResponseClosed)[0].response.items)


# --- what must not pass --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fence", [Fence("sess_t", 1, 1), Fence("sess_t", 0, 0), Fence("sess_x", 1, 0)])
def test_output_under_another_fence_is_dropped_and_counted(fence: Fence) -> None:
    world = stage()
    start = begin(world)
    effects = world.post(EngineAudio(fence, start.response, 0, 960))
    assert effects_in(effects, DropAudio) == [DropAudio(start.response, 0, 960, "stale")]
    world.post(EngineWords(fence, start.response, ()))
    world.post(EngineText(fence, start.response, "x"))
    world.post(EngineToolCall(fence, start.response, "c", "n", "{}"))
    world.post(EngineStage(fence, start.response, "s"))
    world.post(EngineDone(fence, start.response))
    world.post(EngineFailed(fence, start.response, "c", "m"))
    assert world.count(counters.STALE_AUDIO) == 1
    assert world.count(counters.STALE_EVENT) == 6
    assert world.session.state.active is not None


def test_audio_of_a_cancelled_response_is_stale_and_never_adopted_by_the_next() -> None:
    world = stage()
    first = begin(world)
    make(world, first, 0, 100)
    world.post(ResponseCancel())
    second = begin(world)
    make(world, first, 100, 200)
    assert world.count(counters.STALE_AUDIO) == 1
    make(world, second, 0, 100)
    assert {frame.response for frame in world.effects(AdmitFrame)} == {first.response, second.response}
    assert world.effects(AdmitFrame)[-5].start == 0
    assert world.session.state.ledger.stale == from_ms(100)


def test_late_audio_of_a_finished_response_that_still_sounds_is_stale() -> None:
    world = stage()
    start = begin(world)
    make(world, start, 0, 100)
    world.post(EngineDone(start.fence, start.response))
    make(world, start, 100, 200)
    assert world.count(counters.STALE_AUDIO) == 1


def test_audio_for_a_track_that_was_cut_is_booked_to_it() -> None:
    world = stage(checked=False)
    start = begin(world)
    make(world, start, 0, 1000)
    track = world.session.state.ledger.tracks[start.response]
    track.closed = True
    world.session.state.active = None
    make(world, start, 1000, 1100)
    assert track.stale == from_ms(100)


def test_audio_out_of_order_is_the_engines_fault() -> None:
    world = stage()
    start = begin(world)
    make(world, start, 0, 40)
    make(world, start, 0, 40)
    make(world, start, 60, 80)
    make(world, start, 40, 40)
    assert world.count(counters.ENGINE_FAULT) == 3
    make(world, start, 40, 60)
    assert world.count(counters.ENGINE_FAULT) == 3


def test_output_after_the_end_is_the_engines_fault() -> None:
    world = stage()
    start = begin(world)
    make(world, start, 0, 1000)
    world.post(EngineDone(start.fence, start.response))
    make(world, start, 1000, 1100)
    world.post(EngineDone(start.fence, start.response))
    assert world.count(counters.ENGINE_FAULT) == 2


def test_output_of_the_wrong_kind_is_the_engines_fault() -> None:
    world = stage()
    spoken = begin(world)
    world.post(EngineText(spoken.fence, spoken.response, "text"))
    make(world, spoken, 0, 40)
    world.post(EngineDone(spoken.fence, spoken.response))
    world.wait(100)
    written = begin(world, ResponseCreate(modality="text"))
    world.post(EngineText(written.fence, written.response, "text"))
    world.session.handle(EngineAudio(written.fence, written.response, 0, 960), world.now)
    assert world.count(counters.ENGINE_FAULT) == 1
    world.post(Close())


# --- the gate ------------------------------------------------------------------------------------------------------


def test_nothing_is_sent_to_a_carrier_that_is_not_there() -> None:
    world = stage(PATIENT)
    world.post(CarrierLost())
    start = begin(world)
    make(world, start, 0, 100)
    assert world.effects(AdmitFrame) == []
    effects = world.post(CarrierAttached())
    assert len(effects_in(effects, AdmitFrame)) == 5


def test_nothing_is_sent_to_a_peer_that_does_not_read() -> None:
    world = stage()
    start = begin(world)
    world.post(CarrierBlocked(100_000))
    make(world, start, 0, 100)
    world.wait(500)
    assert world.effects(AdmitFrame) == []
    assert len(effects_in(world.post(CarrierReady()), AdmitFrame)) == 5


def test_a_carrier_that_attaches_again_is_not_blocked() -> None:
    world = stage(PATIENT)
    world.post(CarrierBlocked(100_000))
    world.post(CarrierAttached())
    start = begin(world)
    make(world, start, 0, 100)
    assert len(world.effects(AdmitFrame)) == 5


def test_a_text_that_was_finished_while_nobody_was_there_is_told_on_return() -> None:
    world = stage(PATIENT)
    world.post(CarrierLost())
    start = begin(world, ResponseCreate(modality="text"))
    world.post(EngineText(start.fence, start.response, " w0"))
    world.post(EngineDone(start.fence, start.response))
    assert world.notices(ResponseClosed) == []
    world.post(CarrierAttached())
    assert world.notices(ResponseClosed)[0].response.items[0].text == " w0"


def test_nothing_is_sent_on_hold_and_nothing_is_lost_by_it() -> None:
    world = stage(SessionConfig())
    start = begin(world)
    make(world, start, 0, 1000)
    world.quiet(320)
    world.talk(32)
    held = len(world.effects(AdmitFrame))
    world.talk(32)
    world.wait(300)
    assert len(world.effects(AdmitFrame)) == held
    assert len(world.effects(HoldCarrier)) == 1
    world.quiet(160)
    assert len(world.effects(ResumeCarrier)) == 1
    world.wait(2000)
    frames = world.effects(AdmitFrame)
    assert [frame.start for frame in frames] == [index * 960 for index in range(50)]


def test_a_pump_timer_that_comes_late_or_for_nothing_does_no_harm() -> None:
    world = stage()
    assert world.post(TimerDue("pump")) == []
    start = begin(world)
    world.slip = from_ms(150)
    make(world, start, 0, 1000)
    world.post(TimerDue("pump"))
    world.wait(3000)
    frames = world.effects(AdmitFrame)
    assert [frame.start for frame in frames] == [index * 960 for index in range(50)]


# --- playback ------------------------------------------------------------------------------------------------------


def test_playback_stops_when_the_last_sample_was_played() -> None:
    world = stage()
    start = begin(world)
    make(world, start, 0, 100)
    world.post(EngineDone(start.fence, start.response))
    world.wait(99)
    assert world.notices(PlaybackStopped) == []
    world.wait(1)
    assert [stopped.response for stopped in world.notices(PlaybackStopped)] == [start.response]
    assert world.session.state.ledger.played == from_ms(100)
    assert world.session.state.ledger.tracks == {}


def test_playback_stops_with_the_last_report() -> None:
    world = stage(acknowledged=True)
    start = begin(world)
    make(world, start, 0, 100)
    world.post(EngineDone(start.fence, start.response))
    world.wait(139)
    assert world.notices(PlaybackStopped) == []
    world.wait(1)
    assert len(world.notices(PlaybackStopped)) == 1


def test_what_is_never_reported_is_unknown_after_a_while() -> None:
    world = stage(acknowledged=True)
    world.carrier.silent = True
    start = begin(world)
    make(world, start, 0, 100)
    world.post(EngineDone(start.fence, start.response))
    world.wait(1000)
    assert world.notices(PlaybackStopped) == []
    world.wait(200)
    assert len(world.notices(PlaybackStopped)) == 1
    assert world.session.state.ledger.unknown == from_ms(100)


def test_what_a_client_that_stands_still_did_not_report_is_unknown_after_a_while() -> None:
    world = stage()
    start = begin(world)
    make(world, start, 0, 100)
    world.post(EngineDone(start.fence, start.response))
    for _ in range(2):
        world.post(PlaybackReported(start.response, from_ms(60)))
        world.wait(20)
    world.wait(960)
    assert world.notices(PlaybackStopped) == []
    world.wait(200)
    (stopped,) = world.notices(PlaybackStopped)
    assert stopped.heard_by == "report"
    ledger = world.session.state.ledger
    assert (ledger.played, ledger.unknown) == (from_ms(60), from_ms(40))


def test_a_track_that_is_not_over_is_looked_at_again() -> None:
    world = stage()
    start = begin(world)
    make(world, start, 0, 100)
    world.post(EngineDone(start.fence, start.response))
    world.post(TimerDue("played"))
    assert world.notices(PlaybackStopped) == []
    world.wait(100)
    assert len(world.notices(PlaybackStopped)) == 1


def looks(world: World) -> int:
    """How often it was looked whether playback is over."""
    return sum(step.event == TimerDue("played") for step in world.log)


def test_reports_that_are_behind_the_model_do_not_make_it_look_at_every_tick() -> None:
    """A client that reports though it need not, 100 ms behind: the end lies where its reports have it."""
    world = stage()
    start = begin(world)
    make(world, start, 0, 200)
    world.post(EngineDone(start.fence, start.response))
    world.wait(190)
    world.post(PlaybackReported(start.response, from_ms(90)))
    world.wait(109)
    assert world.notices(PlaybackStopped) == []
    world.wait(2)
    assert len(world.notices(PlaybackStopped)) == 1
    assert looks(world) <= 2


def test_while_a_carrier_holds_nobody_looks_whether_playback_is_over() -> None:
    world = stage(SessionConfig(), paced=True)
    start = begin(world)
    make(world, start, 0, 480)
    world.post(EngineDone(start.fence, start.response))
    world.quiet(320)
    world.talk(64)
    assert len(world.effects(HoldCarrier)) == 1
    world.wait(400)
    assert looks(world) == 1
    assert world.notices(PlaybackStopped) == []
    world.quiet(160)
    assert len(world.effects(ResumeCarrier)) == 1
    world.quiet(480)
    assert len(world.notices(PlaybackStopped)) == 1
    assert looks(world) == 2


def test_who_talks_on_when_the_client_has_said_that_all_was_heard_interrupts_nothing() -> None:
    world = stage(SessionConfig(), acknowledged=True, paced=True, ear=from_ms(60))
    start = begin(world)
    make(world, start, 0, 200)
    world.post(EngineDone(start.fence, start.response))
    world.quiet(32)
    world.talk(192)
    assert len(world.effects(HoldCarrier)) == 1
    # By the model some of it is still on its way to the ear.
    world.post(PlaybackReported(start.response, from_ms(200)))
    assert len(world.notices(PlaybackStopped)) == 1
    world.talk(320)
    assert world.effects(AdvanceEpoch) == []
    assert len(world.effects(ResumeCarrier)) == 1
    assert len(world.notices(SpeechStarted)) == 1


def test_the_response_in_progress_is_not_over_because_a_timer_says_so() -> None:
    world = stage()
    start = begin(world)
    make(world, start, 0, 100)
    world.wait(500)
    assert world.post(TimerDue("played")) == []
    assert world.session.state.sounding != []


@pytest.mark.parametrize("position", [-1, 4801, 2000])
def test_a_report_that_cannot_be_true_is_counted(position: Ticks) -> None:
    world = stage()
    start = begin(world)
    make(world, start, 0, 100)
    world.post(PlaybackReported(start.response, 2400))
    world.post(PlaybackReported(start.response, position))
    assert world.count(counters.BAD_REPORT) == 1


def test_a_report_for_what_nobody_knows_is_counted() -> None:
    world = stage()
    world.post(PlaybackReported("resp_nobody", 0))
    assert world.count(counters.BAD_REPORT) == 1


def test_a_report_for_a_finished_track_is_counted_and_changes_nothing() -> None:
    world = stage()
    start = begin(world)
    make(world, start, 0, 100)
    world.post(ResponseCancel())
    before = world.session.snapshot()
    world.post(PlaybackReported(start.response, from_ms(100)))
    assert world.count(counters.BAD_REPORT) == 1
    assert world.session.snapshot() == before


# --- interruption --------------------------------------------------------------------------------------------------


def interrupted(heard: float) -> tuple[World, list[Effect]]:
    """A reply of 700 ms and three words, cancelled after `heard` ms."""
    world = stage()
    start = begin(world)
    say(world, start, *WORDS)
    make(world, start, 0, 700)
    world.wait(heard)
    return world, world.post(ResponseCancel())


@pytest.mark.parametrize(
    ("heard", "text"), [(0, ""), (199, ""), (200, "w0"), (399, "w0"), (450, "w0 w1"), (699, "w0 w1")]
)
def test_the_history_keeps_what_was_heard_cut_at_the_word(heard: float, text: str) -> None:
    world, effects = interrupted(heard)
    (cleared,) = notices_in(effects, PlaybackCleared)
    assert (cleared.heard, cleared.text) == (from_ms(heard), text)
    (closed,) = notices_in(effects, OutputClosed)
    assert (closed.item.text, closed.item.heard, closed.item.status) == (text, from_ms(heard), "incomplete")
    context = world.session.state.conversation.context()
    assert [entry.text for entry in context] == ([text] if text else [])


def test_the_epoch_moves_before_anything_else_and_everyone_is_told_in_order() -> None:
    _, effects = interrupted(300)
    kinds = [type(e.notice) if isinstance(e, Notify) else type(e) for e in effects]
    assert kinds == [
        AdvanceEpoch,
        FlushCarrier,
        CancelResponse,
        EpochBegan,
        PlaybackCleared,
        OutputClosed,
        DropAudio,
        ReleaseTrack,
        ResponseClosed,
    ]
    assert effects_in(effects, AdvanceEpoch)[0].fence == Fence("sess_t", 1, 1)
    assert effects_in(effects, CancelResponse)[0].fence == Fence("sess_t", 1, 0)
    (closed,) = notices_in(effects, ResponseClosed)
    assert (closed.response.status, closed.response.detail) == ("cancelled", "client_cancel")


def test_every_sample_of_a_cut_response_has_its_end() -> None:
    world, effects = interrupted(300)
    ledger = world.session.state.ledger
    assert (ledger.generated, ledger.played, ledger.cleared) == (from_ms(700), from_ms(300), from_ms(400))
    (dropped,) = effects_in(effects, DropAudio)
    assert (dropped.start, dropped.end, dropped.why) == (from_ms(500), from_ms(700), "cleared")


def test_the_next_reply_begins_at_once_after_a_cut() -> None:
    world, _ = interrupted(300)
    start = begin(world)
    effects = make(world, start, 0, 20)
    assert effects_in(effects, AdmitFrame)[0].placed_at == world.now


def test_a_finished_reply_that_still_sounds_can_be_cut() -> None:
    world = stage()
    start = begin(world)
    say(world, start, (" w0", 0, 50), (" w1", 50, 190))
    make(world, start, 0, 190)
    world.post(EngineDone(start.fence, start.response))
    world.wait(100)
    effects = world.post(OutputClear())
    assert [began.cause for began in notices_in(effects, EpochBegan)] == ["client_clear"]
    assert notices_in(effects, PlaybackCleared) == [PlaybackCleared(start.response, from_ms(100), "w0")]
    assert effects_in(effects, CancelResponse) == []
    assert notices_in(effects, ResponseClosed) == []


def test_a_reply_whose_item_was_deleted_is_cut_without_words() -> None:
    world = stage(checked=False)
    start = begin(world)
    say(world, start, (" w0", 0, 50))
    make(world, start, 0, 190)
    world.post(EngineDone(start.fence, start.response))
    world.session.state.conversation.delete(world.notices(OutputOpened)[0].item.id)
    effects = world.post(OutputClear())
    assert notices_in(effects, PlaybackCleared)[0].text == ""


def test_a_response_of_which_nothing_was_sent_is_cut_too() -> None:
    world = stage()
    start = begin(world)
    world.post(CarrierBlocked())
    make(world, start, 0, 100)
    effects = world.post(ResponseCancel())
    assert effects_in(effects, DropAudio) == [DropAudio(start.response, 0, from_ms(100), "cleared")]
    assert notices_in(effects, OutputClosed) == []
    assert world.session.state.ledger.cleared == from_ms(100)


def test_what_a_lost_carrier_did_not_report_is_unknown() -> None:
    world = stage(acknowledged=True)
    start = begin(world)
    make(world, start, 0, 700)
    world.wait(300)
    effects = world.post(CarrierLost())
    (cleared,) = notices_in(effects, PlaybackCleared)
    ledger = world.session.state.ledger
    assert cleared.heard == ledger.played == from_ms(260)
    assert ledger.unknown == from_ms(500 - 260)
    assert ledger.cleared == from_ms(200)


def test_a_cut_with_a_silent_agent_is_only_the_edge_of_an_epoch() -> None:
    world = stage(PATIENT)
    effects = world.post(CarrierLost())
    assert [type(effect) for effect in effects] == [AdvanceEpoch, FlushCarrier, Notify, SetTimer]


@pytest.mark.parametrize(("position", "accepted"), [(100, True), (300, False)])
def test_a_report_is_answered_with_what_the_ledger_made_of_it(position: int, accepted: bool) -> None:
    world = stage(replace(QUIET, acknowledge_playback=True), acknowledged=True)
    start = begin(world)
    make(world, start, 0, 1000)
    effects = world.post(PlaybackReported(start.response, from_ms(position)))
    (told,) = notices_in(effects, PlaybackAcknowledged)
    heard = from_ms(position) if accepted else 0
    assert told == PlaybackAcknowledged(start.response, from_ms(1000), from_ms(200), heard, accepted)


# --- when the engine fails -----------------------------------------------------------------------------------------


def test_an_engine_that_fails_leaves_what_was_sent_to_be_heard() -> None:
    world = stage()
    start = begin(world)
    say(world, start, *WORDS)
    make(world, start, 0, 300)
    effects = world.post(EngineFailed(start.fence, start.response, "engine_error", "out of memory"))
    assert effects_in(effects, AdvanceEpoch) == []
    assert effects_in(effects, DropAudio) == [DropAudio(start.response, from_ms(200), from_ms(300), "cleared")]
    (failed,) = notices_in(effects, CommandFailed)
    assert (failed.code, failed.kind) == ("engine_error", "server_error")
    (closed,) = notices_in(effects, ResponseClosed)
    assert (closed.response.status, closed.response.detail, closed.response.message) == (
        "failed",
        "engine_error",
        "out of memory",
    )
    world.wait(300)
    assert len(world.notices(PlaybackStopped)) == 1


def test_of_a_word_that_a_failing_engine_sent_in_part_nothing_is_kept() -> None:
    world = stage()
    start = begin(world)
    say(world, start, *WORDS)
    make(world, start, 0, 300)
    world.wait(200)
    world.post(EngineFailed(start.fence, start.response, "engine_error", "out of memory"))
    assert [entry.text for entry in world.session.state.conversation.context()] == ["w0"]


def test_a_failure_before_the_first_sample_ends_the_response() -> None:
    world = stage()
    start = begin(world)
    world.post(EngineFailed(start.fence, start.response, "engine_error", "out of memory"))
    assert world.notices(ResponseClosed)[0].response.status == "failed"
    assert world.session.state.ledger.tracks == {}


def test_a_failure_that_nobody_was_to_hear_of_is_tried_again() -> None:
    world = World(observers=(Checker(SessionConfig()),))
    world.engine.fails_at = 0
    world.talk(640)
    world.quiet(300)
    assert world.count(counters.RETRACTED) == 1
    assert world.notices(CommandFailed) == []
    world.engine.fails_at = None
    world.quiet(600)
    assert len(world.effects(StartResponse)) == 2
    assert len(world.notices(ResponseOpened)) == 1


# --- engines that own their turns ----------------------------------------------------------------------------------


def test_the_stretch_in_which_the_engine_speaks_is_a_response() -> None:
    world = stage(abilities=DUPLEX)
    world.quiet(800)
    world.duplex.speaking = True
    world.quiet(800)
    world.duplex.speaking = False
    world.quiet(800)
    (opened,) = world.notices(ResponseOpened)
    (closed,) = world.notices(ResponseClosed)
    assert closed.response.id == opened.response.id
    assert closed.response.status == "completed"
    frames = world.effects(AdmitFrame)
    assert frames[0].source == "duplex"
    assert {frame.source_start - frame.start for frame in frames} == {frames[0].source_start}
    assert frames[0].source_start % HOP == 0
    assert closed.response.items[0].text.startswith(" w0 w1")


def test_its_silence_is_cleared_and_never_sent() -> None:
    world = stage(abilities=DUPLEX)
    world.quiet(800)
    assert world.effects(AdmitFrame) == []
    assert world.session.state.ledger.cleared == world.duplex.made > 0
    assert {drop.why for drop in world.effects(DropAudio)} == {"cleared"}


def test_it_is_told_where_on_its_track_it_was_cut() -> None:
    world = stage(abilities=DUPLEX)
    world.quiet(800)
    world.duplex.speaking = True
    world.quiet(800)
    frame = world.effects(AdmitFrame)[0]
    effects = world.post(ResponseCancel())
    (advance,), (cleared,) = effects_in(effects, AdvanceEpoch), notices_in(effects, PlaybackCleared)
    assert cleared.heard > 0
    assert advance.heard == frame.source_start - frame.start + cleared.heard


def test_an_engine_that_was_not_cut_in_what_it_said_is_told_no_place() -> None:
    silent = stage(abilities=DUPLEX)
    silent.quiet(800)
    assert {effect.heard for effect in effects_in(silent.post(CarrierLost()), AdvanceEpoch)} == {None}
    world = stage()
    make(world, begin(world), 0, 1000)
    world.wait(200)
    (advance,) = effects_in(world.post(ResponseCancel()), AdvanceEpoch)
    assert advance.heard is None


def test_its_frames_under_an_old_epoch_are_stale() -> None:
    world = stage(abilities=DUPLEX)
    world.duplex.speaking = True
    world.duplex.lag = from_ms(300)
    world.quiet(800)
    world.post(ResponseCancel())
    world.quiet(200)
    assert world.count(counters.STALE_AUDIO) > 0
    assert world.session.state.ledger.stale > 0


def test_after_a_cancel_it_is_muted_until_it_yields() -> None:
    world = stage(abilities=DUPLEX)
    world.duplex.speaking = True
    world.quiet(800)
    world.post(ResponseCancel())
    sent = len(world.effects(AdmitFrame))
    world.quiet(800)
    assert len(world.effects(AdmitFrame)) == sent
    world.duplex.speaking = False
    world.quiet(160)
    world.duplex.speaking = True
    world.quiet(320)
    assert len(world.effects(AdmitFrame)) > sent
    assert len(world.notices(ResponseOpened)) == 2


def test_it_is_not_muted_for_ever() -> None:
    world = stage(abilities=DUPLEX)
    world.duplex.speaking = True
    world.quiet(800)
    world.post(OutputClear())
    world.quiet(3000)
    assert len(world.notices(ResponseOpened)) == 2


def test_what_was_not_sent_before_it_spoke_again_is_dropped_and_not_told() -> None:
    world = stage(abilities=DUPLEX)
    world.duplex.speaking = True
    world.quiet(320)
    world.post(CarrierBlocked())
    world.quiet(400)
    world.duplex.speaking = False
    world.quiet(160)
    world.duplex.speaking = True
    world.quiet(160)
    first = world.notices(ResponseClosed)[0].response
    assert (first.status, first.detail) == ("incomplete", "superseded")
    told = "".join(text.text for text in world.notices(OutputText)).split()
    assert all(word in told for word in first.items[0].text.split())
    world.post(CarrierReady())
    world.quiet(1000)
    world.post(Close())


def test_its_frames_out_of_order_are_its_fault() -> None:
    world = stage(abilities=DUPLEX, checked=False)
    world.duplex.speaking = True
    world.quiet(320)
    world.post(DuplexFrame(world.session.fence, 0, HOP, True))
    assert world.count(counters.ENGINE_FAULT) == 1


# --- barge-in, and asking for nothing -----------------------------------------------------------------------------


def test_the_onset_is_told_before_the_epoch_and_the_rest() -> None:
    world = World(observers=(Checker(SessionConfig()),))
    world.converse(700)
    world.talk(300)
    (step,) = [step for step in world.log if notices_in(step.effects, EpochBegan)]
    notices = [type(effect.notice) for effect in step.effects if isinstance(effect, Notify)]
    assert notices[:3] == [SpeechStarted, EpochBegan, PlaybackCleared]
    assert world.notices(EpochBegan)[0].cause == "barge_in"


def test_without_a_response_there_is_nothing_to_start_announce_or_send() -> None:
    state = State("sess_t", 1, QUIET, Abilities())
    out: list[Effect] = []
    speaking = Speaking(state, out)
    speaking.start()
    speaking.announce()
    speaking.retract()
    speaking.pump()
    speaking.release()
    assert out == []


def test_a_response_is_started_and_told_of_once() -> None:
    state = State("sess_t", 1, QUIET, Abilities())
    out: list[Effect] = []
    speaking = Speaking(state, out)
    speaking.begin()
    speaking.start()
    speaking.announce()
    assert len(effects_in(out, StartResponse)) == 1
    assert len(notices_in(out, ResponseOpened)) == 1
