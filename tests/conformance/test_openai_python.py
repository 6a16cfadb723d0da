"""openai-python holds conversations with the running server."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from tests.bench.words import plain, word_error_rate
from tests.conformance.conftest import Hear, Remote, question, telephone_file, wire_file
from tests.conformance.venvs import run_client
from tests.servers import ServerProcess

pytestmark = [pytest.mark.conformance, pytest.mark.models]

FAMILY = "openai_python"
CAPITAL = "What is the capital of France?"

USER_ORDER = [
    "input_audio_buffer.speech_started",
    "input_audio_buffer.speech_stopped",
    "input_audio_buffer.committed",
    "conversation.item.added",
    "response.created",
]
REPLY_ORDER = [
    "response.created",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_audio.delta",
    "response.output_audio.done",
    "response.output_audio_transcript.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.done",
]


def assert_order(types: list[str], expected: list[str]) -> None:
    """Each of `expected` occurs, and first occurs after the one before it."""
    places = [types.index(name) for name in expected]
    assert all(a < b for a, b in pairwise(places)), types


def text(result: dict[str, object], key: str) -> str:
    value = result[key]
    assert isinstance(value, str), f"{key} is {value!r}"
    return value


def types_of(result: dict[str, object]) -> list[str]:
    value = result["types"]
    assert isinstance(value, list)
    return value


@pytest.mark.parametrize("detection", ["server_vad", "semantic_vad"])
def test_a_spoken_question_is_answered_in_speech_that_says_what_its_transcript_says(
    server: ServerProcess, hear: Hear, tmp_path: Path, detection: str
) -> None:
    clip = question(CAPITAL)
    result = run_client(
        FAMILY,
        "spoken_question",
        {
            "base_url": server.base_url,
            "question": str(wire_file(clip, tmp_path)),
            "turn_detection": {"type": detection},
            "reply": str(tmp_path / "reply.raw"),
        },
    )
    assert result["errors"] == []
    assert result["status"] == "completed"
    assert_order(types_of(result), USER_ORDER)
    assert_order(types_of(result), REPLY_ORDER)
    assert word_error_rate([clip.text], [text(result, "heard")]) <= 0.1
    assert text(result, "said")
    assert text(result, "said") == text(result, "said_at_end") == text(result, "kept")
    assert word_error_rate([text(result, "said")], [hear(tmp_path / "reply.raw", 24_000)]) <= 0.1


def test_push_to_talk_commits_and_asks_by_itself(server: ServerProcess, hear: Hear, tmp_path: Path) -> None:
    clip = question(CAPITAL)
    result = run_client(
        FAMILY,
        "spoken_question",
        {
            "base_url": server.base_url,
            "question": str(wire_file(clip, tmp_path)),
            "turn_detection": None,
            "reply": str(tmp_path / "reply.raw"),
        },
    )
    assert result["errors"] == []
    assert result["status"] == "completed"
    assert "input_audio_buffer.speech_started" not in types_of(result)
    assert_order(types_of(result), REPLY_ORDER)
    assert text(result, "heard")
    assert word_error_rate([text(result, "said")], [hear(tmp_path / "reply.raw", 24_000)]) <= 0.1


@pytest.mark.parametrize("detection", ["server_vad", "semantic_vad"])
def test_a_barge_in_cancels_the_reply_and_history_keeps_what_was_heard(
    server: ServerProcess, hear: Hear, tmp_path: Path, detection: str
) -> None:
    clip = question(CAPITAL)
    result = run_client(
        FAMILY,
        "barge_in",
        {
            "base_url": server.base_url,
            "question": str(wire_file(clip, tmp_path)),
            "interrupt_after": 3.0,
            "turn_detection": {"type": detection},
            "reply": str(tmp_path / "reply.raw"),
        },
    )
    assert result["errors"] == []
    assert (result["status"], result["reason"]) == ("cancelled", "turn_detected")
    assert result["late_deltas"] == 0
    sent, kept, shorter = text(result, "sent"), text(result, "kept"), text(result, "kept_after_truncate")
    assert kept
    assert sent.startswith(kept.rstrip("\u2026"))
    assert kept.startswith(shorter)
    assert len(shorter) < len(kept)
    played, truncated = result["played_ms"], result["truncated_ms"]
    assert isinstance(played, int)
    assert isinstance(truncated, int)
    assert truncated <= played // 2
    assert word_error_rate([clip.text], [text(result, "heard")]) <= 0.2
    assert result["answer_status"] == "completed"
    assert word_error_rate([text(result, "answer")], [hear(tmp_path / "reply.raw", 24_000)]) <= 0.1


def test_a_required_tool_is_called_and_its_result_is_spoken_about(server: ServerProcess) -> None:
    result = run_client(FAMILY, "tool_call", {"base_url": server.base_url})
    assert result["errors"] == []
    assert (result["status"], result["name"]) == ("completed", "get_weather")
    assert result["arguments"] == result["arguments_done"] == result["deltas"]
    assert '"city"' in text(result, "arguments")
    assert result["told_status"] == "completed"
    assert text(result, "told")
    assert result["metadata"] == {"purpose": "tell"}


def test_a_remote_model_calls_a_tool_and_speaks_about_its_result(remote: Remote) -> None:
    before = len(remote.peer.requests)
    result = run_client(FAMILY, "tool_call", {"base_url": remote.server.base_url})
    assert result["errors"] == []
    assert result["name"] == "get_weather"
    assert '"Paris"' in text(result, "arguments")
    assert plain(text(result, "told")) == "the weather in paris is sunny today"
    asked, *_, told = remote.peer.requests[before:]
    assert asked["stream"] is True
    assert asked["tool_choice"] == "required"
    history = told["messages"]
    assert isinstance(history, list)
    assert [message["role"] for message in history[-3:]] == ["user", "assistant", "tool"]
    assert history[-1]["tool_call_id"] == history[-2]["tool_calls"][0]["id"]


@pytest.mark.parametrize("coding", ["audio/pcmu", "audio/pcma"])
def test_a_telephone_line_carries_a_conversation(
    server: ServerProcess, hear: Hear, tmp_path: Path, coding: str
) -> None:
    clip = question(CAPITAL)
    result = run_client(
        FAMILY,
        "telephone",
        {
            "base_url": server.base_url,
            "question_8k": str(telephone_file(clip, tmp_path)),
            "format": coding,
            "reply": str(tmp_path / "reply.raw"),
        },
    )
    assert result["errors"] == []
    assert result["formats"] == [coding, coding]
    assert result["status"] == "completed"
    assert word_error_rate([clip.text], [text(result, "heard")]) <= 0.2
    assert word_error_rate([text(result, "said")], [hear(tmp_path / "reply.raw", 8000)]) <= 0.1


def test_text_is_answered_in_text_alone(server: ServerProcess) -> None:
    result = run_client(FAMILY, "text_only", {"base_url": server.base_url})
    assert result["errors"] == []
    assert result["status"] == "completed"
    assert result["part_type"] == "output_text"
    assert text(result, "said") == text(result, "part_text") != ""
    assert not [name for name in types_of(result) if "audio" in name]


def test_a_dropped_connection_leaves_nothing_and_the_next_conversation_works(
    server: ServerProcess, tmp_path: Path
) -> None:
    clip = question("What is a good name for a dog?")
    result = run_client(FAMILY, "disconnect", {"base_url": server.base_url, "question": str(wire_file(clip, tmp_path))})
    assert result["errors"] == []
    assert result["status"] == "completed"
    assert word_error_rate([clip.text], [text(result, "heard")]) <= 0.2
    assert text(result, "said")
    assert server.health()["sessions"] == 0
