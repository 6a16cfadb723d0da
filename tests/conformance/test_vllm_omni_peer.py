"""vLLM-Omni's own client against the server process that our remote engine is tested with: a misreading of the
protocol that both of ours share would show here."""

from __future__ import annotations

import pytest

from tests.conformance.results import number, text
from tests.conformance.venvs import run_client
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
