"""`models.families.vllm_omni.engine`: a real server process on the other end, on good days and on bad ones."""

from __future__ import annotations

import numpy as np
import pytest

from models.families.vllm_omni.engine import VllmOmniEngine
from models.remote.errors import RemoteError
from sessions.core.config import SessionConfig, Tool
from sessions.core.context import ContextEntry
from sessions.core.events import EngineFailed, EngineForgot, EngineToolCall
from sessions.core.timeline import from_ms
from sessions.ports import Busy, EnginePort, Rewinds, Told
from tests.models.families.hearing import Ear, fence, shut, start
from tests.peers.process import PeerProcess
from tests.servers import free_port

from .caller import LOUD, QUIET, Caller, options

WHOLE = "One two three four five six seven eight nine ten"


def assert_contiguous(caller: Caller) -> None:
    """Every 80 ms of input was answered by 80 ms of output, whatever the connection did."""
    frames = [frame for frame, _ in caller.frames]
    assert [frame.start for frame in frames] == [number * from_ms(80) for number in range(len(frames))]
    assert len(frames) == caller.at // from_ms(80)


def test_a_question_is_heard_answered_and_the_answers_playback_reported() -> None:
    with PeerProcess("vllm_omni") as peer, shut(engine := VllmOmniEngine(options(peer, key="secret"))):
        port: EnginePort = engine
        assert isinstance(engine, Rewinds)
        remote = engine.probe()
        assert (port.capabilities.turns, port.capabilities.listens, port.capabilities.interruption) == (
            "engine",
            "audio",
            "annotate",
        )
        assert (remote.turns_of_its_own, remote.barge_in, remote.resume) == (True, True, True)
        caller = Caller(engine)
        caller.ready()
        caller.ask()
        caller.until(lambda: caller.yielded, "an answer")
        caller.until(lambda: "playback.ack" in (seen := peer.seen()) and 3_500 < played(seen)[-1] <= 4_000, "reports")
        assert caller.text == WHOLE
        assert len(caller.voiced) == 50
        assert all(np.abs(np.frombuffer(pcm, "<i2")).max() > 7_000 for pcm in caller.voiced)
        assert_contiguous(caller)
        seen = peer.seen()
        assert played(seen) == sorted(played(seen))
        session = seen["session.update"][-1]["session"]
        assert isinstance(session, dict)
        assert (session["instructions"], session["turn_detection"]) == ("Be brief.", None)
        assert {entry["authorization"] for entry in seen["connection"]} == {"Bearer secret"}
        # 100 ms of input at 16 kHz each, told on a clock of its own.
        assert {entry["duration_ms"] for entry in seen["input_audio_buffer.append"]} == {100}


def played(seen: dict[str, list[dict[str, object]]]) -> list[int]:
    return [int(str(ack["played_ms"])) for ack in seen.get("playback.ack", [])]


@pytest.mark.parametrize("fault", ["late", "late-new"])
def test_after_an_interruption_the_server_knows_what_was_heard_and_nothing_old_is_said(fault: str) -> None:
    with PeerProcess("vllm_omni", "--fault", fault) as peer, shut(engine := VllmOmniEngine(options(peer))):
        caller = Caller(engine)
        engine.probe()
        caller.ready()
        caller.ask()
        caller.until(lambda: len(caller.said) >= 10, "the beginning of an answer")
        begin = caller.said[0][0].start
        before = len(caller.frames)
        caller.fence = fence("s", epoch=1)
        cut = begin + from_ms(480)
        # Where the server is late a silent frame lies in between, which is none of the answer.
        heard = 80 * sum(any(pcm) for frame, pcm in caller.frames if begin <= frame.start < cut)
        engine.rewind(caller.fence, cut)
        caller.until(lambda: "response.cancel" in peer.seen(), "the cancel")
        caller.feed(QUIET, 30)
        after = caller.frames[before:]
        assert [frame.speaking for frame, _ in after] == [False] * len(after)
        assert {frame.fence for frame, _ in after} == {caller.fence}
        assert heard in played(peer.seen())
        caller.ask()
        caller.until(lambda: any(frame.speaking for frame, _ in caller.frames[before:]), "the next answer")
        assert "ate" not in caller.text.removeprefix(WHOLE)
        assert caller.failures == []


