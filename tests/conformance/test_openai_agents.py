"""openai-agents holds conversations with the running server, and its strict validator accepts every event."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.words import plain, word_error_rate
from tests.conformance.conftest import Hear, Remote, question, wire_file
from tests.conformance.venvs import run_client
from tests.servers import ServerProcess

pytestmark = [pytest.mark.conformance, pytest.mark.models]

FAMILY = "openai_agents"
CAPITAL = "What is the capital of France?"


def assert_valid(result: dict[str, object]) -> None:
    """No error of any kind, and no event that the SDK's models refuse."""
    assert result["errors"] == []
    assert result["invalid"] == []
    assert result["types"]


def text(result: dict[str, object], key: str) -> str:
    value = result[key]
    assert isinstance(value, str), f"{key} is {value!r}"
    return value


@pytest.mark.parametrize("detection", ["server_vad", "semantic_vad"])
def test_a_spoken_question_is_answered_and_every_event_is_valid(
    server: ServerProcess, hear: Hear, tmp_path: Path, detection: str
) -> None:
    clip = question(CAPITAL)
    hears = {"format": "pcm16", "transcription": {"model": "whisper-1"}, "turn_detection": {"type": detection}}
    result = run_client(
        FAMILY,
        "conversation",
        {
            "url": server.realtime_url,
            "question": str(wire_file(clip, tmp_path)),
            "settings": {"audio": {"input": hears, "output": {"format": "pcm16", "voice": "default"}}},
            "reply": str(tmp_path / "reply.raw"),
        },
    )
    assert_valid(result)
    assert result["status"] == "completed"
    assert word_error_rate([clip.text], [text(result, "heard")]) <= 0.1
    assert word_error_rate([text(result, "said")], [hear(tmp_path / "reply.raw", 24_000)]) <= 0.1


def test_the_voice_that_the_sdk_asks_for_by_itself_is_served(server: ServerProcess, tmp_path: Path) -> None:
    settings = {"audio": {"input": {"turn_detection": None}}}
    result = run_client(
        FAMILY,
        "conversation",
        {"url": server.realtime_url, "settings": settings, "reply": str(tmp_path / "reply.raw")},
    )
    assert_valid(result)
    assert result["status"] == "completed"
    assert text(result, "said")


def test_text_is_answered_in_text_and_every_event_is_valid(server: ServerProcess, tmp_path: Path) -> None:
    settings = {"output_modalities": ["text"], "audio": {"input": {"turn_detection": None}}}
    result = run_client(
        FAMILY,
        "conversation",
        {"url": server.realtime_url, "settings": settings, "reply": str(tmp_path / "reply.raw")},
    )
    assert_valid(result)
    assert result["status"] == "completed"
    assert text(result, "said")
    assert (tmp_path / "reply.raw").stat().st_size == 0


@pytest.mark.parametrize("detection", ["server_vad", "semantic_vad"])
def test_an_interrupted_reply_is_truncated_and_retrieved_and_every_event_is_valid(
    server: ServerProcess, tmp_path: Path, detection: str
) -> None:
    clip = question(CAPITAL)
    result = run_client(
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
    assert word_error_rate([clip.text], [text(result, "heard")]) <= 0.2
    assert result["answer_status"] == "completed"


def test_a_tool_of_the_sdk_is_run_and_its_result_is_told(remote: Remote) -> None:
    result = run_client(FAMILY, "tool", {"url": remote.server.realtime_url})
    assert_valid(result)
    assert result["called"] == ["Paris"]
    assert result["tool_events"] == ["tool_start", "tool_end"]
    assert result["told_status"] == "completed"
    assert plain(text(result, "told")) == "the weather in paris is sunny today"
