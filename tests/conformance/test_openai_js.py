"""npm openai, which takes nothing but wss, holds conversations with the running server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from server.tls import self_signed
from tests.bench.words import word_error_rate
from tests.conformance.conftest import Hear, question, wire_file
from tests.conformance.node import needs_node, run_node
from tests.conformance.results import assert_order, number, strings, text
from tests.servers import ServerProcess

pytestmark = [pytest.mark.conformance, pytest.mark.models, pytest.mark.wide, needs_node]

FAMILY = "openai_js"
CAPITAL = "What is the capital of France?"
KEY = "sk-a-key-of-the-conformance-tests"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for localhost, its own authority, and its key."""
    return self_signed(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="module")
def secure(certificate: tuple[Path, Path]) -> Iterator[ServerProcess]:
    """`talkover serve` with TLS and the embedded engine."""
    with ServerProcess("embedded", tls=certificate) as process:
        yield process


def run(
    server: ServerProcess, certificate: tuple[Path, Path], scenario: str, given: Mapping[str, object]
) -> dict[str, object]:
    trust = {"NODE_EXTRA_CA_CERTS": str(certificate[0])}
    return run_node(FAMILY, scenario, {"base_url": server.base_url, **given}, env=trust)


def test_a_spoken_question_is_answered_in_speech(
    secure: ServerProcess, certificate: tuple[Path, Path], hear: Hear, tmp_path: Path
) -> None:
    clip = question(CAPITAL)
    given = {
        "question": str(wire_file(clip, tmp_path)),
        "turn_detection": {"type": "semantic_vad"},
        "reply": str(tmp_path / "reply.raw"),
    }
    result = run(secure, certificate, "spoken_question", given)
    assert result["errors"] == []
    assert result["url"] == "wss:"
    assert result["status"] == "completed"
    order = ["speech_started", "speech_stopped", "committed"]
    assert_order(strings(result, "types"), [f"input_audio_buffer.{name}" for name in order] + ["response.created"])
    assert word_error_rate([clip.text], [text(result, "heard")]) <= 0.1
    assert text(result, "said") == text(result, "said_at_end") == text(result, "kept")
    assert word_error_rate([text(result, "said")], [hear(tmp_path / "reply.raw", 24_000)]) <= 0.1


def test_a_barge_in_cancels_the_reply_and_truncation_shortens_it(
    secure: ServerProcess, certificate: tuple[Path, Path], hear: Hear, tmp_path: Path
) -> None:
    clip = question(CAPITAL)
    given = {
        "question": str(wire_file(clip, tmp_path)),
        "turn_detection": {"type": "server_vad"},
        "reply": str(tmp_path / "reply.raw"),
    }
    result = run(secure, certificate, "barge_in", given)
    assert result["errors"] == []
    assert (result["status"], result["reason"]) == ("cancelled", "turn_detected")
    assert result["late_deltas"] == 0
    kept, shorter = text(result, "kept"), text(result, "kept_after_truncate")
    assert text(result, "sent").startswith(kept.rstrip("\u2026"))
    assert kept.startswith(shorter)
    assert len(shorter) < len(kept)
    assert number(result, "truncated_ms") <= number(result, "played_ms") // 2
    assert word_error_rate([clip.text], [text(result, "heard")]) <= 0.2
    assert result["answer_status"] == "completed"
    assert word_error_rate([text(result, "answer")], [hear(tmp_path / "reply.raw", 24_000)]) <= 0.1


def test_a_required_tool_is_called_and_its_result_is_spoken_about(
    secure: ServerProcess, certificate: tuple[Path, Path]
) -> None:
    result = run(secure, certificate, "tool_call", {})
    assert result["errors"] == []
    assert (result["status"], result["name"]) == ("completed", "get_weather")
    assert result["arguments"] == result["arguments_done"]
    assert '"city"' in text(result, "arguments")
    assert result["told_status"] == "completed"
    assert text(result, "told")
    assert result["metadata"] == {"purpose": "tell"}


def test_an_ephemeral_key_opens_a_session_that_begins_as_its_maker_wanted_and_answers_in_text(
    certificate: tuple[Path, Path],
) -> None:
    with ServerProcess("embedded", tls=certificate, env={"TALKOVER_API_KEYS": KEY}) as process:
        result = run(process, certificate, "client_secret", {"api_key": KEY})
    assert result["errors"] == []
    assert result["secret"] == "ek_"
    assert 55 <= number(result, "lives") <= 60
    assert (result["instructions"], result["modalities"]) == ("Be brief.", ["text"])
    assert result["status"] == "completed"
    assert text(result, "said")
    assert result["part"] == {"type": "output_text", "text": result["said"]}
    assert not [name for name in strings(result, "types") if "audio" in name]


def test_a_dropped_connection_leaves_nothing_and_the_next_conversation_works(
    secure: ServerProcess, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    clip = question("What is a good name for a dog?")
    result = run(secure, certificate, "disconnect", {"question": str(wire_file(clip, tmp_path))})
    assert result["errors"] == result["first_errors"] == []
    assert result["status"] == "completed"
    assert word_error_rate([clip.text], [text(result, "heard")]) <= 0.2
    assert text(result, "said")
    assert secure.health()["sessions"] == 0
