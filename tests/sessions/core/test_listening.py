"""The user's side, on a virtual clock: input, turns, words, items."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sessions.core import counters
from sessions.core.config import SessionConfig, TurnConfig
from sessions.core.effects import (
    AdmitFrame,
    AdvanceEpoch,
    AppendInput,
    AssessTurn,
    CancelPerception,
    CancelResponse,
    Effect,
    EndSession,
    ForgetInput,
    HoldCarrier,
    OpenPerception,
    ResumeCarrier,
    SetTimer,
    StartResponse,
    Transcribe,
)
from sessions.core.events import (
    AudioArrived,
    CarrierLost,
    Close,
    ConfigUpdate,
    EndOfTurnProbability,
    InputClear,
    InputCommit,
    PerceptionFailed,
    ResponseCancel,
    ResponseCreate,
    SpeechProbability,
    TimerDue,
    Transcript,
)
from sessions.core.listening import Listening
from sessions.core.notices import (
    CommandFailed,
    EpochBegan,
    Held,
    InputCommitted,
    InputTimedOut,
    InputTranscriptDone,
    InputTranscriptFailed,
    InputTranscriptHypothesis,
    ItemAdded,
    PlaybackStopped,
    ResponseOpened,
    Resumed,
    SpeechStarted,
    SpeechStopped,
    TurnEnded,
)
from sessions.core.speaking import Speaking
from sessions.core.state import Abilities, State
from sessions.core.timeline import Token, from_ms

from .checker import Checker
from .driver import WINDOW, World, effects_in, notices_in

SEMANTIC = TurnConfig(kind="semantic_vad")


def room(
    config: SessionConfig | None = None, abilities: Abilities | None = None, *, acknowledged: bool = False
) -> World:
    """A world under the checker's eyes, with a user who has not spoken yet."""
    config, abilities = config or SessionConfig(), abilities or Abilities()
    checker = Checker(config, owns_turns=abilities.engine_turns)
    return World(config, abilities, acknowledged=acknowledged, observers=(checker,))


# --- the track -----------------------------------------------------------------------------------------------------


def test_late_input_is_counted_and_nothing_else() -> None:
    world = room()
    world.quiet(320)
    world.post(AudioArrived(0, WINDOW))
    assert world.count(counters.LATE_AUDIO) == 1
    assert world.session.state.input.watermark == world.position


def test_an_engine_that_listens_gets_the_track_without_holes() -> None:
    world = room(abilities=Abilities(engine_turns=True, engine_listens=True))
    world.quiet(64)
    world.position += 2 * WINDOW
    world.quiet(32)
    spans = [(effect.start, effect.end) for effect in world.effects(AppendInput)]
    assert spans == [(0, WINDOW), (WINDOW, 2 * WINDOW), (2 * WINDOW, 5 * WINDOW)]


def test_an_engine_that_reads_gets_no_input() -> None:
    world = room()
    world.quiet(64)
    assert world.effects(AppendInput) == []


def test_input_that_nobody_spoke_in_is_forgotten() -> None:
    world = room()
    world.quiet(120_000)
    last = world.effects(ForgetInput)[-1]
    assert world.position - from_ms(102_000) < last.before <= world.position - from_ms(90_000)


def test_without_turn_detection_input_is_kept_until_it_is_committed() -> None:
    world = room(SessionConfig(turns=None))
    world.quiet(120_000)
    assert {effect.before for effect in world.effects(ForgetInput)} == {0}
    world.post(InputClear())
    world.quiet(10_000)
    assert world.effects(ForgetInput)[-1].before > from_ms(119_000)


def test_speech_probabilities_mean_nothing_without_turn_detection() -> None:
    world = room(SessionConfig(turns=None))
    world.talk(2000)
    assert world.notices(SpeechStarted) == []
    assert world.timers == {}


# --- a turn --------------------------------------------------------------------------------------------------------


def test_a_turn_from_onset_to_item() -> None:
    world = room(SessionConfig(transcribe_input=True))
    world.quiet(640)
    world.talk(640)
    world.quiet(600)
    (started,) = world.notices(SpeechStarted)
    assert started.at == from_ms(640)
    (stopped,) = world.notices(SpeechStopped)
    assert (stopped.item, stopped.at) == (started.item, from_ms(1280))
    (committed,) = world.notices(InputCommitted)
    assert (committed.item, committed.previous) == (started.item, None)
    (ended,) = world.notices(TurnEnded)
    assert (ended.speech_end, ended.by) == (from_ms(1280), "silence")
    (asked,) = [effect for effect in world.effects(Transcribe) if effect.final]
    assert asked.start == from_ms(640 - 300)
    (done,) = world.notices(InputTranscriptDone)
    assert (done.item, done.text) == (started.item, f"question {asked.request}")
    assert done.length == ended.decided_at - asked.start


