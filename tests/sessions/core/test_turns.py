"""The turn policy, window by window. A window is 32 ms, as the VAD's are."""

from __future__ import annotations

import pytest

from sessions.core.config import SessionConfig, TurnConfig
from sessions.core.timeline import Ticks, from_ms
from sessions.core.turns import (
    TURN_MAX,
    Agent,
    Assess,
    Began,
    Closing,
    Decision,
    Ended,
    Hold,
    Interrupt,
    Look,
    Reopened,
    Resume,
    TurnPolicy,
)

W: Ticks = from_ms(32)
SERVER = TurnConfig()
SEMANTIC = TurnConfig(kind="semantic_vad", semantic_commit_ms=640)


class Room:
    """Feeds a policy windows and keeps what it decides."""

    def __init__(self, config: TurnConfig = SERVER, agent: Agent = "silent", transcripts: bool = True) -> None:
        self.policy = TurnPolicy(transcripts=transcripts)
        self.config = config
        self.agent: Agent = agent
        self.at: Ticks = 0

    def phase(self) -> str:
        return self.policy.phase

    def window(
        self, probability: float, level: float = -120.0, echo: bool = False, hiss: float = -120.0
    ) -> list[Decision]:
        start = self.at
        self.at += W
        return self.policy.window(start, self.at, probability, self.agent, self.config, level, echo, hiss)

    def echo(self, windows: int) -> list[Decision]:
        """The agent's own voice comes back, loud and clear."""
        return [decision for _ in range(windows) for decision in self.window(0.95, -20.0, echo=True)]

    def feed(self, windows: int, probability: float, level: float = -120.0) -> list[Decision]:
        return [decision for _ in range(windows) for decision in self.window(probability, level)]

    def bang(self, windows: int, level: float = -30.0) -> list[Decision]:
        return self.feed(windows, 0.02, level)

    def talk(self, windows: int) -> list[Decision]:
        return self.feed(windows, 0.9)

    def quiet(self, windows: int) -> list[Decision]:
        return self.feed(windows, 0.02)


# --- a turn over a silent agent ------------------------------------------------------------------------------------


def test_silence_opens_nothing() -> None:
    room = Room()
    assert room.quiet(100) == []
    assert room.phase() == "idle"


def test_one_window_of_speech_is_a_click() -> None:
    room = Room()
    assert room.talk(1) == []
    assert room.phase() == "onset"
    assert room.quiet(2) == []
    assert room.phase() == "onset"
    assert room.quiet(1) == []
    assert room.phase() == "idle"


def test_two_windows_of_speech_open_a_turn_at_the_true_onset() -> None:
    room = Room()
    room.quiet(3)
    assert room.talk(2) == [Began(3 * W)]
    assert room.policy.open


def test_a_short_gap_in_the_onset_does_not_move_it() -> None:
    room = Room()
    assert room.talk(1) == []
    assert room.quiet(1) == []
    assert room.talk(1) == [Began(0)]


def test_less_sure_speech_goes_on_than_begins() -> None:
    room = Room()
    assert room.feed(10, 0.4) == []
    room.talk(2)
    assert room.feed(10, 0.4) == []
    assert room.phase() == "speech"


def test_the_threshold_is_a_setting() -> None:
    room = Room(TurnConfig(threshold=0.8))
    assert room.feed(5, 0.79) == []
    assert room.feed(2, 0.8) == [Began(5 * W)]


def test_a_turn_closes_after_two_windows_and_ends_after_the_silence() -> None:
    room = Room()
    room.talk(10)
    assert room.quiet(1) == []
    assert room.quiet(1) == [Closing(0, 10 * W)]
    assert room.quiet(13) == []
    assert room.quiet(1) == [Ended(0, 10 * W, 26 * W, "silence")]
    assert room.phase() == "idle"


def test_the_silence_that_ends_a_turn_is_a_setting() -> None:
    room = Room(TurnConfig(silence_ms=200))
    room.talk(10)
    assert room.quiet(7)[-1] == Ended(0, 10 * W, 17 * W, "silence")


