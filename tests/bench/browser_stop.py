"""What is heard in the browser: how soon silence comes, whether stale sound does, how true the heard position is.

`python -m tests.bench.browser_stop --spawn` opens the voice page in headless Chromium and makes it play a reply in
which no stretch is like another. It is cut by the page's own button and by spoken commands, and judged by what the
page's audio graph really played, sample by sample. What arrived before the page's gate is recorded beside it: that is
what a client without a gate lets be heard. `--no-reports` keeps the page from telling what sounds, so that the
server's model is measured.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import soxr
from numpy.typing import NDArray
from playwright.sync_api import Browser, sync_playwright

from server.client import RATE as REPLY_RATE
from tests.bench.backchannels import reference, script
from tests.bench.report import milliseconds, percentile, progress, table, write
from tests.bench.target import Target, arguments, server
from tests.browser.chromium import executable, launch
from tests.browser.listening import end_before, loud_between, onset_after
from tests.browser.voice_page import Recording, VoicePage
from tests.speech import RATE, Clip, load

SETTLE = 0.9
"""Seconds after a cut in which stale sound would come."""
CLOCKS_MS = 10
"""What the audio clock and the page's clock may differ by, and the ramp of the page's gain."""
VOICE = 1000
"""Level of an int16 sample that is speech and no room noise: the microphone's own is 10."""
PROBE_S = 0.15
"""How much of the end is looked for in the reply."""
TAIL_S = 0.05
"""The last stretch, which is compared with the reply bit by bit."""
WINDOW_S = 0.004
"""Such a bit."""
NEAR_S = 2.0
"""How far around the server's word it is looked for."""


@dataclass(frozen=True, slots=True)
class Cut:
    """One cut; in ms from its cause, which is the press of the button or the true onset of speech."""

    silent: float
    """The last sound behind the gate."""
    silent_without_gate: float
    """The last sound that arrived."""
    stale: float
    """How much of the old reply was heard after the commit was known to the page."""
    heard_error: float | None
    """What the server says was heard, less what was; None where it could not be found in the reply."""
    heard_by: str
    commit: float


def locate(heard: NDArray[np.int16], rate: int, end: int, reply: NDArray[np.float64], about: float) -> float | None:
    """Content position in seconds of the last sound before sample `end`, looked for within `NEAR_S` of `about`.

    `reply` is the content at `rate`. None where nothing there is like it. A decoder rings on for some 10 ms after the
    last content; that is no content, so the end is where the recording is last like the reply.
    """
    size, tail = round(PROBE_S * rate), round(TAIL_S * rate)
    probe = heard[end - size - tail : end - tail].astype(np.float64)
    first = max(0, round((about - NEAR_S) * rate))
    block = reply[first : round((about + NEAR_S) * rate)]
    if len(probe) < size or len(block) <= size or not np.abs(probe).max():
        return None
    spectrum = np.fft.rfft(block, len(block) + size)
    products = np.fft.irfft(spectrum * np.conj(np.fft.rfft(probe, len(block) + size)))[: len(block) - size + 1]
    energy = np.convolve(block**2, np.ones(size), "valid")
    likeness = products / np.sqrt(np.maximum(energy, 1.0) * float(probe @ probe))
    best = int(np.argmax(likeness))
    if likeness[best] < 0.6:
        return None
    position, at, window = first + best + size, end - tail, round(WINDOW_S * rate)
    while at + window <= end and _alike(heard[at : at + window], reply[position : position + window]):
        at, position = at + window, position + window
    return position / rate


def _alike(one: NDArray[np.int16], other: NDArray[np.float64]) -> bool:
    a = one.astype(np.float64)
    if len(a) != len(other):
        return False
    energy = max(float(a @ a), 1.0) * max(float(other @ other), 1.0)
    return bool(float(a @ other) > 0.5 * energy**0.5)