def test_speech_is_told_of_at_once_while_the_agent_is_silent() -> None:
    world = room()
    world.talk(64)
    assert len(world.notices(SpeechStarted)) == 1


def test_the_words_are_looked_up_and_answered_while_the_turn_closes() -> None:
    world = room()
    world.talk(640)
    world.quiet(200)
    assert world.notices(SpeechStopped) == []
    (start,) = world.effects(StartResponse)
    assert start.context[-1].text.startswith("question")
    assert world.count(counters.SPECULATED) == 1
    assert world.notices(ResponseOpened) == []
    assert world.effects(AdmitFrame) == []
    world.quiet(400)
    assert [opened.response.id for opened in world.notices(ResponseOpened)] == [start.response]
    assert world.effects(AdmitFrame)[0].response == start.response


def test_what_was_begun_too_early_is_thrown_away() -> None:
    world = room()
    world.talk(640)
    world.quiet(200)
    world.talk(320)
    assert world.count(counters.RETRACTED) == 1
    (start,) = world.effects(StartResponse)
    assert [cancel.response for cancel in world.effects(CancelResponse)] == [start.response]
    assert world.effects(AdvanceEpoch) == []
    world.quiet(600)
    first, second = world.effects(StartResponse)
    assert first.response != second.response
    assert [opened.response.id for opened in world.notices(ResponseOpened)] == [second.response]


def test_words_that_are_still_looked_up_when_speech_goes_on_are_cancelled() -> None:
    world = room()
    world.perception.delay = from_ms(300)
    world.talk(640)
    world.quiet(100)
    world.talk(64)
    asked = world.effects(Transcribe)
    assert [cancel.request for cancel in world.effects(CancelPerception)] == [asked[0].request]
    world.quiet(600)
    assert len(world.notices(TurnEnded)) == 1
    assert world.count(counters.LATE_ANSWER) == 0


def test_words_that_come_after_the_turn_has_ended_are_awaited() -> None:
    world = room(SessionConfig(transcribe_input=True))
    world.perception.delay = from_ms(1500)
    world.ask()
    assert len(world.notices(TurnEnded)) == 1
    assert world.effects(StartResponse) == []
    world.quiet(1500)
    assert len(world.effects(StartResponse)) == 1
    assert len(world.effects(Transcribe)) == 1
    assert len(world.notices(InputTranscriptDone)) == 1
    assert "transcript" not in world.timers


@pytest.mark.parametrize("delay", [60, 1500], ids=["while the turn closes", "after it"])
def test_how_sure_the_recognizer_was_is_told_to_who_asked(delay: int) -> None:
    tokens = (Token(" yes", (32, 121, 101, 115), -0.25),)
    for asked in (True, False):
        config = SessionConfig(transcribe_input=True, transcript_logprobs=asked)
        world = room(config, Abilities(logprobs=True))
        assert [listen.logprobs for listen in world.effects(OpenPerception)] == [asked]
        world.perception.tokens, world.perception.delay = tokens, from_ms(delay)
        world.ask()
        world.quiet(1500)
        assert [done.tokens for done in world.notices(InputTranscriptDone)] == [tokens if asked else ()]


def test_a_turn_without_words_is_not_answered() -> None:
    world = room()
    world.perception.words = "  "
    world.ask()
    world.quiet(2000)
    assert world.count(counters.EMPTY_TURNS) == 1
    assert world.effects(StartResponse) == []


def test_a_turn_without_words_is_answered_where_nobody_transcribes() -> None:
    world = room(abilities=Abilities(transcripts=False))
    world.ask()
    assert world.effects(Transcribe) == []
    assert len(world.effects(StartResponse)) == 1


def test_a_turn_is_not_answered_unless_it_is_wanted() -> None:
    world = room(SessionConfig(turns=TurnConfig(create_response=False)))
    world.ask()
    world.quiet(2000)
    assert len(world.notices(TurnEnded)) == 1
    assert world.effects(StartResponse) == []