def test_a_connection_that_is_lost_is_taken_up_again_and_nothing_is_missing() -> None:
    with PeerProcess("vllm_omni", "--fault", "drop") as peer, shut(engine := VllmOmniEngine(options(peer))):
        engine.probe()
        caller = Caller(engine)
        caller.ready()
        caller.ask()
        caller.until(lambda: caller.yielded and "ten" in caller.text, "the whole answer")
        assert caller.text == WHOLE
        assert caller.stages == ["remote_ready", "remote_lost", "remote_resumed"]
        resumed = peer.seen()["session.resume"][0]
        assert int(str(resumed["last_received_server_event_seq"])) > 0
        assert_contiguous(caller)
        assert engine.counters["sessions_resumed"] == 1


def test_where_nothing_can_be_taken_up_a_new_session_begins_and_the_next_question_is_answered() -> None:
    faults = ("--fault", "drop", "--no-resume")
    with PeerProcess("vllm_omni", *faults) as peer, shut(engine := VllmOmniEngine(options(peer))):
        engine.probe()
        caller = Caller(engine)
        caller.ready()
        caller.ask()
        caller.until(lambda: "remote_restarted" in caller.stages, "a new session")
        assert WHOLE.startswith(caller.text)
        assert engine.counters["sessions_restarted"] == 1
        caller.until(lambda: caller.yielded, "the end of what came")
        assert caller.failures == []
        assert_contiguous(caller)


def test_a_server_that_dies_ends_the_session_after_the_attempts_and_refuses_the_next_at_once() -> None:
    with PeerProcess("vllm_omni", "--fault", "die") as peer, shut(engine := VllmOmniEngine(options(peer))):
        engine.probe()
        caller = Caller(engine)
        caller.ready()
        caller.ask()
        caller.until(lambda: bool(caller.failures), "the end")
        (failure,) = caller.failures
        # One that is dying may still take a connection, and end it.
        assert failure.code in ("remote_unreachable", "remote_lost")
        assert failure.response == ""
        assert "engine-url" in failure.message
        assert_contiguous(caller)
        engine.close("s")
        other = Caller(engine, "other")
        other.ear.wait(lambda ear: bool(other.failures))
        with pytest.raises(Busy, match="cannot be reached"):
            engine.open(fence("third"), SessionConfig(), Ear())


def test_a_server_that_falls_silent_is_given_up_and_taken_up_anew() -> None:
    peers = PeerProcess("vllm_omni", "--fault", "silent")
    with peers as peer, shut(engine := VllmOmniEngine(options(peer, silence=1.0))):
        engine.probe()
        caller = Caller(engine)
        caller.ready()
        caller.ask()
        caller.until(lambda: caller.yielded and "ten" in caller.text, "the whole answer")
        assert caller.stages[:3] == ["remote_ready", "remote_lost", "remote_resumed"]
        assert caller.text == WHOLE


def test_a_response_that_stops_in_its_middle_is_cancelled_and_the_session_lives() -> None:
    with PeerProcess("vllm_omni", "--fault", "stall") as peer, shut(engine := VllmOmniEngine(options(peer))):
        engine.probe()
        caller = Caller(engine)
        caller.ready()
        caller.ask()
        caller.until(lambda: "response.cancel" in peer.seen(), "the cancel", pace=0.002)
        assert "remote_stalled" in caller.stages
        caller.ask()
        caller.until(lambda: "ten" in caller.text, "the next answer")
        assert caller.failures == []


def test_nonsense_between_the_events_is_counted_and_the_answer_is_whole() -> None:
    peers, limit = PeerProcess("vllm_omni", "--fault", "garbage", "--fault", "duplicate"), 1_000
    with peers as peer, shut(engine := VllmOmniEngine(options(peer, garbage=limit))):
        engine.probe()
        caller = Caller(engine)
        caller.ready()
        caller.ask()
        caller.until(lambda: caller.yielded and "ten" in caller.text, "the whole answer")
        assert caller.text == WHOLE
        assert engine.counters["events_garbage"] >= 10
        assert engine.counters["events_duplicate"] >= 40
        assert engine.counters["output_stale_samples"] == 0


