"""Native full duplex in the voice page: random weights talk to the browser, are cut, and are the same when replayed.

.venv/bin/python -m pytest -m wide tests/browser/test_moshi_page.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser

from sessions.replay.rerun import rerun
from tests.browser.chromium import needs_chromium
from tests.browser.listening import end_before, loud_between
from tests.browser.voice_page import VoicePage
from tests.servers import ServerProcess

pytestmark = [pytest.mark.browser, pytest.mark.models, pytest.mark.wide, needs_chromium]


@pytest.fixture(params=["thread", "process"])
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[ServerProcess, Path]]:
    """A server with the tiny model, and where its sessions are recorded."""
    arguments = ["--random-weights", "tiny", "--worker", request.param, "--record", str(tmp_path)]
    with ServerProcess("moshi", arguments=arguments) as process:
        yield process, tmp_path


def cut(page: VoicePage) -> str:
    """Press the button that stops the answer while one sounds; returns which one was cut.

    It ends its answers itself, perhaps right before the press: then nothing is there to cut, and it is tried again.
    """
    for _ in range(6):
        page.sounded(1.0)
        mark = page.mark()
        page.page.click("#stop")
        page.wait(
            """(mark) => window.probe.events.slice(mark).some(({event}) =>
                event.type === 'x_talkover.playback_cleared' || event.type === 'error')""",
            mark,
        )
        for stamped in page.events()[mark:]:
            if stamped.type == "x_talkover.playback_cleared":
                return str(stamped.event["response"])
    raise AssertionError("every answer had ended before it could be cut")


def test_noise_is_timed_cut_by_the_page_and_replayed_identically(
    browser: Browser, recorded: tuple[ServerProcess, Path]
) -> None:
    server, recordings = recorded
    with VoicePage(browser, server.base_url.removesuffix("/v1")) as page:
        page.visit()
        page.start()
        # It owns its turns: nobody asks it for anything.
        page.wait_event("response.created")
        response = cut(page)
        page.wait(
            """(id) => window.probe.events.some(({event}) =>
                event.type === 'response.done' && event.response.id === id && event.response.status === 'cancelled')""",
            response,
        )
        # It goes on by itself, and is heard again. A machine that is short of time leaves holes in it.
        page.wait("() => !window.probe.gates.at(-1).muted")
        page.sounded(0.5, since=float(page.page.evaluate("() => window.probe.gates.at(-1).at")))
        recording = page.recording()
        gates = page.gates(recording)
        captions = page.said_by("agent")
        state = page.page.evaluate("(id) => window.probe.app.conversation.of(id)?.state ?? null", response)
        assert page.faults == []
    # What it thinks while it speaks is shown: numbers, since there is no tokenizer for random weights. An answer of
    # which no word had been sent yet leaves no caption.
    assert captions
    assert all(caption.said.startswith("#") for caption in captions if caption.said)
    assert state in ("interrupted", None)
    # Sound before the press, none while the gate is shut, sound behind it.
    rate, agent = recording.rate, recording.agent
    shut = next(sample for sample, muted in reversed(gates) if muted)
    opened = next(sample for sample, muted in gates if not muted and sample > shut)
    assert opened - shut > rate // 50
    assert loud_between(agent, rate, 0, shut) > 200
    assert loud_between(agent, rate, shut + rate // 50, opened) == 0
    assert loud_between(agent, rate, opened, 1 << 40) > 100
    # Noise, and no tone.
    last = end_before(agent, rate, shut) or 0
    spoken = agent[max(0, last - rate) : last].astype(np.float64)
    assert np.abs(np.corrcoef(spoken[:-480], spoken[480:])[0, 1]) < 0.9
    server.stop()
    (folder,) = [path for path in recordings.iterdir() if path.is_dir()]
    result = rerun(folder)
    assert result.identical, result.difference
    assert result.events > 50