def test_captions_are_made_while_the_user_talks_on() -> None:
    world = room(SessionConfig(transcribe_input=True))
    world.perception.look = "so far"
    world.talk(2200)
    hypotheses = world.notices(InputTranscriptHypothesis)
    assert [hypothesis.text for hypothesis in hypotheses] == ["so far", "so far"]
    assert hypotheses[0].item == world.notices(SpeechStarted)[0].item


def test_a_caption_without_words_is_not_told() -> None:
    world = room(SessionConfig(transcribe_input=True))
    world.perception.look = " "
    world.talk(1500)
    assert world.notices(InputTranscriptHypothesis) == []


def test_captions_that_come_too_late_are_given_up_with_the_turn() -> None:
    world = room(SessionConfig(transcribe_input=True))
    world.talk(900)
    world.perception.silent = True
    world.talk(200)
    caption = world.effects(Transcribe)[-1]
    assert not caption.final
    world.perception.silent = False
    world.quiet(600)
    assert caption.request in [cancel.request for cancel in world.effects(CancelPerception)]
    assert world.session.state.requests == {}


def test_the_semantic_end_is_asked_for() -> None:
    world = room(SessionConfig(turns=SEMANTIC))
    world.talk(640)
    world.quiet(320)
    assert len(world.effects(AssessTurn)) == 1
    assert [ended.by for ended in world.notices(TurnEnded)] == ["end_of_turn"]


def test_a_turn_that_sounds_unfinished_waits() -> None:
    world = room(SessionConfig(turns=SEMANTIC))
    world.perception.complete = 0.05
    world.talk(640)
    world.quiet(1500)
    assert world.notices(TurnEnded) == []
    world.quiet(3000)
    assert len(world.notices(TurnEnded)) == 1
    assert len(world.effects(AssessTurn)) > 2


def test_an_assessment_that_nobody_waits_for_is_counted() -> None:
    world = room(SessionConfig(turns=SEMANTIC))
    world.post(EndOfTurnProbability(99, 0, 0.9))
    world.post(Transcript(98, 0, 0, "late"))
    world.post(PerceptionFailed(97, "late", "late"))
    assert world.count(counters.LATE_ANSWER) == 3


def test_an_assessment_after_turn_detection_went_is_nothing() -> None:
    world = room(SessionConfig(turns=SEMANTIC))
    world.perception.silent = True
    world.talk(640)
    world.quiet(200)
    (asked,) = world.effects(AssessTurn)
    world.post(ConfigUpdate(SessionConfig(turns=None)))
    world.post(EndOfTurnProbability(asked.request, asked.at, 0.9))
    assert world.notices(TurnEnded) == []


# --- when perception does not answer -------------------------------------------------------------------------------


def test_words_that_fail_while_the_turn_closes_are_asked_for_again() -> None:
    world = room()
    world.perception.failing = True
    world.talk(640)
    world.quiet(200)
    world.perception.failing = False
    world.quiet(600)
    assert len(world.effects(Transcribe)) == 2
    assert len(world.notices(ResponseOpened)) == 1


def test_words_that_fail_after_the_turn_are_told_of_and_the_turn_is_not_answered() -> None:
    world = room(SessionConfig(transcribe_input=True))
    world.perception.failing = True
    world.ask()
    world.quiet(500)
    (failed,) = world.notices(InputTranscriptFailed)
    assert (failed.item, failed.code) == (world.notices(SpeechStarted)[0].item, "model_error")
    assert world.effects(StartResponse) == []
    assert world.count(counters.EMPTY_TURNS) == 1


def test_a_client_that_wants_no_transcripts_is_told_of_the_error_all_the_same() -> None:
    world = room()
    world.perception.failing = True
    world.ask()
    world.quiet(500)
    (failed,) = world.notices(CommandFailed)
    assert (failed.code, failed.kind) == ("model_error", "server_error")


def test_words_that_never_come_time_out() -> None:
    world = room(SessionConfig(transcribe_input=True))
    world.perception.silent = True
    world.ask()
    world.quiet(15_100)
    (failed,) = world.notices(InputTranscriptFailed)
    assert failed.code == "transcription_timeout"
    assert world.session.state.requests == {}
    assert len(world.effects(CancelPerception)) == 1


def test_the_time_out_is_taken_back_when_the_words_come() -> None:
    world = room()
    world.perception.delay = from_ms(1000)
    world.ask()
    assert "transcript" in world.timers
    world.quiet(1500)
    assert "transcript" not in world.timers