def judge(
    recording: Recording, cause: float, commit: float, heard_ms: float, by: str, reply: NDArray[np.float64]
) -> Cut:
    """`cause` and `commit` are page times."""
    rate = recording.rate
    at, known = recording.sample(cause), recording.sample(commit)
    until = known + round(SETTLE * rate)
    last = end_before(recording.agent, rate, until) or at
    last_arrived = end_before(recording.arrived, rate, until) or at
    truth = locate(recording.agent, rate, last, reply, heard_ms / 1000)
    return Cut(
        silent=max(0, last - at) / rate * 1000,
        silent_without_gate=max(0, last_arrived - at) / rate * 1000,
        stale=loud_between(recording.agent, rate, known + rate * CLOCKS_MS // 1000, until),
        heard_error=None if truth is None else heard_ms - truth * 1000,
        heard_by=by,
        commit=commit - cause,
    )


class Bench:
    """A page that plays the reply over and over and is cut."""

    def __init__(self, browser: Browser, url: str, reports: bool) -> None:
        self.page = VoicePage(browser, url)
        self._reports = reports
        self._replies: dict[int, NDArray[np.float64]] = {}
        self._chance = random.Random(5)

    def open(self) -> None:
        self.page.visit()
        self.page.start()
        if not self._reports:
            # Heartbeats alone: a page that says nothing at all has no answers and looks for another connection.
            self.page.page.evaluate(
                """() => {
                    const { call } = window.probe.app.session;
                    const report = call.report.bind(call);
                    call.report = (state) => report({...state, rtp: null});
                }"""
            )
        # Commands are answered by nothing, so that all that is heard after one is stale.
        self.page.page.evaluate(
            """() => window.probe.app.session.send({type: 'session.update', session: {type: 'realtime',
                audio: {input: {turn_detection: {type: 'server_vad', create_response: false}}}}})"""
        )

    def reply(self, rate: int) -> NDArray[np.float64]:
        if rate not in self._replies:
            self._replies[rate] = np.asarray(soxr.resample(reference().astype(np.float64), REPLY_RATE, rate))
        return self._replies[rate]

    def _play(self) -> int:
        """Have the reply played for a while; returns the number of events before."""
        self.page.forget()
        mark = self.page.mark()
        self.page.ask("Go on.")
        self.page.wait_event("output_audio_buffer.started", mark)
        self.page.sounding(1.2 + 1.5 * self._chance.random())
        return mark

    def _cleared(self, mark: int, cause: float) -> Cut:
        cleared = self.page.wait_event("x_talkover.playback_cleared", mark)
        began = self.page.wait_event("x_talkover.epoch_began", mark)
        self.page.page.wait_for_timeout(SETTLE * 1000 + 200)
        recording = self.page.recording()
        heard = float(cleared.event["heard"]) / 48
        by = str(cleared.event.get("heard_by", ""))
        return judge(recording, cause, began.at, heard, by, self.reply(recording.rate))

    def cancel(self) -> Cut:
        mark = self._play()
        pressed = self.page.page.evaluate(
            "() => { const at = performance.now(); document.getElementById('stop').click(); return at; }"
        )
        return self._cleared(mark, float(pressed))

    def interrupt(self, clip: Clip) -> Cut | None:
        """None where the command was missed."""
        mark = self._play()
        spoken = self.page.say(clip.pcm, RATE)
        try:
            self.page.wait_event("x_talkover.playback_cleared", mark, within=(clip.seconds + 2.5) * 1000)
        except AssertionError:
            self.page.page.evaluate("() => document.getElementById('stop').click()")
            self.page.quiet(0.5)
            return None
        recording = self.page.recording()
        onset = onset_after(recording.user, recording.rate, recording.sample(spoken), VOICE)
        if onset is None:
            raise ValueError(f"{clip.name} was not recorded")
        return self._cleared(mark, recording.began + onset / recording.rate * 1000)


def connect_times(browser: Browser, url: str, times: int) -> list[float]:
    """Seconds from the press of the button to the open channel of events, each in a page of its own."""
    took = []
    for _ in range(times):
        with VoicePage(browser, url, records=False) as page:
            page.visit()
            page.start()
            took.append(float(page.page.evaluate("() => window.probe.app.connectedIn")) / 1000)
            page.page.click("#talk")
    return took


def summary(cuts: Sequence[Cut]) -> dict[str, object]:
    errors = [cut.heard_error for cut in cuts if cut.heard_error is not None]
    return {
        "silent": milliseconds([cut.silent / 1000 for cut in cuts]),
        "silent_without_gate": milliseconds([cut.silent_without_gate / 1000 for cut in cuts]),
        "commit": milliseconds([cut.commit / 1000 for cut in cuts]),
        "stale_ms": sum(cut.stale for cut in cuts),
        "heard_error": milliseconds([abs(error) / 1000 for error in errors]),
        "heard_error_median_ms": round(percentile(errors, 0.5), 1),
        "heard_by": sorted({cut.heard_by for cut in cuts}),
        "not_located": len(cuts) - len(errors),
    }


def show(name: str, cause: str, cuts: Sequence[Cut]) -> None:
    found = summary(cuts)
    rows = [
        [f"{cause} → silence heard", *_row(found["silent"])],
        [f"{cause} → silence without the page's gate", *_row(found["silent_without_gate"])],
        [f"{cause} → the commit is known to the page", *_row(found["commit"])],
        ["|heard position less truth|", *_row(found["heard_error"])],
    ]
    print(f"\n{name}\n" + table(rows, ("", "n", "p50 ms", "p95 ms", "max ms")))
    print(
        f"stale sound after the commit: {found['stale_ms']:.0f} ms; heard position by {found['heard_by']}, "
        f"median error {found['heard_error_median_ms']} ms, not located {found['not_located']}"
    )


def _row(figures: object) -> list[object]:
    return list(figures.values()) if isinstance(figures, dict) else []


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--cuts", type=int, default=20, metavar="N", help="cuts by the button (20)")
    parser.add_argument("--connects", type=int, default=10, metavar="N", help="calls whose set-up is timed (10)")
    parser.add_argument("--no-reports", action="store_true", help="the page does not tell what sounds")
    options = parser.parse_args()
    if executable() is None:
        print("no Chromium is installed; set CHROMIUM to its path", file=sys.stderr)
        return 1
    clips = load("commands", "test")[: options.limit or 20]
    reply = tempfile.TemporaryDirectory()
    with reply as folder, sync_playwright() as playwright, _target(options, Path(folder)) as target:
        address = target.url.replace("ws", "http", 1).partition("/v1/")[0]
        browser = launch(playwright)
        connects = connect_times(browser, address, options.connects)
        bench = Bench(browser, address, not options.no_reports)
        with bench.page:
            bench.open()
            cancels = []
            for number in range(options.cuts):
                cancels.append(bench.cancel())
                _tell(f"cut {number + 1}", cancels[-1])
            spoken = []
            for clip in clips:
                spoken.append(bench.interrupt(clip))
                _tell(clip.text, spoken[-1])
        browser.close()
    interrupts = [cut for cut in spoken if cut is not None]
    if connects:
        print(
            "\n" + table([["button → events flow", *milliseconds(connects).values()]], ("", "n", "p50", "p95", "max"))
        )
    show("Cut by the page's button", "press", cancels)
    show(f"Interrupted aloud ({len(spoken) - len(interrupts)} missed)", "onset", interrupts)
    figures = {
        "connect": milliseconds(connects),
        "cancel": summary(cancels),
        "interrupt": summary(interrupts),
        "missed": len(spoken) - len(interrupts),
        "cuts": [asdict(cut) for cut in cancels],
        "interrupts": [asdict(cut) for cut in interrupts],
    }
    write(figures, options.json)
    return 0


def _target(options: argparse.Namespace, folder: Path) -> contextlib.AbstractContextManager[Target]:
    return server(options, "scripted", script(folder, reference()))


def _tell(what: str, cut: Cut | None) -> None:
    found = "missed" if cut is None else f"silent after {cut.silent:.0f} ms, heard position off by {cut.heard_error}"
    progress(f"{what}: {found}")


if __name__ == "__main__":
    sys.exit(main())