def test_speech_in_the_closing_silence_reopens_the_turn() -> None:
    room = Room()
    room.talk(10)
    room.quiet(5)
    assert room.talk(1) == [Reopened()]
    assert room.phase() == "speech"
    room.talk(4)
    assert room.quiet(16)[-1] == Ended(0, 20 * W, 36 * W, "silence")


def test_a_turn_without_a_pause_ends_at_the_longest_length() -> None:
    room = Room()
    decisions = room.talk(TURN_MAX // W + 1)
    assert decisions == [Began(0), Ended(0, TURN_MAX, TURN_MAX, "length")]


# --- semantic ends -------------------------------------------------------------------------------------------------


def closing(config: TurnConfig = SEMANTIC) -> Room:
    """A turn of ten windows that has just begun to close."""
    room = Room(config)
    room.talk(10)
    assert room.quiet(2) == [Closing(0, 10 * W)]
    return room


def test_the_end_of_turn_is_asked_for_and_asked_again() -> None:
    room = closing()
    assert room.quiet(2) == []
    assert room.quiet(1) == [Assess(0, 15 * W)]
    assert room.quiet(9) == []
    assert room.quiet(1) == [Assess(0, 25 * W)]


def test_a_turn_that_sounds_complete_ends_at_once() -> None:
    room = closing()
    room.quiet(6)
    assert room.policy.assessed(15 * W, 0.9, SEMANTIC) == [Ended(0, 10 * W, 18 * W, "end_of_turn")]


def test_a_turn_that_sounds_complete_early_waits_for_the_shortest_silence() -> None:
    room = closing()
    room.quiet(3)
    assert room.policy.assessed(15 * W, 0.9, SEMANTIC) == []
    assert room.quiet(3) == [Ended(0, 10 * W, 18 * W, "end_of_turn")]


def test_a_turn_that_sounds_unfinished_waits_longer_the_less_it_does() -> None:
    waited = []
    for probability in (0.45, 0.25, 0.05):
        room = closing()
        room.quiet(3)
        assert room.policy.assessed(15 * W, probability, SEMANTIC) == []
        ended = room.quiet(200)[-1]
        assert isinstance(ended, Ended)
        waited.append(ended.decided_at)
    assert waited == sorted(waited)
    assert len(set(waited)) == 3


def test_an_unfinished_turn_ends_after_the_longest_silence() -> None:
    room = closing()
    ended = room.quiet(200)[-1]
    assert ended == Ended(0, 10 * W, 10 * W + 125 * W, "silence")


def test_an_assessment_of_an_earlier_pause_is_nothing() -> None:
    room = closing()
    room.quiet(3)
    room.talk(1)
    assert room.policy.assessed(15 * W, 0.9, SEMANTIC) == []
    room.quiet(2)
    assert room.phase() == "closing"
    assert room.policy.assessed(15 * W, 0.9, SEMANTIC) == []
    assert room.policy.end_probability is None


def test_a_question_mark_is_evidence_of_an_end() -> None:
    room = closing()
    room.quiet(6)
    room.policy.assessed(15 * W, 0.1, SEMANTIC)
    assert room.phase() == "closing"
    assert room.policy.worded("is it Paris?", SEMANTIC) == [Ended(0, 10 * W, 18 * W, "end_of_turn")]


@pytest.mark.parametrize("words", ["and then", "well...", "one, two,", "I was\u2026", '"and -'])
def test_words_that_trail_off_are_none(words: str) -> None:
    room = closing()
    room.quiet(10)
    room.policy.assessed(15 * W, 0.1, SEMANTIC)
    assert room.policy.worded(words, SEMANTIC) == []


def test_a_full_stop_is_half_of_one() -> None:
    room = closing()
    room.quiet(3)
    room.policy.assessed(15 * W, 0.0, SEMANTIC)
    room.policy.worded("it is Paris.", SEMANTIC)
    ended = room.quiet(200)[-1]
    assert isinstance(ended, Ended)
    assert from_ms(240) < ended.decided_at - ended.speech_end < from_ms(SEMANTIC.max_silence_ms)


def test_words_end_no_turn_by_themselves() -> None:
    room = closing()
    room.quiet(6)
    assert room.policy.worded("is it Paris?", SEMANTIC) == []


def test_words_of_a_turn_that_went_on_are_nothing() -> None:
    room = closing()
    room.talk(1)
    assert room.policy.worded("is it Paris?", SEMANTIC) == []


def test_words_do_not_end_a_turn_that_ends_by_silence() -> None:
    room = closing(SERVER)
    room.quiet(8)
    assert room.policy.worded("is it Paris?", SERVER) == []


# --- over the agent ------------------------------------------------------------------------------------------------


def over(config: TurnConfig = SERVER, transcripts: bool = True) -> Room:
    """A sound over the agent, one window old."""
    room = Room(config, "busy", transcripts)
    room.quiet(1)
    assert room.talk(1) == [Hold(W)]
    return room


def test_the_first_window_of_speech_over_the_agent_holds_it() -> None:
    assert over().phase() == "over"


def test_an_onset_during_which_the_agent_begins_is_a_hold() -> None:
    room = Room()
    room.talk(1)
    room.agent = "busy"
    assert room.talk(1) == [Hold(0)]


def test_speech_that_lasts_is_an_interruption() -> None:
    room = over()
    assert room.talk(5) == []
    assert room.talk(1) == [Interrupt(W)]
    assert room.policy.open


def test_a_short_sound_lets_the_agent_go_on() -> None:
    room = over()
    room.talk(1)
    assert room.quiet(4) == []
    assert room.quiet(1) == [Resume("")]
    assert room.phase() == "idle"


def test_semantic_turns_look_at_the_words_of_a_sound_that_stops() -> None:
    room = over(SEMANTIC)
    room.talk(2)
    assert room.quiet(1) == [Look(W, 5 * W)]
    assert room.quiet(1) == []


def test_semantic_turns_look_at_the_words_of_a_sound_that_goes_on() -> None:
    room = over(SEMANTIC)
    assert room.talk(5) == []
    assert room.talk(1) == [Look(W, 8 * W)]


def test_a_sound_too_short_for_words_is_not_looked_at() -> None:
    room = over(SEMANTIC)
    assert room.quiet(5) == [Resume("")]


def test_without_transcripts_duration_decides() -> None:
    room = over(SEMANTIC, transcripts=False)
    assert room.talk(18) == []
    assert room.talk(1) == [Interrupt(W)]


def test_words_of_an_interruption_take_the_floor() -> None:
    room = over(SEMANTIC)
    room.talk(2)
    room.quiet(1)
    assert room.policy.looked(5 * W, "stop", SEMANTIC) == [Interrupt(W)]
    assert room.phase() == "speech"


def test_words_that_may_be_half_heard_are_looked_at_twice_before_they_interrupt() -> None:
    room = over(SEMANTIC)
    room.talk(6)
    assert room.policy.looked(8 * W, "can you", SEMANTIC) == []
    assert room.talk(1) == [Look(W, 9 * W)]
    assert room.policy.looked(9 * W, "can you say", SEMANTIC) == [Interrupt(W)]


def test_unclear_words_take_the_floor_only_by_their_length() -> None:
    room = over(SEMANTIC)
    room.talk(6)
    assert room.policy.looked(8 * W, "boys", SEMANTIC) == []
    room.quiet(1)
    assert room.policy.looked(room.at, "boys", SEMANTIC) == []
    assert room.quiet(4) == [Resume("boys")]


def test_a_backchannel_lets_the_agent_go_on() -> None:
    room = over(SEMANTIC)
    room.talk(2)
    room.quiet(1)
    assert room.policy.looked(5 * W, "mm-hmm", SEMANTIC) == []
    assert room.quiet(4) == [Resume("mm-hmm")]


def test_a_backchannel_that_is_understood_late_resumes_at_once() -> None:
    room = over(SEMANTIC)
    room.talk(2)
    assert room.quiet(8) == [Look(W, 5 * W)]
    assert room.policy.looked(5 * W, "right", SEMANTIC) == [Resume("right")]


def test_a_backchannel_that_goes_on_is_looked_at_again() -> None:
    room = over(SEMANTIC)
    room.talk(6)
    assert room.policy.looked(8 * W, "yeah", SEMANTIC) == []
    assert room.talk(1) == [Look(W, 9 * W)]


def test_even_a_backchannel_takes_the_floor_when_it_lasts() -> None:
    room = over(SEMANTIC)
    decisions: list[Decision] = []
    while not any(isinstance(decision, Interrupt) for decision in decisions):
        decisions = room.talk(1)
        if room.policy.looking:
            decisions += room.policy.looked(room.at, "yeah", SEMANTIC)
    assert room.at - W == from_ms(1600)


def test_words_that_nobody_waits_for_are_nothing() -> None:
    room = over(SEMANTIC)
    assert room.policy.looked(2 * W, "stop", SEMANTIC) == []
    idle = Room(SEMANTIC)
    assert idle.policy.looked(2 * W, "stop", SEMANTIC) == []


def test_a_look_that_is_never_answered_is_decided_by_duration() -> None:
    short = over(SEMANTIC)
    short.talk(2)
    assert short.quiet(19) == [Look(W, 5 * W)]
    assert short.quiet(1) == [Resume("")]
    long = over(SEMANTIC)
    long.talk(13)
    assert long.quiet(20)[-1] == Interrupt(W)


def test_speech_that_outlasts_the_reply_is_a_turn_of_its_own() -> None:
    room = over()
    room.agent = "silent"
    assert room.talk(1) == [Resume(""), Began(W)]
    assert room.policy.open


def test_silence_after_the_reply_has_run_out_ends_the_hold() -> None:
    room = over()
    room.agent = "silent"
    assert room.quiet(4) == []
    assert room.quiet(1) == [Resume("")]


# --- loud sounds over the agent ------------------------------------------------------------------------------------


def test_a_loud_sound_holds_the_agent_before_the_detector_is_sure() -> None:
    room = Room(agent="busy")
    room.quiet(1)
    assert room.bang(1) == [Hold(W)]
    assert room.phase() == "over"


def test_a_loud_sound_over_a_silent_agent_is_nothing() -> None:
    room = Room()
    assert room.bang(10) == []
    assert room.phase() == "idle"


def test_what_is_there_from_the_first_window_on_is_the_room_and_holds_nobody() -> None:
    room = Room(agent="busy")
    assert room.bang(40) == []
    assert room.phase() == "idle"


def test_a_faint_hiss_holds_the_agent_as_a_loud_sound_does() -> None:
    room = Room(agent="busy")
    room.quiet(1)
    assert room.window(0.02, -50.0, hiss=-55.0) == [Hold(W)]


def test_a_sound_that_dies_away_lets_the_agent_go_on() -> None:
    room = Room(agent="busy")
    room.quiet(1)
    assert room.bang(1) == [Hold(W)]
    assert room.quiet(3) == []
    assert room.quiet(1) == [Resume("")]


def test_a_sound_that_lasts_holds_the_agent_only_as_long_as_the_lead_covers_it() -> None:
    room = Room(agent="busy")
    room.quiet(1)
    assert room.bang(1) == [Hold(W)]
    held = room.at
    assert room.bang(5) == []
    assert room.bang(1) == [Resume("")]
    assert room.at - held < SessionConfig().lead


def test_a_closure_within_a_sound_does_not_end_its_hold() -> None:
    room = Room(agent="busy")
    room.quiet(1)
    room.bang(3)
    assert room.quiet(2) == []
    assert room.talk(1) == []
    assert room.talk(1) == [Interrupt(W)]


def test_the_like_of_a_sound_that_was_no_speech_does_not_hold_again() -> None:
    room = Room(agent="busy")
    room.quiet(1)
    room.bang(8)
    assert room.bang(20) == []
    room.quiet(10)
    assert room.bang(20) == []
    assert room.bang(1, level=-10.0) == [Hold(room.at - W)]


def test_speech_that_begins_with_a_loud_breath_counts_from_it() -> None:
    room = Room(agent="busy")
    room.quiet(1)
    assert room.bang(3) == [Hold(W)]
    assert room.talk(3) == []
    assert room.talk(1) == [Interrupt(W)]


def test_a_loud_breath_with_one_window_of_speech_is_no_interruption() -> None:
    room = Room(TurnConfig(commit_ms=64), "busy")
    room.quiet(1)
    assert room.bang(3) == [Hold(W)]
    assert room.talk(1) == []
    assert room.talk(1) == [Interrupt(W)]


# --- when the input stops ------------------------------------------------------------------------------------------


def test_a_stall_ends_an_open_turn_where_it_stopped() -> None:
    room = Room()
    room.talk(10)
    assert room.policy.stalled() == [Ended(0, 10 * W, 10 * W, "stalled")]
    assert room.phase() == "idle"


def test_a_stall_decides_a_hold_by_its_length() -> None:
    assert over().policy.stalled() == [Resume("")]
    long = over(SEMANTIC)
    long.talk(12)
    assert long.policy.stalled() == [Interrupt(W)]


def test_a_stall_in_an_onset_is_forgotten() -> None:
    room = Room()
    room.talk(1)
    assert room.policy.stalled() == []
    assert room.phase() == "idle"


def test_a_reset_forgets_the_utterance() -> None:
    room = over(SEMANTIC)
    room.talk(6)
    room.policy.reset()
    assert room.policy == TurnPolicy(start=W, voiced_until=room.at, position=room.at, floor=room.policy.floor)


def test_a_backchannel_that_becomes_unclear_is_given_longer_than_words_that_always_were() -> None:
    room = over(SEMANTIC)
    room.talk(6)
    room.policy.looked(8 * W, "of course.", SEMANTIC)
    room.talk(1)
    room.policy.looked(9 * W, "of court", SEMANTIC)
    decisions = room.talk(from_ms(900) // W - 9)
    assert not any(isinstance(decision, Interrupt) for decision in decisions)
    decisions = [decision for _ in range(8) for decision in room.talk(1)]
    assert any(isinstance(decision, Interrupt) for decision in decisions)


# --- the agent's own voice ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [SERVER, SEMANTIC], ids=["server_vad", "semantic_vad"])
@pytest.mark.parametrize("agent", ["busy", "silent"])
def test_the_agents_own_voice_opens_nothing_and_holds_nobody(config: TurnConfig, agent: Agent) -> None:
    room = Room(config, agent)
    assert room.echo(100) == []
    assert room.phase() == "idle"


@pytest.mark.parametrize("config", [SERVER, SEMANTIC], ids=["server_vad", "semantic_vad"])
def test_a_hold_for_its_own_voice_ends_as_soon_as_that_is_known(config: TurnConfig) -> None:
    room = Room(config, "busy")
    assert room.talk(1) == [Hold(0)]
    room.talk(2)
    decisions = room.echo(2)
    assert decisions[-1] == Resume("")
    assert not any(isinstance(decision, Interrupt) for decision in decisions)
    assert room.echo(20) == []


def test_who_talks_over_the_echo_interrupts() -> None:
    """Windows in which both are heard may be like either."""
    room = Room(SERVER, "busy")
    room.echo(10)
    decisions = [decision for _ in range(4) for decision in (*room.talk(2), *room.echo(1))]
    assert decisions[0] == Hold(10 * W)
    assert Interrupt(10 * W) in decisions
    assert not any(isinstance(decision, Resume) for decision in decisions)


def test_the_tail_of_the_echo_opens_no_turn() -> None:
    room = Room(SERVER, "busy")
    room.echo(5)
    room.agent = "silent"
    assert room.echo(8) == []
    assert room.talk(2) == [Began(13 * W)]


def test_of_a_user_who_has_the_floor_it_means_nothing() -> None:
    room = Room()
    room.talk(10)
    assert room.echo(10) == []
    assert room.phase() == "speech"
