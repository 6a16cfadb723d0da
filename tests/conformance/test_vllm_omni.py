"""vLLM-Omni's duplex client converses on the plain protocol; its extensions are refused by name and harm none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.words import word_error_rate
from tests.conformance.conftest import Hear, question, wire_file
from tests.conformance.results import number, strings, text
from tests.conformance.venvs import run_client
from tests.servers import ServerProcess

pytestmark = [pytest.mark.conformance, pytest.mark.models, pytest.mark.wide]

FAMILY = "vllm_omni"
CAPITAL = "What is the capital of France?"


def refusals(result: dict[str, object]) -> dict[str, dict[str, object]]:
    """Errors by the type of the event that they answer."""
    refused = result["refused"]
    assert isinstance(refused, dict)
    return refused


def test_a_spoken_question_is_answered_and_what_is_not_understood_is_refused_and_harmless(
    server: ServerProcess, hear: Hear, tmp_path: Path
) -> None:
    clip = question(CAPITAL)
    reply = tmp_path / "reply.raw"
    result = run_client(
        FAMILY,
        "spoken_question",
        {"url": server.realtime_url, "question": str(wire_file(clip, tmp_path)), "reply": str(reply)},
    )
    assert text(result, "session").startswith("sess_")
    assert word_error_rate([clip.text], [text(result, "heard")]) <= 0.1
    assert (result["decision"], result["status"]) == ("speak", "completed")
    assert text(result, "said") == text(result, "said_at_end")
    assert word_error_rate([text(result, "said")], [hear(reply, 24_000)]) <= 0.1
    assert number(result, "played_ms") == pytest.approx(reply.stat().st_size / 48, abs=1)
    assert strings(result, "sent") == ["input_audio_buffer.append", *sorted(refusals(result))]
    refused = refusals(result)
    assert sorted(refused) == ["playback.ack", "session.close", "session.heartbeat", "session.update"]
    for kind in ("playback.ack", "session.close", "session.heartbeat"):
        assert (refused[kind]["type"], refused[kind]["param"]) == ("invalid_request_error", "type")
        assert kind in str(refused[kind]["message"])
    assert refused["session.update"]["param"] == "session.type"
    assert server.health()["sessions"] == 0


def test_a_barge_in_cancels_and_the_clients_own_cancel_and_clear_are_obeyed(
    server: ServerProcess, tmp_path: Path
) -> None:
    clip = question(CAPITAL)
    result = run_client(FAMILY, "barge_in", {"url": server.realtime_url, "question": str(wire_file(clip, tmp_path))})
    assert (result["status"], result["reason"]) == ("cancelled", "turn_detected")
    assert word_error_rate([clip.text], [text(result, "heard")]) <= 0.2
    assert result["first"] is True
    assert result["stopped"] == "client_cancelled"
    assert text(result, "committed")
    assert sorted(refusals(result)) == ["session.close", "session.update"]


def test_a_dropped_connection_is_told_at_once_and_a_new_one_answers_in_text(server: ServerProcess) -> None:
    result = run_client(FAMILY, "disconnect", {"url": server.realtime_url})
    assert "connection lost" in text(result, "ended")
    assert result["anew"] is True
    assert result["part"] == {"type": "output_text", "text": text(result, "said")}
    assert result["audio"] is False
    assert server.health()["sessions"] == 0
