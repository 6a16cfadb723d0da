"""Responses outside the conversation."""

from __future__ import annotations

import pytest

from sessions.core.config import SessionConfig
from sessions.core.context import ContextEntry, ItemReference
from sessions.core.effects import (
    AdmitFrame,
    AdvanceEpoch,
    CancelResponse,
    DropAudio,
    GrantCredit,
    ReleaseTrack,
    StartResponse,
)
from sessions.core.events import (
    CarrierAttached,
    CarrierBlocked,
    CarrierLost,
    CarrierReady,
    Close,
    ConfigUpdate,
    EngineAudio,
    EngineDone,
    EngineFailed,
    EngineStage,
    EngineText,
    EngineToolCall,
    EngineWords,
    ItemCreate,
    ResponseCancel,
    ResponseCreate,
)
from sessions.core.fence import OUT_OF_BAND, Fence
from sessions.core.notices import (
    CommandFailed,
    OutputClosed,
    OutputOpened,
    OutputText,
    ResponseClosed,
)
from sessions.core.state import Abilities
from sessions.core.timeline import Word, from_ms
from tests.sessions.core.driver import Driver, effects_in, notices_in


def aside(driver: Driver, request: ResponseCreate | None = None) -> StartResponse:
    """Ask for a response outside the conversation; what the engine is told."""
    effects = driver.post(request or ResponseCreate(aside=True, modality="text"))
    return effects_in(effects, StartResponse)[0]


@pytest.fixture
def driver() -> Driver:
    """A session whose engine is the test itself."""
    driver = Driver()
    driver.post(CarrierAttached())
    return driver


def test_it_is_told_and_finished_beside_the_conversation(driver: Driver) -> None:
    driver.post(ItemCreate("user", text="hello"))
    start = aside(driver, ResponseCreate(aside=True, modality="text", metadata=(("topic", "mood"),)))
    assert start.fence.epoch == OUT_OF_BAND
    assert start.context == (ContextEntry("user", "message", "hello"),)
    driver.post(EngineStage(start.fence, start.response, "first_token"))
    driver.post(EngineText(start.fence, start.response, "happy"))
    effects = driver.post(EngineDone(start.fence, start.response, input_tokens=3, output_tokens=1))
    (closed,) = notices_in(effects, ResponseClosed)
    assert closed.response.aside
    assert closed.response.status == "completed"
    assert closed.response.metadata == (("topic", "mood"),)
    assert [item.text for item in closed.response.items] == ["happy"]
    assert [notice.aside for notice in driver.notices(OutputOpened)] == [True]
    assert [item.text for item in driver.session.state.conversation.items] == ["hello"]


def test_it_runs_while_the_conversation_has_its_own_response(driver: Driver) -> None:
    driver.post(ResponseCreate(modality="text"))
    main = driver.effects(StartResponse)[0]
    beside = aside(driver)
    driver.post(EngineText(beside.fence, beside.response, "aside"))
    driver.post(EngineText(main.fence, main.response, "main"))
    said = {notice.text: notice.response for notice in driver.notices(OutputText)}
    assert said == {"aside": beside.response, "main": main.response}


def test_an_interruption_of_the_conversation_does_not_concern_it(driver: Driver) -> None:
    driver.post(ResponseCreate(modality="text"))
    start = aside(driver)
    effects = driver.post(ResponseCancel())
    assert effects_in(effects, AdvanceEpoch)
    assert start.response not in [effect.response for effect in effects_in(effects, CancelResponse)]
    driver.post(EngineText(start.fence, start.response, "still here"))
    assert "still here" in [notice.text for notice in driver.notices(OutputText)]


def test_it_may_read_an_input_of_its_own(driver: Driver) -> None:
    driver.post(ItemCreate("user", id="item_a", text="first"))
    driver.post(ItemCreate("user", id="item_b", text="second"))
    own = (ItemReference("item_b"), ContextEntry("system", "message", "judge"))
    start = aside(driver, ResponseCreate(aside=True, modality="text", input=own))
    assert start.context == (ContextEntry("user", "message", "second"), ContextEntry("system", "message", "judge"))