def test_words_for_a_deleted_item_are_told_to_nobody() -> None:
    world = room(SessionConfig(transcribe_input=True))
    world.perception.delay = from_ms(1000)
    world.ask()
    item = world.session.state.awaiting[0]
    world.session.state.conversation.delete(item)
    world.quiet(1500)
    assert world.notices(InputTranscriptDone) == []


def test_a_look_that_fails_leaves_the_decision_to_duration() -> None:
    world = room(SessionConfig(turns=SEMANTIC))
    world.converse(700)
    world.perception.failing = True
    world.talk(96)
    world.quiet(32 * 8)
    assert world.count(counters.RESUMES) == 1
    assert world.count(counters.INTERRUPTIONS) == 0


def test_a_failed_caption_is_nothing() -> None:
    world = room(SessionConfig(transcribe_input=True))
    world.talk(900)
    world.perception.failing = True
    world.talk(200)
    assert world.notices(CommandFailed) == []
    assert world.notices(InputTranscriptFailed) == []


# --- over the agent ------------------------------------------------------------------------------------------------


def test_speech_over_the_agent_holds_it_and_is_not_told_of_yet() -> None:
    world = room()
    world.converse(700)
    before = len(world.effects(AdmitFrame))
    world.talk(32)
    assert len(world.effects(HoldCarrier)) == 1
    assert world.notices(Held)[0].at == world.position - WINDOW
    world.talk(96)
    assert len(world.effects(AdmitFrame)) <= before + 2
    assert len(world.notices(SpeechStarted)) == 1


def test_the_interruption_is_told_of_with_the_true_onset() -> None:
    world = room()
    world.converse(700)
    onset = world.position
    world.talk(300)
    started = world.notices(SpeechStarted)[-1]
    assert started.at == onset
    assert world.count(counters.INTERRUPTIONS) == 1
    assert world.notices(EpochBegan)[0].cause == "barge_in"
    assert world.session.state.policy.open


def test_after_a_backchannel_the_agent_goes_on_without_loss() -> None:
    world = room(SessionConfig(turns=SEMANTIC))
    world.perception.look = "mm-hmm"
    world.converse(700)
    world.talk(96)
    world.quiet(3000)
    assert world.notices(Resumed)[0].words == "mm-hmm"
    assert len(world.effects(ResumeCarrier)) == 1
    frames = world.effects(AdmitFrame)
    assert [frame.start for frame in frames[1:]] == [frame.end for frame in frames[:-1]]
    assert frames[-1].end == world.engine.length
    assert world.effects(AdvanceEpoch) == []


def test_a_reply_that_was_not_heard_is_withdrawn_and_the_turn_goes_on() -> None:
    world = room()
    world.engine.latency = from_ms(2000)
    world.ask()
    world.quiet(300)
    world.talk(320)
    assert world.count(counters.WITHDRAWN) == 1
    assert world.notices(EpochBegan)[0].cause == "withdrawn"
    world.quiet(700)
    context = world.effects(StartResponse)[-1].context
    assert len(context) == 1
    assert context[0].text.count("question") == 2


def test_an_interruption_while_the_words_are_awaited_takes_the_turn_back() -> None:
    world = room()
    world.perception.delay = from_ms(1500)
    world.ask()
    world.talk(320)
    assert world.count(counters.WITHDRAWN) == 1
    assert world.session.state.awaiting == []
    assert not world.session.state.respond
    assert "transcript" not in world.timers
    world.quiet(4000)
    assert len(world.notices(ResponseOpened)) == 1


def test_speech_that_outlasts_the_reply_opens_a_turn_without_an_epoch() -> None:
    world = room(SessionConfig(turns=TurnConfig(commit_ms=2000)))
    world.engine.length = from_ms(400)
    world.converse(250)
    world.talk(600)
    assert world.effects(AdvanceEpoch) == []
    assert len(world.notices(SpeechStarted)) == 2
    assert len(world.notices(Resumed)) == 1


def test_words_that_come_when_the_reply_has_run_out_open_a_turn_without_an_epoch() -> None:
    world = room(SessionConfig(turns=SEMANTIC, lead=from_ms(600)))
    world.engine.length = from_ms(900)
    world.converse(300)
    world.perception.silent = True
    world.talk(96)
    world.quiet(32)
    (look,) = [effect for effect in world.effects(Transcribe) if not effect.final]
    world.wait(1000)
    assert world.session.state.sounding == []
    effects = world.post(Transcript(look.request, look.start, look.end, "stop"))
    assert effects_in(effects, AdvanceEpoch) == []
    assert len(notices_in(effects, SpeechStarted)) == 1
    assert effects_in(effects, ResumeCarrier)


