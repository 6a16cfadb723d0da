"""Bots built with pipecat's OpenAIRealtimeLLMService hold conversations with the running server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.words import plain, word_error_rate
from tests.conformance.conftest import Hear, Remote, question, wire_file
from tests.conformance.results import number, strings, text
from tests.conformance.venvs import run_client
from tests.servers import ServerProcess

pytestmark = [pytest.mark.conformance, pytest.mark.models, pytest.mark.wide]

FAMILY = "pipecat"
CAPITAL = "What is the capital of France?"


def assert_sound(result: dict[str, object]) -> None:
    """No error, and the service still reads: none of its models refused an event."""
    assert result["errors"] == []
    assert result["reading"] is True


@pytest.mark.parametrize("detection", ["server_vad", "semantic_vad"])
def test_a_spoken_question_is_answered_and_both_stand_in_the_bots_context(
    server: ServerProcess, hear: Hear, tmp_path: Path, detection: str
) -> None:
    clip = question(CAPITAL)
    reply = tmp_path / "reply.raw"
    result = run_client(
        FAMILY,
        "spoken_question",
        {
            "url": server.realtime_url,
            "question": str(wire_file(clip, tmp_path)),
            "turn_detection": detection,
            "reply": str(reply),
        },
    )
    assert_sound(result)
    assert word_error_rate([clip.text], [text(result, "heard")]) <= 0.1
    assert word_error_rate([text(result, "kept")], [hear(reply, 24_000)]) <= 0.1
    assert strings(result, "context") == [f"user: {result['heard']}", f"assistant: {result['kept']}"]


@pytest.mark.parametrize("detection", ["server_vad", "semantic_vad"])
def test_a_barge_in_silences_the_bot_and_is_answered(server: ServerProcess, tmp_path: Path, detection: str) -> None:
    clip = question(CAPITAL)
    result = run_client(
        FAMILY,
        "barge_in",
        {"url": server.realtime_url, "question": str(wire_file(clip, tmp_path)), "turn_detection": detection},
    )
    assert_sound(result)
    assert strings(result, "truncated") == [result["first"]]
    assert text(result, "kept")
    assert number(result, "played_after_ms") <= 100
    assert word_error_rate([clip.text], [text(result, "heard")]) <= 0.2
    assert result["answers"] == 1


def test_a_tool_is_run_and_its_result_is_spoken(remote: Remote) -> None:
    result = run_client(FAMILY, "tool", {"url": remote.server.realtime_url})
    assert_sound(result)
    assert result["called"] == ["Paris"]
    assert strings(result, "items") == ["message", "function_call", "function_call_output", "message"]
    assert plain(text(result, "told")) == "the weather in paris is sunny today"


def test_text_is_answered_in_text(server: ServerProcess) -> None:
    result = run_client(FAMILY, "text", {"url": server.realtime_url})
    assert_sound(result)
    assert text(result, "said") == text(result, "kept") != ""
    assert (result["part"], result["played"]) == ("output_text", 0)


def test_turns_may_be_taken_by_the_application(server: ServerProcess, hear: Hear, tmp_path: Path) -> None:
    clip = question(CAPITAL)
    reply = tmp_path / "reply.raw"
    result = run_client(
        FAMILY,
        "local_turns",
        {"url": server.realtime_url, "question": str(wire_file(clip, tmp_path)), "reply": str(reply)},
    )
    assert_sound(result)
    assert strings(result, "sent") == [
        "session.update",
        "input_audio_buffer.clear",
        "response.cancel",
        "input_audio_buffer.commit",
        "response.create",
        "conversation.item.retrieve",
    ]
    assert word_error_rate([clip.text], [text(result, "heard")]) <= 0.2
    assert word_error_rate([text(result, "kept")], [hear(reply, 24_000)]) <= 0.1


def test_asking_for_an_item_that_is_not_there_ends_nothing(server: ServerProcess) -> None:
    result = run_client(FAMILY, "unknown_item", {"url": server.realtime_url})
    assert_sound(result)
    assert "item_nowhere" in text(result, "refused")


def test_a_dropped_connection_leaves_nothing_and_the_bot_begins_anew(server: ServerProcess, tmp_path: Path) -> None:
    clip = question("What is a good name for a dog?")
    result = run_client(FAMILY, "disconnect", {"url": server.realtime_url, "question": str(wire_file(clip, tmp_path))})
    # What was spoken in the meantime could not be sent; nothing else went wrong.
    assert set(strings(result, "errors")) <= {"Error sending client event: no close frame received or sent"}
    assert result["reading"] is True
    assert word_error_rate([clip.text], [text(result, "heard")]) <= 0.2
    assert text(result, "kept")
    assert server.health()["sessions"] == 0
