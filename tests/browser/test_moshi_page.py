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
from tests.browser.listening import loud_between
from tests.browser.voice_page import VoicePage
from tests.servers import ServerProcess

pytestmark = [pytest.mark.browser, pytest.mark.models, pytest.mark.wide, needs_chromium]


@pytest.fixture(params=["thread", "process"])
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[ServerProcess, Path]]:
    """A server with the tiny model, and where its sessions are recorded."""
    arguments = ["--random-weights", "tiny", "--worker", request.param, "--record", str(tmp_path)]
    with ServerProcess("moshi", arguments=arguments) as process:
        yield process, tmp_path


def test_noise_is_timed_cut_by_the_page_and_replayed_identically(
    browser: Browser, recorded: tuple[ServerProcess, Path]
) -> None:
    server, recordings = recorded
    with VoicePage(browser, server.base_url.removesuffix("/v1")) as page:
        page.visit()
        page.start()
        # It owns its turns: nobody asks it for anything.
        first = page.wait_event("response.created").event["response"]["id"]
        page.sounding(1.5)
        mark = page.mark()
        page.page.click("#stop")
        cleared = page.wait_event("x_talkover.playback_cleared", mark)
        done = page.wait_event("response.done", mark).event["response"]
        assert (done["id"], done["status"]) == (first, "cancelled")
        again = page.wait_event("output_audio_buffer.started", mark)
        page.sounding(1.0)
        recording = page.recording()
        rate = recording.rate
        captions = page.said_by("agent")
        assert page.faults == []
    # What it thinks while it speaks is shown: numbers, since there is no tokenizer for random weights.
    assert captions[0].state == "interrupted"
    assert captions[0].said.startswith("#")
    cut, back = recording.sample(cleared.at), recording.sample(again.at)
    # Noise, and in time: before the press there is hardly a hole, and behind the cut nothing is stale.
    assert loud_between(recording.agent, rate, cut - rate * 12 // 10, cut - rate * 4 // 10) > 650
    assert loud_between(recording.agent, rate, cut + rate // 50, back) == 0
    assert loud_between(recording.agent, rate, back + rate // 4, back + rate) > 600
    spoken = recording.agent[cut - rate : cut].astype(np.float64)
    assert np.abs(np.corrcoef(spoken[:-480], spoken[480:])[0, 1]) < 0.9
    server.stop()
    (folder,) = [path for path in recordings.iterdir() if path.is_dir()]
    result = rerun(folder)
    assert result.identical, result.difference
    assert result.events > 50