def test_a_look_takes_a_little_of_what_was_before_the_onset_but_nothing_of_another_item() -> None:
    world = room(SessionConfig(turns=SEMANTIC))
    world.converse(700)
    world.talk(96)
    world.quiet(32)
    (look,) = [effect for effect in world.effects(Transcribe) if not effect.final]
    assert look.start == world.notices(Held)[0].at - from_ms(100)
    world.post(ConfigUpdate(SessionConfig(turns=replace(SEMANTIC, silence_ms=200))))
    world.quiet(1000)
    world.post(InputCommit())
    edge = world.session.state.input.buffer_start
    world.talk(96)
    world.quiet(32)
    look = [effect for effect in world.effects(Transcribe) if not effect.final][-1]
    assert look.start == edge


def test_an_answer_about_an_earlier_sound_decides_nothing_about_a_later_one() -> None:
    world = room(SessionConfig(turns=SEMANTIC))
    world.converse(700)
    world.perception.silent = True
    world.talk(96)
    world.quiet(32)
    (first,) = [effect for effect in world.effects(Transcribe) if not effect.final]
    world.post(ResponseCancel())
    world.post(ResponseCreate())
    world.quiet(700)
    world.talk(96)
    world.quiet(32)
    assert world.session.state.held
    effects = world.post(Transcript(first.request, first.start, first.end, "stop"))
    assert effects_in(effects, AdvanceEpoch) == []
    assert world.session.state.held


def test_nobody_interrupts_after_interruptions_were_switched_off() -> None:
    config = SessionConfig(turns=SEMANTIC)
    world = room(config)
    world.converse(700)
    world.perception.silent = True
    world.talk(96)
    world.quiet(32)
    (look,) = [effect for effect in world.effects(Transcribe) if not effect.final]
    world.post(ConfigUpdate(replace(config, turns=replace(SEMANTIC, interrupt_response=False))))
    effects = world.post(Transcript(look.request, look.start, look.end, "stop"))
    assert effects_in(effects, AdvanceEpoch) == []
    assert effects_in(effects, ResumeCarrier)
    assert effects_in(effects, AdmitFrame)


def test_without_interruptions_the_agent_is_not_held_and_the_turn_is_answered_after_it() -> None:
    world = room(SessionConfig(turns=TurnConfig(interrupt_response=False)))
    world.converse(500)
    world.ask(400)
    assert world.effects(HoldCarrier) == []
    assert world.effects(AdvanceEpoch) == []
    world.quiet(3000)
    assert len(world.notices(ResponseOpened)) == 2
    assert world.effects(AdmitFrame)[-1].end == world.engine.length


def test_the_user_who_has_the_floor_keeps_it_until_the_turn_ends() -> None:
    world = room()
    world.talk(320)
    world.post(ResponseCreate())
    world.talk(640)
    assert len(world.notices(ResponseOpened)) == 1
    assert world.effects(AdmitFrame) == []
    world.quiet(560)
    assert world.effects(AdmitFrame)[0].response == world.notices(ResponseOpened)[0].response.id


def test_an_agent_that_is_late_with_its_reports_is_still_busy() -> None:
    world = room(acknowledged=True)
    world.engine.length = from_ms(400)
    world.carrier.delay = from_ms(800)
    world.converse(600)
    assert world.session.state.ledger.clock < world.now
    world.talk(32)
    assert len(world.effects(HoldCarrier)) == 1


# --- when the input stops ------------------------------------------------------------------------------------------


def test_a_turn_in_the_middle_of_which_the_input_stops_is_ended() -> None:
    world = room()
    world.talk(640)
    world.wait(1600)
    assert [ended.by for ended in world.notices(TurnEnded)] == ["stalled"]


def test_input_that_goes_on_is_no_stall() -> None:
    world = room()
    world.talk(4000)
    assert world.notices(TurnEnded) == []
    assert "stall" in world.timers


def test_concealed_input_is_a_stall() -> None:
    world = room()
    world.talk(640)
    world.feed(60, 0.9, concealed=True)
    assert [ended.by for ended in world.notices(TurnEnded)] == ["stalled"]


