"""vLLM-Omni's own client against the server process that our remote engine is tested with: a misreading of the
protocol that both of ours share would show here."""

from __future__ import annotations

import importlib
import json
import sys
import types

import pytest

from models.families.vllm_omni import protocol
from models.families.vllm_omni.protocol import RemoteCapabilities
from tests.conformance.results import number, text
from tests.conformance.venvs import interpreter, run_client
from tests.peers.process import PeerProcess

pytestmark = [pytest.mark.conformance, pytest.mark.wide]


@pytest.mark.parametrize("faults", [(), ("--fault", "drop")])
def test_the_published_client_is_answered_as_by_the_published_server(faults: tuple[str, ...]) -> None:
    with PeerProcess("vllm_omni", *faults) as peer:
        result = run_client("vllm_omni", "against_peer", {"url": f"{peer.ws}/v1/realtime"})
        seen = peer.seen()
    assert result["refused"] == {}
    assert result["token"] is True
    assert text(result, "session")
    assert result["resumed"] is bool(faults)
    assert (result["decision"], result["status"]) == ("speak", "completed")
    assert text(result, "said") == "One two three four five six seven eight nine ten"
    assert number(result, "length") == 10 * 400 * 24 * 2
    assert number(result, "played_ms") == pytest.approx(4000)
    assert result["acknowledged"] is True
    assert result["cancelled"] == ["cancelled", "client_cancelled"]
    numbers = result["numbers"]
    assert isinstance(numbers, list)
    assert numbers == list(range(1, len(numbers) + 1)) != []
    assert result["closed"] == ["client_close"]
    assert {"session.update", "playback.ack", "response.cancel", "session.event_ack", "session.close"} <= set(seen)


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> None:
    """The published package's protocol modules, found but without the rest of it, which wants a GPU's libraries."""
    site = next(interpreter("vllm_omni").parent.parent.glob("lib/python3*/site-packages"))
    package = types.ModuleType("vllm_omni")
    package.__path__ = [str(site / "vllm_omni")]
    monkeypatch.setattr(sys, "path", [*sys.path, str(site)])
    monkeypatch.setitem(sys.modules, "vllm_omni", package)


@pytest.mark.usefixtures("published")
def test_what_the_published_event_classes_render_is_read_here_as_what_it_is() -> None:
    events = importlib.import_module("vllm_omni.protocol.duplex.events")
    session = {"id": "s", "capabilities": {"supports_session_resume": True, "chunk_period_ms": 80}}
    can = RemoteCapabilities(resume=True, chunk_ms=80)
    metadata = {"epoch": 3}
    expected = [
        (events.SessionCreated(session=session, resume_token="t"), protocol.Opened("s", can, "t", False)),
        (
            events.SessionResumed(session_id="s", session=session, resume_token="u"),
            protocol.Opened("s", can, "u", True),
        ),
        (events.SessionExpired(session_id="s", reason="idle"), protocol.Over("expired: idle")),
        (events.SessionReplaced(session_id="s"), protocol.Over("replaced")),
        (events.SessionResyncRequired(session_id="s"), protocol.ResyncRequired()),
        (events.SessionHeartbeatAck(session_id="s"), protocol.HeartbeatAcked()),
        (
            events.ResponseCreated(response_id="r", response={"id": "r", "metadata": {"duplex_event": metadata}}),
            protocol.Began("r", 3),
        ),
        (
            events.AudioDelta(response_id="r", item_id="i", delta="AQA=", sample_rate_hz=16_000, metadata=metadata),
            protocol.Audio("r", 3, b"\1\0", 16_000),
        ),
        (events.TranscriptDelta(response_id="r", delta=" a"), protocol.Text("r", " a", spoken=True)),
        (events.TextDelta(response_id="r", delta="b"), protocol.Text("r", "b", spoken=False)),
        (
            events.OutputItemDone(
                response_id="r",
                item={"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"},
            ),
            protocol.ToolCall("r", "c", "weather", "{}"),
        ),
        (
            events.ResponseDone(response_id="r", response={"id": "r", "status": "cancelled", "metadata": metadata}),
            protocol.Ended("r", 3, "cancelled"),
        ),
        (events.Listen(session_id="s", epoch=4, response_id="r"), protocol.Listens("r", 4)),
        (events.OverlapDecision(session_id="s", epoch=5, action="listen"), protocol.EpochMoved(5)),
        (events.OutputAudioCleared(response_id="r"), protocol.Cleared("r")),
        (events.error_event("input_backpressure", "full"), protocol.Fault("input_backpressure", "full")),
    ]
    for event, ours in expected:
        assert protocol.read(json.dumps(event.to_realtime())).event == ours


@pytest.mark.usefixtures("published")
async def test_what_is_sent_has_the_fields_that_the_published_client_sends() -> None:
    client = importlib.import_module("vllm_omni.clients.duplex")
    sent: list[dict[str, object]] = []

    async def keep(self: object, payload: dict[str, object]) -> None:
        sent.append(payload)

    captured = type("Captured", (client.DuplexClient,), {"_send_command": keep})(
        "ws://h", model="m", config=client.SessionConfig()
    )
    await captured.append_audio(bytes(3200))
    await captured.ack_playback(480, response_id="r")
    await captured.cancel_response("r")
    ours = [
        protocol.append(bytes(3200), "pcm16", 16_000, 100),
        protocol.acknowledge_playback("r", 480),
        protocol.cancel("r"),
    ]
    for theirs, mine in zip(sent, ours, strict=True):
        theirs.pop("event_id")
        assert json.loads(mine) == theirs
