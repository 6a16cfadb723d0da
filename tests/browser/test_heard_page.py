"""What the browser's own audio graph heard of a call with the embedded engine, against the server's account of it.

.venv/bin/python -m pytest -m wide tests/browser/test_heard_page.py
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import soxr
from numpy.typing import NDArray
from playwright.sync_api import Browser

from sessions.replay.alterations import Alterations
from sessions.replay.reader import Recording
from sessions.replay.rerun import rerun
from sessions.replay.what_if import what_if
from tests.browser.chromium import needs_chromium
from tests.browser.listening import clip, end_before, onset_after
from tests.browser.voice_page import VoicePage
from tests.servers import ServerProcess
from tests.speech import RATE

pytestmark = [pytest.mark.browser, pytest.mark.models, pytest.mark.wide, needs_chromium]

STORY = "Tell me a long story about a ship that sails around the world."
LONG = 180_000.0
"""Milliseconds that an answer may take on a slow machine."""
MARGIN = 0.2
"""Seconds around a stretch of sound that belong to it."""


@dataclass(frozen=True)
class Compared:
    """How one stretch of sound differs between both accounts: theirs less ours.

    `usual_ms`, `late_ms`: how late page and server were for each other meanwhile: the time that a report of the page
    waited for its answer, at the median and at most. The clocks of a busy machine tell nothing more exactly than that;
    edges are told by single reports.
    """

    lag_ms: float
    onset_ms: float
    end_ms: float
    level_db: float
    usual_ms: float
    late_ms: float


def envelope(pcm: NDArray[np.int16], rate: int) -> NDArray[np.float64]:
    """RMS of each millisecond, without its mean."""
    step = rate // 1000
    whole = pcm[: len(pcm) // step * step].astype(float).reshape(-1, step)
    rms = np.sqrt(np.mean(whole**2, axis=1))
    return np.asarray(rms - rms.mean())


def lag(ours: NDArray[np.int16], theirs: NDArray[np.int16], rate: int) -> int:
    """By how many milliseconds `theirs` comes after `ours`, where they fit best."""
    left, right = envelope(ours, rate), envelope(theirs, rate)
    size = len(left) + len(right) - 1
    fit = np.fft.irfft(np.fft.rfft(right, size) * np.fft.rfft(left, size).conj(), size)
    best = int(fit.argmax())
    return best if best < len(right) else best - size


def decibels(pcm: NDArray[np.int16]) -> float:
    return 10 * float(np.log10(np.mean(np.square(pcm.astype(float))) + 1e-9))


def stretches(recording: Recording, rate: int) -> Iterator[slice]:
    """Where the answers lie on `agent_heard`: what is parted by half a second is another one."""
    tick = 48_000 // rate
    spans: list[tuple[int, int]] = []
    for piece in recording.pieces("heard"):
        begin, end = piece.placed_at // tick, piece.end // tick
        if spans and begin - spans[-1][1] < rate // 2:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((begin, end))
    margin = round(MARGIN * rate)
    for begin, end in spans:
        if end - begin > rate // 2:
            yield slice(max(0, begin - margin), end + margin)


def edges(pcm: NDArray[np.int16], rate: int) -> tuple[float, float]:
    """When its sound begins and ends, in ms."""
    onset, end = onset_after(pcm, rate, 0), end_before(pcm, rate, len(pcm))
    assert onset is not None
    assert end is not None
    return onset * 1000 / rate, end * 1000 / rate


def compared(ours: NDArray[np.int16], theirs: NDArray[np.int16], rate: int, waits: NDArray[np.float64]) -> Compared:
    (onset, end), (their_onset, their_end) = edges(ours, rate), edges(theirs, rate)
    level = decibels(theirs) - decibels(ours)
    return Compared(
        lag_ms=lag(ours, theirs, rate),
        onset_ms=their_onset - onset,
        end_ms=their_end - end,
        level_db=round(level, 2),
        usual_ms=round(float(np.median(waits))),
        late_ms=round(float(waits.max())),
    )


def answers(page: VoicePage) -> NDArray[np.float64]:
    """When the page sent each report that was answered, and when it had the answer; page times in ms, [n, 2]."""
    told = (
        "() => window.probe.playback.filter(({detail}) => 'at_ms' in detail).map(({at, detail}) => [detail.at_ms, at])"
    )
    return np.array(page.page.evaluate(told), float).reshape(-1, 2)


def test_what_the_server_says_was_heard_is_what_the_page_played(browser: Browser, tmp_path: Path) -> None:
    with ServerProcess("embedded", arguments=["--record", str(tmp_path)]) as server:
        with VoicePage(browser, server.base_url.removesuffix("/v1")) as page:
            page.visit()
            page.start()
            page.ask(STORY)
            page.sounded(2.0)
            page.say(clip("commands", "hang on a second").pcm, RATE)
            page.wait_event("x_talkover.epoch_began")
            page.wait_event("x_talkover.playback_cleared")
            # What interrupted is answered too.
            page.wait_event("output_audio_buffer.stopped", page.mark(), within=LONG)
            page.page.wait_for_timeout(2000)
            played = page.recording()
            answered = answers(page)
        (folder,) = tmp_path.iterdir()
    recording = Recording(folder)
    rate = recording.manifest.agent_rate
    ours = recording.samples("agent_heard", 0, recording.tracks()["agent_heard"].length)
    theirs = np.asarray(soxr.resample(played.on_page_time(), played.rate, rate), np.int16)

    # Their clocks begin apart: over the whole call they fit at one place, and every answer fits there by itself.
    apart = lag(ours, theirs, rate) * rate // 1000
    theirs = np.pad(theirs[max(0, apart) :], (max(0, -apart), len(ours)))
    found = []
    for one in stretches(recording, rate):
        begin, end = (played.began + 1000 * (at + apart) / rate for at in (one.start, one.stop))
        meanwhile = answered[(answered[:, 1] > begin) & (answered[:, 0] < end)]
        assert len(meanwhile) > 5
        found.append(compared(ours[one], theirs[one], rate, meanwhile[:, 1] - meanwhile[:, 0]))
    print(*found, sep="\n")
    assert len(found) >= 2
    for one in found:
        assert abs(one.lag_ms) <= 30 + one.usual_ms, found
        assert max(abs(one.onset_ms), abs(one.end_ms)) <= 30 + one.late_ms, found
        assert abs(one.level_db) <= 1.0, found

    result = rerun(folder)
    assert result.identical, str(result.difference)
    assert not what_if(folder, Alterations.parse(drop=["interruption"])).same
