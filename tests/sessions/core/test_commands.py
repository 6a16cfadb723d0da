"""What a client may ask for, and what it is told when it may not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sessions.core import counters
from sessions.core.config import SessionConfig, TurnConfig
from sessions.core.effects import (
    AdmitFrame,
    AdvanceEpoch,
    AppendInput,
    CancelPerception,
    CancelResponse,
    Count,
    HoldCarrier,
    Notify,
    OpenEngine,
    OpenPerception,
    ResumeCarrier,
    StartResponse,
    Transcribe,
)
from sessions.core.events import (
    AudioArrived,
    CommandRejected,
    ConfigUpdate,
    EngineAudio,
    EngineDone,
    EngineToolCall,
    EngineWords,
    Event,
    InputClear,
    InputCommit,
    ItemCreate,
    ItemDelete,
    ItemRetrieve,
    ItemTruncate,
    OutputClear,
    ResponseCancel,
    ResponseCreate,
)
from sessions.core.notices import (
    CommandFailed,
    EpochBegan,
    InputCleared,
    InputCommitted,
    InputTranscriptDone,
    ItemAdded,
    ItemDeleted,
    ItemRetrieved,
    ItemTruncated,
    ResponseClosed,
    ResponseOpened,
    SessionConfigured,
    SpeechStarted,
    SpeechStopped,
    TurnEnded,
)
from sessions.core.records import Plain
from sessions.core.state import Abilities
from sessions.core.timeline import Word, from_ms

from .checker import Checker
from .driver import WINDOW, World, effects_in, notices_in

QUIET = SessionConfig(turns=None)
DUPLEX = Abilities(engine_turns=True, engine_listens=True)


def desk(config: SessionConfig = QUIET, abilities: Abilities | None = None) -> World:
    abilities = abilities or Abilities()
    return World(config, abilities, observers=(Checker(config, owns_turns=abilities.engine_turns),))


def spoken(world: World, ms: float = 700, done: bool = True, heard: float = 0) -> str:
    """An item that the agent speaks, 100 ms a word; returns its id."""
    world.engine.silent = True
    (start,) = effects_in(world.post(ResponseCreate()), StartResponse)
    words = tuple(Word(f" w{n}", from_ms(n * 100), from_ms(n * 100 + 100)) for n in range(int(ms) // 100))
    world.post(EngineWords(start.fence, start.response, words))
    world.post(EngineAudio(start.fence, start.response, 0, from_ms(ms)))
    if done:
        world.post(EngineDone(start.fence, start.response))
    world.wait(heard)
    return next(item.id for item in reversed(world.session.state.conversation.items) if item.role == "assistant")


def refusal(world: World, event: Event) -> CommandFailed:
    """The error that `event` is answered with; it must change nothing."""
    before = known(world)
    effects = world.post(event)
    (failed,) = notices_in(effects, CommandFailed)
    assert effects == [Count(counters.REJECTED), Notify(failed)]
    assert known(world) == before
    return failed


def known(world: World) -> Plain:
    """Everything that the session knows, apart from what time it is."""
    plain = world.session.snapshot()
    assert isinstance(plain, dict)
    return {name: value for name, value in plain.items() if name != "now"}


# --- refusals ------------------------------------------------------------------------------------------------------


def test_a_message_that_never_became_a_command_is_answered_and_counted() -> None:
    failed = refusal(desk(), CommandRejected("invalid_json", "not JSON", "body", "evt_1"))
    assert (failed.code, failed.message, failed.param, failed.command) == ("invalid_json", "not JSON", "body", "evt_1")
    assert failed.kind == "invalid_request_error"


@pytest.mark.parametrize(
    ("event", "code", "param"),
    [
        (InputCommit("e"), "input_audio_buffer_commit_empty", None),
        (ItemDelete("nobody", "e"), "item_not_found", "item_id"),
        (ItemRetrieve("nobody", "e"), "item_retrieve_invalid_item_id", "item_id"),
        (ItemTruncate("nobody", 0, 0, "e"), "item_not_found", "item_id"),
        (ItemCreate("user", previous="nobody", command="e"), "item_not_found", "previous_item_id"),
        (ItemCreate("user", previous="", command="e"), "item_not_found", "previous_item_id"),
        (ItemCreate("user", "function_call_output", call="nobody", command="e"), "call_not_found", "item.call_id"),
        (ResponseCancel(None, "e"), "response_cancel_not_active", None),
        (ResponseCancel("resp_old", "e"), "response_cancel_not_active", None),
    ],
)
def test_a_command_about_nothing_is_refused_and_changes_nothing(event: Event, code: str, param: str | None) -> None:
    failed = refusal(desk(), event)
    assert (failed.code, failed.param, failed.command) == (code, param, "e")


def test_the_session_answers_a_turn_after_any_refusal() -> None:
    world = desk(SessionConfig())
    for event in (InputCommit(), ItemDelete("x"), ItemTruncate("x", 5), ResponseCancel(), CommandRejected("a", "b")):
        world.post(event)
    world.converse(2500)
    assert world.notices(ResponseClosed)[0].response.status == "completed"


# --- configuration -------------------------------------------------------------------------------------------------


def test_a_new_configuration_holds_at_once_and_is_told() -> None:
    world = desk()
    config = replace(QUIET, instructions="be brief", language="de")
    effects = world.post(ConfigUpdate(config))
    assert notices_in(effects, SessionConfigured) == [SessionConfigured(config)]
    assert effects_in(effects, OpenPerception) == [OpenPerception(False, "de")]
    assert effects_in(world.post(ResponseCreate()), StartResponse)[0].instructions == "be brief"


def test_an_engine_that_owns_its_turns_is_told_who_it_is_when_that_changes_and_no_other() -> None:
    config = replace(QUIET, instructions="be brief")
    world = desk(abilities=DUPLEX)
    (told,) = effects_in(world.post(ConfigUpdate(config)), OpenEngine)
    assert (told.config, told.fence.epoch) == (config, 0)
    assert effects_in(world.post(ConfigUpdate(replace(config, language="de"))), OpenEngine) == []
    assert effects_in(desk().post(ConfigUpdate(config)), OpenEngine) == []


def test_the_voice_cannot_change_once_the_agent_has_spoken() -> None:
    world = desk()
    world.post(ConfigUpdate(replace(QUIET, voice="low")))
    spoken(world, heard=2000)
    failed = refusal(world, ConfigUpdate(replace(QUIET, voice="high"), "e"))
    assert (failed.code, failed.param, failed.command) == ("cannot_update_voice", "voice", "e")
    world.post(ConfigUpdate(replace(QUIET, voice="low", instructions="be kind")))
    assert len(world.notices(SessionConfigured)) == 2


def test_a_voice_that_the_engine_has_not_is_refused() -> None:
    world = desk(abilities=Abilities(voices=("low", "high")))
    failed = refusal(world, ConfigUpdate(replace(QUIET, voice="loud")))
    assert (failed.code, failed.param) == ("unknown_voice", "voice")
    assert "low, high" in failed.message
    world.post(ConfigUpdate(replace(QUIET, voice="high")))
    assert world.session.state.config.voice == "high"


def test_switching_turn_detection_forgets_what_was_being_said() -> None:
    world = desk(SessionConfig())
    world.talk(640)
    world.post(ConfigUpdate(QUIET))
    assert world.session.state.utterance is None
    world.quiet(1000)
    assert world.notices(SpeechStopped) == []


def test_switching_turn_detection_off_lets_a_held_agent_go_on() -> None:
    world = desk(SessionConfig())
    world.converse(700)
    world.talk(64)
    assert world.effects(HoldCarrier)
    effects = world.post(ConfigUpdate(QUIET))
    assert effects_in(effects, ResumeCarrier)
    assert effects_in(effects, AdmitFrame)


def test_changing_another_setting_leaves_the_turn_alone() -> None:
    world = desk(SessionConfig())
    world.talk(640)
    world.post(ConfigUpdate(SessionConfig(instructions="be brief")))
    world.quiet(600)
    assert len(world.notices(TurnEnded)) == 1


# --- input ---------------------------------------------------------------------------------------------------------


def test_push_to_talk_commits_what_was_said() -> None:
    world = desk(replace(QUIET, transcribe_input=True))
    world.talk(640)
    effects = world.post(InputCommit())
    (committed,) = notices_in(effects, InputCommitted)
    (asked,) = effects_in(effects, Transcribe)
    assert (asked.start, asked.end) == (0, world.position)
    assert notices_in(effects, TurnEnded) == []
    world.wait(1000)
    assert [done.item for done in world.notices(InputTranscriptDone)] == [committed.item]
    assert world.effects(StartResponse) == []
    failed = refusal(world, InputCommit())
    assert "0 ms" in failed.message


def test_too_little_input_is_an_accident() -> None:
    world = desk()
    world.quiet(96)
    assert "holds 96 ms" in refusal(world, InputCommit()).message
    world.quiet(32)
    assert notices_in(world.post(InputCommit()), InputCommitted)


def test_a_response_waits_for_the_words_of_the_input_that_it_answers() -> None:
    world = desk()
    world.talk(640)
    world.post(InputCommit())
    effects = world.post(ResponseCreate())
    assert notices_in(effects, ResponseOpened)
    assert effects_in(effects, StartResponse) == []
    world.wait(100)
    (start,) = world.effects(StartResponse)
    assert start.context[0].text.startswith("question")


def test_a_commit_by_hand_ends_the_open_turn_and_is_answered() -> None:
    world = desk(SessionConfig())
    world.talk(640)
    effects = world.post(InputCommit())
    assert len(notices_in(effects, SpeechStopped)) == 1
    assert notices_in(effects, TurnEnded)[0].by == "client"
    world.wait(500)
    assert len(world.notices(ResponseOpened)) == 1
    assert world.session.state.policy.phase == "idle"


def test_a_commit_by_hand_is_not_answered_unless_it_is_wanted() -> None:
    world = desk(SessionConfig(turns=TurnConfig(create_response=False)))
    world.talk(640)
    world.post(InputCommit())
    world.wait(500)
    assert world.effects(StartResponse) == []


def test_a_commit_by_hand_asks_for_words_up_to_there() -> None:
    world = desk(SessionConfig())
    world.perception.delay = from_ms(400)
    world.talk(640)
    world.quiet(96)
    (early,) = world.effects(Transcribe)
    effects = world.post(InputCommit())
    assert effects_in(effects, CancelPerception) == [CancelPerception(early.request)]
    (asked,) = effects_in(effects, Transcribe)
    assert asked.end == world.position > early.end


def test_a_commit_by_hand_uses_words_that_are_known() -> None:
    world = desk(SessionConfig())
    world.talk(640)
    world.quiet(200)
    effects = world.post(InputCommit())
    assert effects_in(effects, Transcribe) == []
    assert notices_in(effects, ItemAdded)[0].item.text.startswith("question")
    assert notices_in(effects, ResponseOpened)


def test_a_commit_by_hand_after_the_question_about_words_has_failed() -> None:
    world = desk(SessionConfig())
    world.perception.silent = True
    world.talk(640)
    world.quiet(96)
    request = world.session.state.utterance
    assert request is not None
    assert request.request is not None
    del world.session.state.requests[request.request]
    world.observers.clear()
    effects = world.post(InputCommit())
    assert effects_in(effects, CancelPerception) == []
    assert len(effects_in(effects, Transcribe)) == 1


@pytest.mark.parametrize("own", [False, True])
def test_a_hold_for_a_sound_that_lies_in_an_item_is_over(own: bool) -> None:
    world = desk(SessionConfig(turns=TurnConfig(kind="semantic_vad")))
    world.engine.length = from_ms(6000)
    world.converse(700)
    world.perception.silent = True
    world.talk(500)
    assert world.session.state.held
    audio = AudioArrived(world.position, world.position + from_ms(900))
    effects = world.post(ItemCreate("user", audio=audio) if own else InputCommit())
    assert effects_in(effects, ResumeCarrier)
    assert effects_in(effects, AdmitFrame)
    assert world.session.state.policy.phase == "idle"
    world.wait(5000)
    assert len(world.notices(SpeechStarted)) == 1


def test_clearing_the_input_forgets_the_turn() -> None:
    world = desk(SessionConfig())
    world.talk(640)
    effects = world.post(InputClear())
    assert notices_in(effects, InputCleared) == [InputCleared()]
    world.quiet(2000)
    assert world.notices(SpeechStopped) == []
    assert world.effects(StartResponse) == []
    assert world.session.state.input.buffer_start > 0


def test_clearing_the_input_takes_back_what_was_begun_for_it() -> None:
    world = desk(SessionConfig())
    world.talk(640)
    world.quiet(200)
    world.post(InputClear())
    assert len(world.effects(CancelResponse)) == 1
    assert world.notices(ResponseOpened) == []


# --- items ---------------------------------------------------------------------------------------------------------


def test_items_are_added_where_the_client_wants_them() -> None:
    world = desk()
    world.post(ItemCreate("user", id="b", text="two"))
    world.post(ItemCreate("user", id="a", text="one", previous="root"))
    world.post(ItemCreate("user", id="ab", text="one and a half", previous="a"))
    world.post(ItemCreate("system", text="last"))
    added = world.notices(ItemAdded)
    assert [(entry.item.id, entry.previous) for entry in added[:3]] == [("b", None), ("a", None), ("ab", "a")]
    assert added[3].previous == "b"
    assert [item.text for item in world.session.state.conversation.items] == ["one", "one and a half", "two", "last"]


def test_an_id_is_taken_once() -> None:
    world = desk()
    world.post(ItemCreate("user", id="a", text="one"))
    failed = refusal(world, ItemCreate("user", id="a", text="two"))
    assert (failed.code, failed.param) == ("item_create_duplicate_item_id", "item.id")


def test_an_item_may_bring_its_own_audio() -> None:
    world = desk(replace(QUIET, transcribe_input=True))
    effects = world.post(ItemCreate("user", audio=AudioArrived(0, from_ms(900))))
    (asked,) = effects_in(effects, Transcribe)
    assert (asked.start, asked.end) == (0, from_ms(900))
    world.wait(100)
    (done,) = world.notices(InputTranscriptDone)
    assert done.length == from_ms(900)
    assert refusal(world, InputCommit()).code == "input_audio_buffer_commit_empty"


def test_an_items_own_audio_is_not_transcribed_where_nobody_can() -> None:
    world = desk(abilities=Abilities(transcripts=False))
    assert effects_in(world.post(ItemCreate("user", audio=AudioArrived(0, from_ms(900)))), Transcribe) == []


def test_an_items_own_audio_is_no_hole_in_the_engines_input() -> None:
    world = desk(abilities=DUPLEX)
    world.quiet(64)
    end = world.position + from_ms(900)
    effects = world.post(ItemCreate("user", audio=AudioArrived(world.position, end)))
    assert effects_in(effects, AppendInput) == [AppendInput(2 * WINDOW, end)]


def test_an_items_own_audio_leaves_an_open_turn_its_start() -> None:
    world = desk(SessionConfig())
    world.talk(640)
    start = world.position
    world.position += from_ms(900)
    world.post(ItemCreate("user", audio=AudioArrived(start, world.position)))
    world.talk(320)
    world.quiet(600)
    assert len(world.notices(TurnEnded)) == 1


def test_an_item_is_retrieved_as_it_is() -> None:
    world = desk()
    item = spoken(world, heard=350)
    world.post(OutputClear())
    (retrieved,) = notices_in(world.post(ItemRetrieve(item)), ItemRetrieved)
    assert (retrieved.item.text, retrieved.item.heard) == ("w0 w1 w2", from_ms(350))


def test_an_item_is_deleted_from_the_history() -> None:
    world = desk()
    world.post(ItemCreate("user", id="a", text="one"))
    assert notices_in(world.post(ItemDelete("a")), ItemDeleted) == [ItemDeleted("a")]
    assert world.session.state.conversation.context() == ()


def test_an_item_of_the_response_in_progress_is_not_deleted() -> None:
    world = desk()
    item = spoken(world, done=False)
    assert refusal(world, ItemDelete(item)).code == "item_in_progress"
    world.post(ResponseCancel())
    assert notices_in(world.post(ItemDelete(item)), ItemDeleted)


def test_a_response_waits_no_longer_for_an_item_that_was_deleted() -> None:
    world = desk()
    world.perception.silent = True
    world.post(ItemCreate("user", text="typed"))
    world.talk(640)
    (committed,) = notices_in(world.post(InputCommit()), InputCommitted)
    world.post(ResponseCreate())
    assert world.effects(StartResponse) == []
    world.post(ItemDelete(committed.item))
    assert [entry.text for entry in world.effects(StartResponse)[0].context] == ["typed"]


# --- tool calls ----------------------------------------------------------------------------------------------------


def called(world: World) -> str:
    world.engine.silent = True
    (start,) = effects_in(world.post(ResponseCreate()), StartResponse)
    world.post(EngineToolCall(start.fence, start.response, "call_1", "look_up", "{}"))
    world.post(EngineDone(start.fence, start.response))
    return "call_1"


def test_a_tool_call_gets_exactly_one_answer() -> None:
    world = desk()
    call = called(world)
    world.post(ItemCreate("user", "function_call_output", call=call, text="42"))
    failed = refusal(world, ItemCreate("user", "function_call_output", call=call, text="43"))
    assert (failed.code, failed.param) == ("tool_output_exists", "item.call_id")
    context = world.session.state.conversation.context()
    assert [(entry.kind, entry.text) for entry in context] == [("function_call", "{}"), ("function_call_output", "42")]


def test_a_call_may_come_from_the_client_once() -> None:
    world = desk()
    world.post(ItemCreate("assistant", "function_call", call="call_9", name="look_up", text="{}"))
    failed = refusal(world, ItemCreate("assistant", "function_call", call="call_9", name="look_up", text="{}"))
    assert (failed.code, failed.param) == ("call_exists", "item.call_id")
    world.post(ItemCreate("user", "function_call_output", call="call_9", text="1"))
    assert refusal(world, ItemCreate("assistant", "function_call", call="call_9")).code == "call_exists"


def test_a_deleted_call_waits_for_no_answer() -> None:
    world = desk()
    world.post(ItemCreate("assistant", "function_call", id="c", call="call_9", name="look_up"))
    world.post(ItemDelete("c"))
    assert refusal(world, ItemCreate("user", "function_call_output", call="call_9")).code == "call_not_found"


# --- truncate ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("position", "text"), [(0, ""), (250, "w0 w1"), (300, "w0 w1 w2"), (350, "w0 w1 w2")])
def test_a_played_item_is_shortened_to_what_the_client_says(position: int, text: str) -> None:
    world = desk()
    item = spoken(world, heard=1000)
    effects = world.post(ItemTruncate(item, from_ms(position)))
    assert notices_in(effects, ItemTruncated) == [ItemTruncated(item, 0, from_ms(position), text)]
    assert effects_in(effects, AdvanceEpoch) == []
    found = world.session.state.conversation.find(item)
    assert found is not None
    assert (found.text, found.status) == (text, "incomplete")


def test_a_truncate_at_the_end_keeps_everything() -> None:
    world = desk()
    item = spoken(world, heard=1000)
    effects = world.post(ItemTruncate(item, from_ms(700)))
    assert notices_in(effects, ItemTruncated)[0].position == from_ms(700)
    found = world.session.state.conversation.find(item)
    assert found is not None
    assert (found.status, found.heard) == ("completed", None)


def test_a_truncate_beyond_the_end_is_refused() -> None:
    world = desk()
    item = spoken(world, heard=1000)
    failed = refusal(world, ItemTruncate(item, from_ms(701)))
    assert (failed.code, failed.param) == ("audio_shorter", "audio_end_ms")
    assert "700 ms" in failed.message


def test_a_truncate_twice_only_shortens() -> None:
    world = desk()
    item = spoken(world, heard=1000)
    world.post(ItemTruncate(item, from_ms(300)))
    effects = world.post(ItemTruncate(item, from_ms(600)))
    assert notices_in(effects, ItemTruncated) == [ItemTruncated(item, 0, from_ms(300), "w0 w1 w2")]
    effects = world.post(ItemTruncate(item, from_ms(100)))
    assert notices_in(effects, ItemTruncated) == [ItemTruncated(item, 0, from_ms(100), "w0")]


def test_a_truncate_after_an_interruption_never_lengthens_what_was_heard() -> None:
    world = desk()
    item = spoken(world, done=False, heard=350)
    world.post(ResponseCancel())
    ledger = world.session.state.ledger
    played = ledger.played
    effects = world.post(ItemTruncate(item, from_ms(500)))
    assert notices_in(effects, ItemTruncated) == [ItemTruncated(item, 0, from_ms(350), "w0 w1 w2")]
    effects = world.post(ItemTruncate(item, from_ms(250)))
    assert notices_in(effects, ItemTruncated) == [ItemTruncated(item, 0, from_ms(250), "w0 w1")]
    assert ledger.played == played


def test_a_truncate_of_what_is_playing_cuts_it() -> None:
    world = desk()
    item = spoken(world, done=False, heard=350)
    effects = world.post(ItemTruncate(item, from_ms(250)))
    assert [began.cause for began in notices_in(effects, EpochBegan)] == ["client_cancel"]
    assert notices_in(effects, ItemTruncated) == [ItemTruncated(item, 0, from_ms(250), "w0 w1")]
    assert notices_in(effects, ResponseClosed)[0].response.status == "cancelled"


def test_a_truncate_of_what_is_playing_claims_no_more_than_was_heard() -> None:
    world = desk()
    item = spoken(world, ms=700, heard=550)
    assert world.session.state.active is None
    effects = world.post(ItemTruncate(item, from_ms(700)))
    assert notices_in(effects, ItemTruncated) == [ItemTruncated(item, 0, from_ms(550), "w0 w1 w2 w3 w4")]


def test_a_truncate_of_an_engine_that_owns_its_turns_mutes_it() -> None:
    world = desk(SessionConfig(), DUPLEX)
    world.duplex.speaking = True
    world.quiet(800)
    item = world.session.state.conversation.items[-1].id
    world.post(ItemTruncate(item, from_ms(100)))
    sent = len(world.effects(AdmitFrame))
    world.quiet(800)
    assert len(world.effects(AdmitFrame)) == sent


@pytest.mark.parametrize(
    ("position", "part", "code", "param"),
    [(-1, 0, "invalid_audio_end", "audio_end_ms"), (0, 1, "invalid_content_index", "content_index")],
)
def test_a_truncate_must_name_a_place(position: int, part: int, code: str, param: str) -> None:
    world = desk()
    failed = refusal(world, ItemTruncate(spoken(world, heard=1000), position, part))
    assert (failed.code, failed.param) == (code, param)


def test_only_what_the_agent_spoke_is_truncated() -> None:
    world = desk()
    world.post(ItemCreate("user", id="a", text="one"))
    world.post(ItemCreate("assistant", "function_call", id="c", call="call_9", name="look_up"))
    world.post(ItemCreate("assistant", id="t", text="written"))
    for item in "act":
        failed = refusal(world, ItemTruncate(item, 0))
        assert (failed.code, failed.param) == ("item_not_truncatable", "item_id")


# --- responses -----------------------------------------------------------------------------------------------------


def test_one_response_at_a_time() -> None:
    world = desk()
    spoken(world, done=False)
    assert refusal(world, ResponseCreate()).code == "conversation_already_has_active_response"


def test_a_response_that_was_begun_too_early_gives_way_to_one_that_is_asked_for() -> None:
    world = desk(SessionConfig())
    world.talk(640)
    world.quiet(200)
    world.post(ResponseCreate(instructions="be brief"))
    first, second = world.effects(StartResponse)
    assert [cancel.response for cancel in world.effects(CancelResponse)] == [first.response]
    assert second.instructions == "be brief"
    assert len(world.notices(ResponseOpened)) == 1


def test_an_engine_that_owns_its_turns_is_not_asked() -> None:
    assert refusal(desk(SessionConfig(), DUPLEX), ResponseCreate()).code == "engine_owns_turns"


def test_a_cancel_must_name_what_is_in_progress() -> None:
    world = desk()
    spoken(world, done=False)
    failed = refusal(world, ResponseCancel("resp_other"))
    assert (failed.code, failed.param) == ("response_cancel_not_active", "response_id")
    active = world.session.state.active
    assert active is not None
    effects = world.post(ResponseCancel(active.id))
    assert effects_in(effects, AdvanceEpoch)
    assert refusal(world, ResponseCancel(active.id)).code == "response_cancel_not_active"


def test_a_cancel_while_a_sound_is_undecided_ends_the_hold() -> None:
    world = desk(SessionConfig())
    world.converse(700)
    world.talk(64)
    world.post(ResponseCancel())
    assert world.session.state.policy.phase == "idle"
    assert not world.session.state.held
    assert len(world.notices(SpeechStarted)) == 1
    world.talk(64)
    assert len(world.notices(SpeechStarted)) == 2


def test_a_cancel_takes_back_the_turn_that_waited() -> None:
    world = desk(SessionConfig(turns=TurnConfig(interrupt_response=False)))
    world.engine.length = from_ms(3000)
    world.converse(400)
    world.ask(400)
    assert world.session.state.respond
    world.post(ResponseCancel())
    world.quiet(1000)
    assert len(world.notices(ResponseOpened)) == 1


def test_clearing_the_output_when_nothing_plays_is_nothing() -> None:
    world = desk()
    assert world.post(OutputClear()) == []


def test_clearing_the_output_stops_the_response_too() -> None:
    world = desk()
    spoken(world, done=False, heard=300)
    effects = world.post(OutputClear())
    assert [began.cause for began in notices_in(effects, EpochBegan)] == ["client_clear"]
    assert notices_in(effects, ResponseClosed)[0].response.detail == "client_clear"


def test_a_cancel_mutes_an_engine_that_owns_its_turns() -> None:
    world = desk(SessionConfig(), DUPLEX)
    world.duplex.speaking = True
    world.quiet(800)
    world.post(ResponseCancel())
    assert world.session.state.muted_until is not None


# --- a session that only listens -----------------------------------------------------------------------------------

LISTENS = SessionConfig(responses=False, transcribe_input=True)


def test_a_session_that_only_listens_transcribes_and_never_answers() -> None:
    world = desk(LISTENS)
    world.ask()
    world.quiet(3000)
    assert len(world.notices(InputTranscriptDone)) == 1
    assert not world.effects(StartResponse)
    assert not world.effects(OpenEngine)


def test_a_session_that_only_listens_gives_its_input_to_no_engine() -> None:
    world = desk(LISTENS, DUPLEX)
    world.ask()
    assert not world.effects(AppendInput)
    assert len(world.notices(InputTranscriptDone)) == 1


def test_its_turn_that_is_ended_by_hand_is_not_answered_either() -> None:
    world = desk(LISTENS)
    world.talk(640)
    world.post(InputCommit())
    world.quiet(2000)
    assert len(world.notices(InputTranscriptDone)) == 1
    assert not world.effects(StartResponse)


@pytest.mark.parametrize("aside", [False, True])
def test_a_response_of_a_session_that_only_listens_is_refused(aside: bool) -> None:
    failed = refusal(desk(LISTENS), ResponseCreate(aside=aside))
    assert failed.code == "responses_not_available"


def test_a_session_that_only_listens_stays_one() -> None:
    assert refusal(desk(LISTENS), ConfigUpdate(SessionConfig())).code == "cannot_update_responses"


# --- noise reduction -----------------------------------------------------------------------------------------------


def test_noise_reduction_is_asked_of_a_perception_that_has_it() -> None:
    world = desk(abilities=Abilities(noise_reduction=True))
    effects = world.post(ConfigUpdate(SessionConfig(turns=None, denoise=True)))
    assert effects_in(effects, OpenPerception) == [OpenPerception(False, "en", True)]


def test_noise_reduction_that_is_not_there_is_refused_with_its_remedy() -> None:
    world = desk()
    failed = refusal(world, ConfigUpdate(SessionConfig(turns=None, denoise=True)))
    assert (failed.code, failed.param) == ("noise_reduction_not_available", "denoise")
    assert "pip install 'talkover[denoise]'" in failed.message
    assert not world.session.state.config.denoise


def test_tokens_are_asked_of_a_perception_that_tells_them() -> None:
    world = desk(abilities=Abilities(logprobs=True))
    effects = world.post(ConfigUpdate(SessionConfig(turns=None, transcript_logprobs=True)))
    assert effects_in(effects, OpenPerception) == [OpenPerception(False, "en", logprobs=True)]


def test_tokens_that_nobody_tells_are_refused() -> None:
    world = desk()
    failed = refusal(world, ConfigUpdate(SessionConfig(turns=None, transcript_logprobs=True)))
    assert (failed.code, failed.param) == ("logprobs_not_available", "transcript_logprobs")
    assert not world.session.state.config.transcript_logprobs
