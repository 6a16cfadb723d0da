"""LiveKit's RealtimeModel holds conversations with the running server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.words import word_error_rate
from tests.conformance.conftest import Hear, question, wire_file
from tests.conformance.results import assert_valid, number, strings, text
from tests.conformance.venvs import run_client
from tests.servers import ServerProcess

pytestmark = [pytest.mark.conformance, pytest.mark.models, pytest.mark.wide]

FAMILY = "livekit"
CAPITAL = "What is the capital of France?"


@pytest.mark.parametrize("detection", ["server_vad", "semantic_vad"])
def test_a_spoken_question_is_answered_in_speech(
    server: ServerProcess, hear: Hear, tmp_path: Path, detection: str
) -> None:
    clip = question(CAPITAL)
    reply = tmp_path / "reply.raw"
    result = run_client(
        FAMILY,
        "spoken_question",
        {
            "base_url": server.base_url,
            "question": str(wire_file(clip, tmp_path)),
            "turn_detection": detection,
            "reply": str(reply),
        },
    )
    assert_valid(result)
    assert (result["status"], result["user_initiated"]) == ("completed", False)
    assert word_error_rate([clip.text], [text(result, "heard")]) <= 0.1
    assert word_error_rate([text(result, "said")], [hear(reply, 24_000)]) <= 0.1
    assert strings(result, "items") == [f"user: {result['heard']}", f"assistant: {result['said']}"]
    assert strings(result, "metrics") == ["RealtimeModelMetrics", "STTMetrics"]


def test_replies_that_are_asked_for_are_known_by_their_metadata(
    server: ServerProcess, hear: Hear, tmp_path: Path
) -> None:
    reply = tmp_path / "reply.raw"
    result = run_client(FAMILY, "replies", {"base_url": server.base_url, "reply": str(reply)})
    assert_valid(result)
    assert number(result, "waited_s") < 5
    assert result["user_initiated"] == [True, True]
    assert result["metadata"] == result["asked"]
    assert strings(result, "instructions")[1].endswith("\nAnswer in one word.")
    assert word_error_rate([text(result, "said")], [hear(reply, 24_000)]) <= 0.1
    assert strings(result, "items")[:2] == [f"user: {CAPITAL}", f"assistant: {result['said']}"]


def test_a_reply_may_have_tools_of_its_own(server: ServerProcess) -> None:
    result = run_client(FAMILY, "own_tools", {"base_url": server.base_url})
    assert result["refused"] == ""
    assert_valid(result)
    called = result["called"]
    assert isinstance(called, list)
    assert called[0][0] == "get_weather"


@pytest.mark.parametrize("detection", ["server_vad", "semantic_vad"])
def test_a_barge_in_cancels_the_reply_and_is_answered(server: ServerProcess, tmp_path: Path, detection: str) -> None:
    clip = question(CAPITAL)
    result = run_client(
        FAMILY,
        "barge_in",
        {
            "base_url": server.base_url,
            "question": str(wire_file(clip, tmp_path)),
            "turn_detection": detection,
        },
    )
    assert_valid(result)
    assert (result["status"], result["reason"]) == ("cancelled", "turn_detected")
    assert result["late_deltas"] == 0
    assert 0 < number(result, "truncated_ms") <= number(result, "played_ms") / 2
    assert word_error_rate([clip.text], [text(result, "heard")]) <= 0.2
    assert result["answer_status"] == "completed"
    assert text(result, "answer")


def test_a_whole_agent_session_is_interrupted_and_truncates_to_what_it_played(
    server: ServerProcess, tmp_path: Path
) -> None:
    clip = question(CAPITAL)
    result = run_client(
        FAMILY,
        "agent",
        {
            "base_url": server.base_url,
            "question": str(wire_file(clip, tmp_path)),
            "turn_detection": "semantic_vad",
        },
    )
    assert_valid(result)
    assert (result["status"], result["reason"]) == ("cancelled", "turn_detected")
    assert result["interrupted"] is True
    assert result["truncated"] == [result["story"]]
    assert result["truncated_ms"] == [result["played_ms"]]
    assert word_error_rate([clip.text], [text(result, "heard")]) <= 0.2
    assert text(result, "answer")


def test_an_interrupted_reply_can_be_truncated_and_truncated_to_nothing(server: ServerProcess) -> None:
    result = run_client(FAMILY, "interrupted", {"base_url": server.base_url})
    assert_valid(result)
    assert (result["status"], result["reason"]) == ("cancelled", "client_cancelled")
    assert result["truncated_ms"] == 400
    assert text(result, "said").startswith(text(result, "kept"))
    assert len(text(result, "kept")) < len(text(result, "said"))
    assert result["deleted"] == result["item"]
    assert text(result, "answer")


def test_a_required_tool_is_called_and_its_output_is_told(server: ServerProcess) -> None:
    result = run_client(FAMILY, "tool", {"base_url": server.base_url})
    assert_valid(result)
    called = result["called"]
    assert isinstance(called, list)
    assert [name for name, _ in called] == ["get_weather"]
    assert '"city"' in called[0][1]
    assert text(result, "told")
    assert number(result, "audio_bytes") > 24_000
    assert strings(result, "items") == [
        "user: What is the weather in Paris?",
        "function_call",
        "function_call_output",
        f"assistant: {result['told']}",
    ]


def test_text_is_answered_in_text(server: ServerProcess) -> None:
    result = run_client(FAMILY, "text", {"base_url": server.base_url})
    assert_valid(result)
    assert result["audio_bytes"] == 0
    assert strings(result, "items") == [f"user: {CAPITAL}", f"assistant: {text(result, 'said')}"]


def test_a_dropped_connection_is_made_anew_and_the_conversation_is_told_again(server: ServerProcess) -> None:
    result = run_client(FAMILY, "reconnected", {"base_url": server.base_url})
    assert result["invalid"] == []
    assert result["connections"] == len(set(strings(result, "sessions"))) == 2
    assert strings(result, "told_anew")[:2] == ["message", "message"]
    assert strings(result, "items")[:2] == strings(result, "held")
    assert text(result, "answer")
    assert server.health()["sessions"] == 0