def test_nothing_but_nonsense_ends_the_session() -> None:
    with PeerProcess("vllm_omni", "--fault", "nonsense") as peer, shut(engine := VllmOmniEngine(options(peer))):
        engine.probe()
        caller = Caller(engine)
        caller.ear.wait(lambda ear: bool(caller.failures))
        assert caller.failures[0].code == "remote_bad_response"
        assert "17 messages" in caller.failures[0].message


def test_a_connection_that_goes_again_and_again_is_not_tried_for_ever() -> None:
    # On a slow machine a connection lives long enough to count as a good one.
    peers, never = PeerProcess("vllm_omni", "--fault", "drop-always"), 3600.0
    with peers as peer, shut(engine := VllmOmniEngine(options(peer, settled=never))):
        engine.probe()
        caller = Caller(engine)
        caller.ready()
        caller.ask()
        caller.until(lambda: bool(caller.failures), "the end")
        assert caller.failures[0].code == "remote_lost"
        assert len(peer.seen()["connection"]) <= 7


@pytest.mark.parametrize(
    ("fault", "code", "told"),
    [
        ("refuse", "remote_refused", "ref_audio_required"),
        ("full", "remote_unreachable", "resource_exhausted"),
        ("wrong-rate", "remote_refused", "--engine-session"),
        ("mute", "remote_stalled", "does not begin the session"),
    ],
)
def test_a_session_that_is_refused_ends_with_the_servers_reason(fault: str, code: str, told: str) -> None:
    peers = PeerProcess("vllm_omni", "--fault", fault)
    with peers as peer, shut(engine := VllmOmniEngine(options(peer, open_timeout=0.3))):
        caller = Caller(engine)
        caller.ear.wait(lambda ear: bool(caller.failures))
        assert caller.failures[0].code == code
        assert told in caller.failures[0].message


def test_a_server_that_has_too_much_to_hear_is_spared_for_a_while() -> None:
    peers = PeerProcess("vllm_omni", "--fault", "backpressure", "--chunk-ms", "100")
    with peers as peer, shut(engine := VllmOmniEngine(options(peer))):
        caller = Caller(engine)
        caller.ready()
        caller.until(lambda: engine.counters["remote_backpressure"] >= 3, "all refusals")
        assert engine.counters["input_dropped_ticks"] > 0
        caller.until(lambda: len(peer.seen()["input_audio_buffer.append"]) >= 8, "input that is taken again")
        caller.ask()
        caller.until(lambda: caller.yielded, "an answer")
        assert caller.failures == []


def test_a_minute_of_answer_at_once_waits_at_the_server_and_comes_whole() -> None:
    peers, seconds = PeerProcess("vllm_omni", "--fault", "flood"), 4.0
    with peers as peer, shut(engine := VllmOmniEngine(options(peer, waiting_output=seconds))):
        engine.probe()
        caller = Caller(engine)
        caller.ready()
        caller.ask()
        session = engine._sessions["s"]
        most = 0

        def over() -> bool:
            nonlocal most
            most = max(most, session._speech.waiting)
            return caller.yielded and "ten" in caller.text

        caller.until(over, "the whole answer", pace=0.002)
        # One piece beyond the limit, and what was read before the first was taken.
        assert most <= from_ms(4_000 + 400 * 2)
        assert caller.text == WHOLE
        assert len(caller.voiced) == 10 * 23 * 5
        assert caller.stages == ["remote_ready"]


def test_a_model_that_never_stops_is_speech_where_it_is_loud_and_is_not_cancelled() -> None:
    with PeerProcess("vllm_omni", "--continuous") as peer, shut(engine := VllmOmniEngine(options(peer))):
        remote = engine.probe()
        assert (remote.continuous, remote.chunk_ms) == (True, 80)
        caller = Caller(engine)
        caller.ready()
        caller.until(lambda: len(peer.seen()["input_audio_buffer.append"]) >= 10, "a silent beginning")
        assert caller.said == []
        caller.feed(LOUD, 4)
        caller.until(lambda: caller.yielded, "an answer")
        assert len(caller.said) >= 8
        engine.rewind(fence("s", epoch=1), caller.said[0][0].end)
        caller.feed(LOUD, 4)
        before = len(caller.said)
        caller.until(lambda: len(caller.said) > before, "the next answer")
        assert "response.cancel" not in peer.seen()


