"""vLLM-Omni's duplex client: its own spelling, playback reports, numbered events, and its session after a lost
connection."""

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


def assert_numbered(result: dict[str, object]) -> None:
    """Every event that has a number came once and in its place."""
    numbers = result["numbers"]
    assert isinstance(numbers, list)
    assert numbers == list(range(1, len(numbers) + 1)) != []


def test_a_spoken_question_is_answered_and_its_playback_reported_and_acknowledged(
    server: ServerProcess, hear: Hear, tmp_path: Path
) -> None:
    clip = question(CAPITAL)
    reply = tmp_path / "reply.raw"
    result = run_client(
        FAMILY,
        "spoken_question",
        {"url": server.realtime_url, "question": str(wire_file(clip, tmp_path)), "reply": str(reply)},
    )
    assert result["refused"] == {}
    assert text(result, "session").startswith("sess_")
    assert word_error_rate([clip.text], [text(result, "heard")]) <= 0.1
    assert (result["decision"], result["status"]) == ("speak", "completed")
    assert text(result, "said") == text(result, "said_at_end")
    assert word_error_rate([text(result, "said")], [hear(reply, 24_000)]) <= 0.1
    assert number(result, "played_ms") == pytest.approx(reply.stat().st_size / 48, abs=1)
    assert {"playback.ack", "session.close", "session.heartbeat"} <= set(strings(result, "sent"))
    assert_numbered(result)
    playback = result["playback"]
    assert isinstance(playback, list)
    assert playback
    for heard in playback:
        assert 0 <= heard["committed_ms"] <= heard["played_ms"] <= heard["sent_ms"] <= heard["generated_ms"]
    settled = result["settled"]
    assert isinstance(settled, dict)
    assert (settled["item_id"], settled["history_committed"]) == (result["item"], True)
    assert settled["playback"]["played_ms"] == pytest.approx(number(result, "played_ms"), abs=1)
    assert result["closed"] == ["client_close"]
    assert server.health()["sessions"] == 0


def test_a_question_is_streamed_and_committed_as_the_client_documents_it(
    server: ServerProcess, hear: Hear, tmp_path: Path
) -> None:
    reply, spoken = tmp_path / "reply.raw", tmp_path / "question.16k.raw"
    spoken.write_bytes(question(CAPITAL).pcm.astype("<i2").tobytes())
    result = run_client(
        FAMILY, "committed_question", {"url": server.realtime_url, "question": str(spoken), "reply": str(reply)}
    )
    assert result["refused"] == {}
    assert result["input"] == {"type": "audio/pcm", "rate": 16_000}
    assert result["status"] == "completed"
    assert "paris" in text(result, "said").lower()
    assert word_error_rate([text(result, "said")], [hear(reply, 24_000)]) <= 0.1
    assert text(result, "resume_token")
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
    assert result["refused"] == {}


def test_a_client_that_lost_its_connection_comes_back_to_its_session_and_hears_nothing_stale(
    server: ServerProcess,
) -> None:
    result = run_client(FAMILY, "resumed", {"url": server.realtime_url})
    assert result["refused"] == {}
    assert (result["same"], result["token_rotated"], result["attachment"]) == (True, True, 2)
    assert result["status"] == "cancelled"
    assert result["stale"] == []
    assert_numbered(result)
    assert "paris" in text(result, "said").lower()
    assert result["part"] == {"type": "output_text", "text": text(result, "said")}
    assert server.health()["sessions"] == 0