def test_a_reference_to_nothing_is_refused(driver: Driver) -> None:
    effects = driver.post(ResponseCreate(aside=True, input=(ItemReference("nope"),), command="e"))
    (failed,) = notices_in(effects, CommandFailed)
    assert (failed.code, failed.param, failed.command) == ("item_not_found", "response.input", "e")
    assert not driver.session.state.asides


def test_its_audio_goes_out_as_it_is_made(driver: Driver) -> None:
    start = aside(driver, ResponseCreate(aside=True, modality="audio"))
    words = (Word("yes", 0, from_ms(40)),)
    driver.post(EngineWords(start.fence, start.response, words))
    effects = driver.post(EngineAudio(start.fence, start.response, 0, from_ms(50)))
    frames = effects_in(effects, AdmitFrame)
    assert [(frame.start, frame.end) for frame in frames] == [(0, 960), (960, 1920), (1920, 2400)]
    assert {frame.fence.epoch for frame in frames} == {OUT_OF_BAND}
    assert driver.session.state.ledger.clock == 0
    assert [notice.spoken for notice in driver.notices(OutputText)] == [True]


def test_audio_out_of_order_is_a_fault_of_the_engine(driver: Driver) -> None:
    start = aside(driver, ResponseCreate(aside=True, modality="audio"))
    driver.post(EngineAudio(start.fence, start.response, 960, 1920))
    assert driver.count("engine_fault") == 1
    assert not driver.effects(AdmitFrame)


def test_a_tool_call_of_it_is_not_owed_an_answer(driver: Driver) -> None:
    start = aside(driver)
    driver.post(EngineToolCall(start.fence, start.response, "call_1", "classify", "{}"))
    assert [notice.item.text for notice in driver.notices(OutputClosed)] == ["{}"]
    assert driver.session.state.conversation.open_calls == []


def test_it_is_cancelled_by_its_id_alone(driver: Driver) -> None:
    start = aside(driver)
    driver.post(EngineText(start.fence, start.response, "half"))
    effects = driver.post(ResponseCancel(start.response))
    assert effects_in(effects, CancelResponse)[0].response == start.response
    (closed,) = notices_in(effects, ResponseClosed)
    assert closed.response.status == "cancelled"
    assert closed.response.items[0].status == "incomplete"
    late = driver.post(EngineText(start.fence, start.response, "late"))
    assert not notices_in(late, OutputText)


def test_a_failure_ends_it_alone(driver: Driver) -> None:
    start = aside(driver)
    effects = driver.post(EngineFailed(start.fence, start.response, "llm_unreachable", "no route"))
    assert notices_in(effects, ResponseClosed)[0].response.status == "failed"
    assert not driver.session.state.closed


def test_work_under_another_fence_is_stale(driver: Driver) -> None:
    start = aside(driver)
    driver.post(EngineText(Fence(start.fence.session, 0, OUT_OF_BAND), start.response, "old"))
    assert driver.count("stale_event") == 1
    assert not driver.notices(OutputText)


def test_more_than_a_few_at_a_time_are_refused(driver: Driver) -> None:
    for _ in range(8):
        aside(driver)
    effects = driver.post(ResponseCreate(aside=True))
    assert notices_in(effects, CommandFailed)[0].code == "too_many_responses"


@pytest.mark.parametrize("end", [CarrierLost("gone"), Close()])
def test_they_end_with_the_carrier_and_with_the_session(driver: Driver, end: CarrierLost | Close) -> None:
    start = aside(driver)
    effects = driver.post(end)
    assert start.response in [effect.response for effect in effects_in(effects, CancelResponse)]
    assert not driver.session.state.asides


def test_a_model_that_answers_only_what_it_hears_takes_none() -> None:
    driver = Driver(abilities=Abilities(engine_turns=True))
    driver.post(CarrierAttached())
    effects = driver.post(ResponseCreate(aside=True))
    assert notices_in(effects, CommandFailed)[0].code == "engine_owns_turns"


def test_an_unknown_voice_is_refused() -> None:
    driver = Driver(abilities=Abilities(voices=("default",)))
    driver.post(CarrierAttached())
    effects = driver.post(ResponseCreate(aside=True, voice="robot"))
    assert notices_in(effects, CommandFailed)[0].param == "audio.output.voice"


