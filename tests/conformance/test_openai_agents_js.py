"""@openai/agents-realtime holds conversations with the running server, and its schemas accept every event."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.words import plain, word_error_rate
from tests.conformance.conftest import Hear, Remote, question, wire_file
from tests.conformance.node import needs_node, run_node
from tests.conformance.results import assert_valid, number, strings, text
from tests.servers import ServerProcess

pytestmark = [pytest.mark.conformance, pytest.mark.models, needs_node]

FAMILY = "openai_agents_js"
CAPITAL = "What is the capital of France?"


def spoken(server: ServerProcess, folder: Path, settings: dict[str, object], **more: object) -> dict[str, object]:
    """The result of `conversation` with the question about France."""
    given = {"url": server.realtime_url, "question": str(wire_file(question(CAPITAL), folder)), "config": settings}
    return run_node(FAMILY, "conversation", {**given, **more, "reply": str(folder / "reply.raw")})


def test_a_spoken_question_is_answered_with_the_settings_that_the_sdk_has_by_itself(
    server: ServerProcess, hear: Hear, tmp_path: Path
) -> None:
    result = spoken(server, tmp_path, {})
    assert_valid(result)
    assert result["status"] == "completed"
    assert word_error_rate([CAPITAL], [text(result, "heard")]) <= 0.1
    assert word_error_rate([text(result, "said")], [hear(tmp_path / "reply.raw", 24_000)]) <= 0.1
    assert strings(result, "history") == [f"user: {result['heard']}", f"assistant: {result['said']}"]
    assert number(result, "tokens") > 0


@pytest.mark.wide
def test_push_to_talk_is_answered(server: ServerProcess, hear: Hear, tmp_path: Path) -> None:
    settings: dict[str, object] = {"audio": {"input": {"turnDetection": None}}}
    result = spoken(server, tmp_path, settings, push_to_talk=True)
    assert_valid(result)
    assert result["status"] == "completed"
    assert "input_audio_buffer.speech_started" not in strings(result, "types")
    assert word_error_rate([CAPITAL], [text(result, "heard")]) <= 0.1
    assert word_error_rate([text(result, "said")], [hear(tmp_path / "reply.raw", 24_000)]) <= 0.1


def test_text_is_answered_in_text(server: ServerProcess, tmp_path: Path) -> None:
    settings = {"outputModalities": ["text"], "audio": {"input": {"turnDetection": None}}}
    reply = tmp_path / "reply.raw"
    result = run_node(FAMILY, "conversation", {"url": server.realtime_url, "config": settings, "reply": str(reply)})
    assert_valid(result)
    assert result["status"] == "completed"
    assert strings(result, "history") == [f"user: {CAPITAL}", f"assistant: {text(result, 'said')}"]
    assert reply.stat().st_size == 0


@pytest.mark.parametrize("detection", ["semantic_vad", pytest.param("server_vad", marks=pytest.mark.wide)])
def test_an_interrupted_reply_is_truncated_and_retrieved(server: ServerProcess, tmp_path: Path, detection: str) -> None:
    clip = question(CAPITAL)
    result = run_node(
        FAMILY,
        "interrupted",
        {
            "url": server.realtime_url,
            "question": str(wire_file(clip, tmp_path)),
            "turn_detection": {"type": detection},
        },
    )
    assert_valid(result)
    assert (result["status"], result["reason"]) == ("cancelled", "turn_detected")
    assert result["interruptions"] == 1
    assert result["late_deltas"] == 0
    assert text(result, "sent").startswith(text(result, "kept"))
    assert f"assistant: {result['kept']}" in strings(result, "history")
    assert word_error_rate([clip.text], [text(result, "heard")]) <= 0.2
    assert result["answer_status"] == "completed"


@pytest.mark.wide
def test_a_stop_button_cancels_and_truncates_and_the_next_question_is_answered(server: ServerProcess) -> None:
    result = run_node(FAMILY, "stopped", {"url": server.realtime_url})
    assert_valid(result)
    assert (result["status"], result["reason"]) == ("cancelled", "client_cancelled")
    assert result["interruptions"] == 1
    assert 0 < number(result, "truncated_ms") <= number(result, "elapsed_ms") + 200
    assert text(result, "sent").startswith(text(result, "kept"))
    assert len(text(result, "kept")) < len(text(result, "sent"))
    assert result["answer_status"] == "completed"


def test_a_tool_of_the_sdk_is_run_and_its_result_is_told(remote: Remote) -> None:
    result = run_node(FAMILY, "tool", {"url": remote.server.realtime_url})
    assert_valid(result)
    assert result["called"] == ["Paris"]
    assert result["tools"] == ["start", "end"]
    assert result["told_status"] == "completed"
    assert plain(text(result, "told")) == "the weather in paris is sunny today"


@pytest.mark.wide
def test_a_rewritten_question_stands_where_the_old_one_stood(server: ServerProcess) -> None:
    result = run_node(FAMILY, "edited_history", {"url": server.realtime_url})
    assert_valid(result)
    before = strings(result, "before")
    assert len(before) == 4
    assert result["deleted"] == result["added"] == before[2]
    assert result["behind"] == before[1]
    assert strings(result, "after") == before
    assert strings(result, "history")[2] == "user: What is the capital of Italy?"


@pytest.mark.wide
def test_a_dropped_connection_leaves_nothing_and_the_session_connects_anew(
    server: ServerProcess, tmp_path: Path
) -> None:
    clip = question("What is a good name for a dog?")
    result = run_node(FAMILY, "disconnect", {"url": server.realtime_url, "question": str(wire_file(clip, tmp_path))})
    assert_valid(result)
    assert result["sessions"] == 2
    assert result["status"] == "completed"
    assert word_error_rate([clip.text], [text(result, "heard")]) <= 0.2
    assert text(result, "said")
    assert server.health()["sessions"] == 0