def test_a_hold_in_the_middle_of_which_the_input_stops_is_decided() -> None:
    world = room()
    world.engine.length = from_ms(6000)
    world.converse(700)
    world.talk(96)
    world.wait(1600)
    assert len(world.notices(Resumed)) == 1
    assert not world.session.state.held


def test_an_interruption_that_a_stall_has_decided_ends_with_the_next_one() -> None:
    world = room(SessionConfig(turns=SEMANTIC))
    world.engine.length = from_ms(6000)
    world.converse(700)
    world.perception.silent = True
    world.talk(500)
    world.wait(1600)
    assert world.count(counters.INTERRUPTIONS) == 1
    world.wait(1600)
    assert not world.session.state.policy.open
    assert world.notices(TurnEnded)[-1].by == "stalled"


def test_a_stall_timer_after_the_turn_has_ended_is_nothing() -> None:
    world = room()
    world.converse(200)
    assert world.post(TimerDue("stall")) == []


# --- what was cleared or committed ---------------------------------------------------------------------------------


def test_speech_in_what_was_cleared_opens_no_turn() -> None:
    world = room()
    world.lag = from_ms(200)
    world.talk(160)
    world.post(InputClear())
    world.quiet(2000)
    assert world.notices(SpeechStarted) == []


def test_speech_in_what_was_committed_opens_no_turn() -> None:
    world = room()
    world.lag = from_ms(200)
    world.talk(160)
    world.post(InputCommit())
    world.quiet(2000)
    assert world.notices(SpeechStarted) == []
    assert len(world.notices(InputCommitted)) == 1