def test_a_probe_says_what_is_wrong_with_the_address() -> None:
    with PeerProcess("openai_speech", "--sentence", "x") as peer:
        for url, code in (
            (f"ws://127.0.0.1:{free_port()}", "remote_unreachable"),
            (peer.ws, "remote_http_status"),
            (f"{peer.ws}/v1/audio/speech", "remote_http_status"),
        ):
            with shut(engine := VllmOmniEngine(options(peer, url=url))):
                with pytest.raises(RemoteError, match="engine-url") as refused:
                    engine.probe()
                assert refused.value.code == code


@pytest.mark.parametrize(("fault", "code"), [("refuse", "remote_refused"), ("mute", "remote_timeout")])
def test_a_probe_of_a_server_that_has_no_session_for_us(fault: str, code: str) -> None:
    peers = PeerProcess("vllm_omni", "--fault", fault)
    with peers as peer, shut(engine := VllmOmniEngine(options(peer, open_timeout=0.1))):
        with pytest.raises(RemoteError) as refused:
            engine.probe()
        assert refused.value.code == code


@pytest.mark.parametrize("session", [{"input_audio_format": "mp3"}, {"sample_rate_hz": 17}])
def test_input_that_the_server_cannot_be_sent_is_refused_before_anything_begins(session: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="engine-session"):
        VllmOmniEngine(options(PeerProcess("vllm_omni"), url="ws://h", session=session))


def test_what_one_model_wants_besides_is_sent_along() -> None:
    session = {"sample_rate_hz": 24_000, "input_audio_format": "pcm_f32le", "extra_body": {"force_listen_count": 0}}
    with PeerProcess("vllm_omni") as peer, shut(engine := VllmOmniEngine(options(peer, session=session))):
        engine.probe()
        caller = Caller(engine)
        caller.ready()
        caller.ask()
        caller.until(lambda: caller.yielded, "an answer")
        sent = peer.seen()
        given = sent["session.update"][-1]["session"]
        assert isinstance(given, dict)
        assert given["extra_body"] == {"auto_response": True, "force_listen_count": 0}
        append = sent["input_audio_buffer.append"][0]
        assert (append["format"], append["sample_rate_hz"], append["duration_ms"]) == ("pcm_f32le", 24_000, 100)


def test_sessions_are_let_and_given_back_and_say_goodbye() -> None:
    with PeerProcess("vllm_omni") as peer:
        engine = VllmOmniEngine(options(peer), max_sessions=1)
        with shut(engine):
            caller = Caller(engine)
            caller.ready()
            with pytest.raises(Busy, match="all 1 sessions"):
                engine.open(fence("other"), SessionConfig(), Ear())
            caller.feed(QUIET)
            full = engine.occupancy
            assert (full.slots, full.busy, full.queues["disconnected_sessions"]) == (1, 1, 0)
            assert full.queues["output_ticks"] == 0
            engine.close("s")
            assert engine.occupancy.busy == 0
            engine.close("s")
            Caller(engine, "next").ready()
            engine.append("s", 0, QUIET, 16_000)
            engine.advance(fence("gone"))
            assert engine.counters["requests_unknown"] == 2
            engine.advance(fence("next", epoch=2))
            engine.advance(fence("next", epoch=1))
            assert engine.counters["requests_stale"] == 1
        assert len(peer.seen()["session.close"]) == 2
        with pytest.raises(Busy):
            engine.open(fence("late"), SessionConfig(), Ear())


def test_a_response_that_is_asked_for_is_refused_since_the_model_decides() -> None:
    with PeerProcess("vllm_omni") as peer, shut(engine := VllmOmniEngine(options(peer))):
        caller = Caller(engine)
        engine.start(start(at=caller.fence))
        failed = caller.ear.events(EngineFailed, "r")
        assert [failure.code for failure in failed] == ["engine_owns_turns"]