def test_a_snapshot_carries_it_along(driver: Driver) -> None:
    start = aside(driver)
    driver.post(EngineText(start.fence, start.response, "one "))
    driver.restore()
    driver.post(EngineText(start.fence, start.response, "two"))
    effects = driver.post(EngineDone(start.fence, start.response))
    assert notices_in(effects, ResponseClosed)[0].response.items[0].text == "one two"


def test_a_peer_that_does_not_read_gets_its_audio_when_it_reads_again(driver: Driver) -> None:
    start = aside(driver, ResponseCreate(aside=True, modality="audio"))
    driver.post(CarrierBlocked(9000))
    blocked = driver.post(EngineAudio(start.fence, start.response, 0, 1920))
    blocked += driver.post(EngineDone(start.fence, start.response))
    assert not effects_in(blocked, AdmitFrame)
    assert not notices_in(blocked, ResponseClosed)
    effects = driver.post(CarrierReady())
    assert [(frame.start, frame.end) for frame in effects_in(effects, AdmitFrame)] == [(0, 960), (960, 1920)]
    assert notices_in(effects, ResponseClosed)[0].response.status == "completed"


def test_a_peer_that_does_not_read_grants_no_credit(driver: Driver) -> None:
    start = aside(driver, ResponseCreate(aside=True, modality="audio"))
    driver.post(CarrierBlocked(9000))
    effects = driver.post(EngineAudio(start.fence, start.response, 0, from_ms(4000)))
    assert not effects_in(effects, GrantCredit)
    (grant,) = effects_in(driver.post(CarrierReady()), GrantCredit)
    assert grant.until == from_ms(9000)


def test_what_was_not_sent_of_a_cancelled_one_is_cleared(driver: Driver) -> None:
    start = aside(driver, ResponseCreate(aside=True, modality="audio"))
    driver.post(EngineAudio(start.fence, start.response, 0, 960))
    driver.post(CarrierBlocked(9000))
    driver.post(EngineAudio(start.fence, start.response, 960, 4800))
    effects = driver.post(ResponseCancel(start.response))
    assert effects_in(effects, DropAudio) == [DropAudio(start.response, 960, 4800, "cleared")]
    assert effects_in(effects, ReleaseTrack) == [ReleaseTrack(start.response)]


def test_one_that_only_waits_for_the_peer_is_not_cancelled_at_the_engine(driver: Driver) -> None:
    start = aside(driver, ResponseCreate(aside=True, modality="audio"))
    driver.post(CarrierBlocked(9000))
    driver.post(EngineDone(start.fence, start.response))
    assert not effects_in(driver.post(ResponseCancel(start.response)), CancelResponse)


def test_its_credit_never_shrinks(driver: Driver) -> None:
    start = aside(driver, ResponseCreate(aside=True, modality="audio"))
    driver.post(ConfigUpdate(SessionConfig(credit=from_ms(400))))
    driver.post(EngineAudio(start.fence, start.response, 0, from_ms(200)))
    assert not driver.effects(GrantCredit)


@pytest.mark.parametrize("modality", ["text", "audio"])
def test_output_of_the_other_kind_is_a_fault_of_the_engine(driver: Driver, modality: str) -> None:
    text = modality == "text"
    start = aside(driver, ResponseCreate(aside=True, modality="text" if text else "audio"))
    if text:
        driver.post(EngineWords(start.fence, start.response, (Word("no", 0, 960),)))
        driver.post(EngineAudio(start.fence, start.response, 0, 960))
    else:
        driver.post(EngineText(start.fence, start.response, "no"))
    assert driver.count("engine_fault") == (2 if text else 1)
    assert not driver.notices(OutputOpened)


def test_audio_under_another_fence_is_booked_as_stale(driver: Driver) -> None:
    start = aside(driver, ResponseCreate(aside=True, modality="audio"))
    effects = driver.post(EngineAudio(Fence(start.fence.session, 1, 0), start.response, 0, 960))
    assert effects_in(effects, DropAudio) == [DropAudio(start.response, 0, 960, "stale")]
    assert driver.session.state.ledger.balanced