def test_speech_begins_no_earlier_than_its_item() -> None:
    world = room()
    world.talk(160)
    world.post(InputClear())
    edge = world.session.state.input.buffer_start
    world.post(AudioArrived(edge, edge + 4 * WINDOW))
    for start in range(edge - WINDOW // 2, edge + 2 * WINDOW, WINDOW):
        world.post(SpeechProbability(start, start + WINDOW, 0.9))
    assert world.notices(SpeechStarted)[-1].at == edge


def test_a_lost_carrier_takes_the_unfinished_turn_with_it() -> None:
    world = room()
    world.talk(640)
    world.quiet(96)
    world.post(CarrierLost())
    state = world.session.state
    assert state.utterance is None
    assert state.policy.phase == "idle"
    assert state.requests == {}
    assert state.input.buffer_start == state.input.watermark


def test_the_item_of_a_turn_carries_its_words_when_they_are_known() -> None:
    world = room()
    world.ask()
    (added,) = world.notices(ItemAdded)
    assert added.item.text.startswith("question")
    assert added.item.spoken


# --- engines that own their turns ----------------------------------------------------------------------------------


def test_an_engine_that_owns_its_turns_is_not_held_over_a_short_sound() -> None:
    world = room(abilities=Abilities(engine_turns=True, engine_listens=True))
    world.duplex.speaking = True
    world.quiet(800)
    world.talk(320)
    world.quiet(600)
    assert world.effects(HoldCarrier) == []
    assert world.effects(AdvanceEpoch) == []
    assert len(world.notices(TurnEnded)) == 1
    assert world.effects(StartResponse) == []


def test_an_engine_that_talks_on_over_long_speech_is_cut_and_muted() -> None:
    world = room(abilities=Abilities(engine_turns=True, engine_listens=True))
    world.duplex.speaking = True
    world.quiet(800)
    world.talk(700)
    assert [began.cause for began in world.notices(EpochBegan)] == ["barge_in"]
    assert world.count(counters.INTERRUPTIONS) == 1
    frames = len(world.effects(AdmitFrame))
    world.talk(600)
    assert len(world.effects(AdmitFrame)) == frames


def test_an_engine_that_begins_in_the_users_turn_is_given_time_to_yield() -> None:
    config = SessionConfig(turns=TurnConfig(semantic_commit_ms=640))
    world = room(config, Abilities(engine_turns=True, engine_listens=True))
    world.talk(1500)
    world.duplex.speaking = True
    world.talk(500)
    assert world.effects(AdvanceEpoch) == []
    world.talk(500)
    assert len(world.effects(AdvanceEpoch)) == 1


def test_an_engine_whose_interruption_is_switched_off_is_left_alone() -> None:
    config = SessionConfig(turns=TurnConfig(interrupt_response=False))
    world = room(config, Abilities(engine_turns=True, engine_listens=True))
    world.duplex.speaking = True
    world.quiet(800)
    world.talk(2000)
    assert world.effects(AdvanceEpoch) == []


def test_the_stall_timer_is_set_once() -> None:
    world = room()
    world.talk(640)
    assert [timer.name for timer in world.effects(SetTimer)].count("stall") == 1


def test_a_turn_of_which_nobody_said_anything_ends_in_nothing() -> None:
    state = State("sess_t", 1, SessionConfig(), Abilities())
    out: list[Effect] = []
    listening = Listening(state, out, Speaking(state, out))
    state.policy.phase = "closing"
    listening.speech(SpeechProbability(0, WINDOW, 0.9))
    state.policy.phase = "closing"
    listening.speech(SpeechProbability(from_ms(2000), from_ms(2032), 0.0))
    assert out == []


def test_at_the_close_nothing_is_asked_of_perception_any_more() -> None:
    world = room()
    world.perception.silent = True
    world.ask()
    world.talk(640)
    world.quiet(96)
    asked = [effect.request for effect in world.effects(Transcribe)]
    effects = world.post(Close())
    assert len(asked) == 2
    cancelled = [effect.request for effect in world.effects(CancelPerception)]
    assert sorted(cancelled) == asked
    assert effects_in(effects, CancelPerception)


# --- a user who says nothing ---------------------------------------------------------------------------------------


def test_a_silent_user_is_taken_as_a_turn_after_the_idle_time() -> None:
    world = World(SessionConfig(turns=TurnConfig(idle_timeout_ms=5000)))
    world.attach()
    world.ask()
    while not world.notices(PlaybackStopped):
        world.quiet(32)
    stopped = world.now
    world.quiet(4900)
    assert not world.notices(InputTimedOut)
    world.quiet(200)
    (timed_out,) = world.notices(InputTimedOut)
    assert stopped + from_ms(5000) <= world.now
    assert timed_out.item in [notice.item for notice in world.notices(InputCommitted)]
    assert len(world.effects(StartResponse)) == 2


def test_the_idle_time_starts_anew_when_the_user_speaks() -> None:
    world = World(SessionConfig(turns=TurnConfig(idle_timeout_ms=5000)))
    world.attach()
    world.ask()
    while not world.notices(PlaybackStopped):
        world.quiet(32)
    world.quiet(4000)
    world.talk(640)
    world.quiet(1500)
    assert not world.notices(InputTimedOut)


def test_without_an_idle_time_silence_lasts() -> None:
    world = World(SessionConfig())
    world.attach()
    world.ask()
    world.quiet(30_000)
    assert not world.notices(InputTimedOut)
    assert len(world.effects(StartResponse)) == 1


def test_before_the_first_reply_no_idle_time_runs() -> None:
    world = World(SessionConfig(turns=TurnConfig(idle_timeout_ms=5000)))
    world.attach()
    world.quiet(20_000)
    assert not world.notices(InputTimedOut)


def idle(ms: int | None) -> ConfigUpdate:
    return ConfigUpdate(SessionConfig(turns=TurnConfig(idle_timeout_ms=ms)))


def test_an_idle_time_that_is_switched_off_and_on_again_counts_anew() -> None:
    world = World(SessionConfig(turns=TurnConfig(idle_timeout_ms=5000)))
    world.converse(4000)
    assert "idle" in world.timers
    world.post(idle(None))
    assert "idle" not in world.timers
    world.quiet(6000)
    world.post(idle(5000))
    assert world.timers["idle"] == world.now + from_ms(5000)


def test_another_idle_time_holds_from_its_setting() -> None:
    world = World(SessionConfig(turns=TurnConfig(idle_timeout_ms=30_000)))
    world.converse(4000)
    world.post(idle(5000))
    assert world.timers["idle"] == world.now + from_ms(5000)


def test_an_idle_timer_that_is_early_does_nothing() -> None:
    world = World(SessionConfig(turns=TurnConfig(idle_timeout_ms=5000)))
    world.converse(4000)
    world.post(TimerDue("idle"))
    assert not world.notices(InputTimedOut)


def test_the_idle_time_leaves_nothing_behind_the_end() -> None:
    world = World(SessionConfig(turns=TurnConfig(idle_timeout_ms=5000)))
    world.converse(4000)
    assert isinstance(world.post(Close())[-1], EndSession)