def test_a_hole_in_the_input_is_filled_and_counted_and_half_a_sample_refused() -> None:
    with PeerProcess("vllm_omni") as peer, shut(engine := VllmOmniEngine(options(peer))):
        caller = Caller(engine)
        caller.feed(QUIET, 2)
        caller.at += from_ms(160)
        caller.feed(QUIET, 2)
        assert_contiguous(caller)
        assert engine.counters["input_gap_ticks"] == from_ms(160)
        with pytest.raises(ValueError, match="16-bit"):
            engine.append("s", caller.at, b"\0", 16_000)


WEATHER = Tool(
    name="weather",
    description="of a city",
    parameters='{"type":"object","properties":{"city":{"type":"string"}}}',
)


def test_a_tool_is_offered_called_and_its_answer_goes_on_where_the_call_was() -> None:
    with PeerProcess("vllm_omni", "--fault", "call") as peer, shut(engine := VllmOmniEngine(options(peer))):
        engine.probe()
        assert engine.capabilities.tools
        assert isinstance(engine, Told)
        caller = Caller(engine)
        caller.ready()
        # As a client does, once the session is there.
        engine.open(caller.fence, SessionConfig(instructions="Be brief.", tools=(WEATHER,)), caller.ear)
        caller.until(lambda: len(peer.seen()["session.update"]) == 3, "the tools")
        assert peer.seen()["session.update"][-1]["session"] == {
            "tools": [
                {
                    "type": "function",
                    "name": "weather",
                    "description": "of a city",
                    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
                }
            ],
            "tool_choice": "auto",
        }
        caller.ask()
        caller.until(lambda: bool(caller.ear.events(EngineToolCall)), "the call")
        (call,) = caller.ear.events(EngineToolCall)
        assert (call.fence, call.response, call.name, call.arguments) == (caller.fence, "", "weather", '{"city":"Ulm"}')
        assert caller.said == []
        engine.tell(caller.fence, (ContextEntry("user", "function_call_output", "rain", call.call),), False)
        caller.until(lambda: caller.yielded and "ten" in caller.text, "the answer")
        (item,) = [event["item"] for event in peer.seen()["conversation.item.create"]]
        assert item == {"type": "function_call_output", "call_id": call.call, "output": "rain"}
        assert caller.failures == []
        assert_contiguous(caller)


def test_a_session_that_begins_anew_asks_for_the_history_and_is_told_it_as_text() -> None:
    faults = ("--fault", "drop", "--no-resume")
    with PeerProcess("vllm_omni", *faults) as peer, shut(engine := VllmOmniEngine(options(peer))):
        engine.probe()
        caller = Caller(engine)
        caller.ready()
        caller.ask()
        caller.until(lambda: bool(caller.ear.events(EngineForgot)), "a new session")
        history = (
            ContextEntry("user", "message", "my name is Ada"),
            ContextEntry("assistant", "message", "Hello Ada."),
            ContextEntry("assistant", "function_call", '{"city":"Ulm"}', "c", "weather"),
            ContextEntry("user", "function_call_output", "rain", "c"),
        )
        engine.tell(caller.fence, history, True)
        caller.until(lambda: len(peer.seen()["conversation.item.create"]) == 4, "the history")
        items = [event["item"] for event in peer.seen()["conversation.item.create"]]
        assert [(item["type"], item["role"], item["content"]) for item in items if isinstance(item, dict)] == [
            ("message", "user", [{"type": "input_text", "text": "my name is Ada"}]),
            ("message", "assistant", [{"type": "output_text", "text": "Hello Ada."}]),
            ("message", "assistant", [{"type": "output_text", "text": 'weather({"city":"Ulm"})'}]),
            ("message", "system", [{"type": "input_text", "text": "rain"}]),
        ]
        assert engine.counters["items_told"] == 4
        engine.tell(fence("s", incarnation=0), history, True)
        assert engine.counters["requests_stale"] == 1
        assert caller.failures == []
