"""The voice page as a user sees and hears it, driven from a test."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from playwright.sync_api import Browser, BrowserContext, Error, Page, Route

HERE = Path(__file__).parent
WITHIN = 45_000.0
"""Milliseconds that anything may take to come."""

CHANNELS = """
    window.testChannels = [];
    const { createDataChannel } = RTCPeerConnection.prototype;
    RTCPeerConnection.prototype.createDataChannel = function (...wanted) {
        const channel = createDataChannel.apply(this, wanted);
        window.testChannels.push(channel);
        return channel;
    };
"""
"""Keeps the data channels of the page where a test can close them."""

Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Stamped:
    """An event of the server and the page time at which it came, in ms."""

    at: float
    event: Event

    @property
    def type(self) -> str:
        return str(self.event["type"])


@dataclass(frozen=True, slots=True)
class Recording:
    """What the page's audio graph had: int16 mono, shape [samples], at `rate` Hz.

    `agent` is what was heard, behind the page's gate; `arrived` what a page without one would have let be heard.
    `began` is the page time of the first sample, in ms, to about 5 ms; `first` is its frame on the clock of the audio.
    `came`: frames of that clock and the page times, in ms, at which the sound before them had come.
    """

    rate: int
    began: float
    user: NDArray[np.int16]
    agent: NDArray[np.int16]
    arrived: NDArray[np.int16]
    first: int
    came: tuple[tuple[int, float], ...]

    @classmethod
    def of(cls, taken: Mapping[str, Any]) -> Recording:
        """From what `take` of recording.js gives: its sides are user, agent, arrived."""
        user, agent, arrived = (np.frombuffer(base64.b64decode(side), "<i2") for side in taken["sides"])
        came = tuple((int(frame), float(at)) for frame, at in taken["came"])
        return cls(round(taken["rate"]), float(taken["began"]), user, agent, arrived, int(taken["first"]), came)

    def sample(self, at: float) -> int:
        """The sample at a page time."""
        return max(0, min(len(self.agent), round((at - self.began) * self.rate / 1000)))

    def on_page_time(self) -> NDArray[np.int16]:
        """`agent` by the page's clock, from the page time of its first sample on.

        The clock of the audio stands still while a busy machine leaves it no time, and never makes up for it; so it is
        only ever further behind, and what came with the least delay from then on tells how far.
        """
        frames = np.array([frame - self.first for frame, _ in self.came])
        behind = np.array([at for _, at in self.came]) * self.rate / 1000 - frames
        least = np.minimum.accumulate(behind[::-1])[::-1]
        places = (least - least[0]).round().astype(int)
        out = np.zeros(len(self.agent) + places[-1], np.int16)
        for begin, end, place in zip([0, *frames[:-1]], frames, places, strict=True):
            out[begin + place : end + place] = self.agent[begin:end]
        return out


@dataclass(frozen=True, slots=True)
class Caption:
    """One caption as it is shown."""

    side: str
    state: str
    said: str
    struck: str
    remarks: tuple[str, ...]


class VoicePage:
    """One visit in a browser context of its own. A context manager."""

    def __init__(
        self,
        browser: Browser,
        url: str,
        *,
        speaks: bool = True,
        allowed: bool = True,
        records: bool = True,
        **options: Any,
    ) -> None:
        """`speaks`: `say` works; otherwise the browser's own microphone is used. `allowed`: the page may have one.
        `records`: both sides are recorded, for which the page's policy is not enforced."""
        self.records = records
        self.context: BrowserContext = browser.new_context(
            permissions=["microphone"] if allowed else [], base_url=url, bypass_csp=records, **options
        )
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(WITHIN)
        self.faults: list[str] = []
        """What the page itself did wrong: errors, and what its policy refused."""
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("console", lambda message: self._console(message.type, message.text))
        self.page.route("**/web/test-*.js", self._serve)
        self.page.add_init_script(script=CHANNELS)
        if speaks:
            self.page.add_init_script(path=HERE / "microphone.js")

    def __enter__(self) -> VoicePage:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.page.evaluate("() => window.probe !== undefined && window.probe.app.session.state !== 'idle'"):
            # A page that only vanishes keeps its session for the time of grace.
            self.page.evaluate("() => window.probe.app.end()")
        self.context.close()

    def _console(self, kind: str, text: str) -> None:
        # A status of 4xx or 5xx is the server's answer, and each test looks at that itself.
        if kind == "error" and "status of" not in text:
            self.faults.append(text)

    @staticmethod
    def _serve(route: Route) -> None:
        name = route.request.url.rpartition("/web/test-")[2]
        route.fulfill(path=HERE / name, content_type="text/javascript")

    # --- a visit ---------------------------------------------------------------------------------------------------

    def visit(self) -> None:
        """Load the page and wait until the server is ready."""
        self.page.goto("/")
        self._install()
        self.wait("() => window.probe.app.health.ready")

    def _install(self) -> None:
        self.page.evaluate("async () => (await import('/web/test-probe.js')).install()")

    def start(self) -> None:
        """Press the button, wait until it is live."""
        self.page.click("#talk")
        self.live()

    def live(self) -> None:
        """Wait until it is live, then record."""
        self.wait("() => window.probe.app.session.state === 'live' || !document.getElementById('notice').hidden")
        state = self.page.evaluate("() => window.probe.app.session.state")
        assert state == "live", f"{state}: {self.page.inner_text('#notice')}"
        if self.records:
            self.page.evaluate("async () => (await import('/web/test-probe.js')).record()")

    def reload(self) -> None:
        """Load the page again, as a user does."""
        self.page.reload()
        self._install()

    def wait(self, condition: str, argument: object = None, within: float = WITHIN) -> None:
        """Until the JavaScript function `condition` is true of `argument`."""
        try:
            self.page.wait_for_function(condition, arg=argument, timeout=within, polling=20)
        except Error as error:
            tail = [stamped.type for stamped in self.events()[-12:]]
            raise AssertionError(f"waited for {condition}; last came {tail}; faults {self.faults}") from error

    # --- what happens ----------------------------------------------------------------------------------------------

    def say(self, pcm: NDArray[np.int16], rate: int) -> float:
        """Speak into the microphone; returns the page time of the first sample."""
        encoded = base64.b64encode(pcm.tobytes()).decode()
        return float(self.page.evaluate("([pcm, rate]) => window.testMicrophone.say(pcm, rate)", [encoded, rate]))

    def ask(self, text: str) -> None:
        """Type a message and send it."""
        self.page.fill("#text", text)
        self.page.press("#text", "Enter")
        self.page.evaluate("() => document.activeElement.blur()")

    def events(self) -> list[Stamped]:
        """Every event of the server since the page was loaded."""
        return [Stamped(entry["at"], entry["event"]) for entry in self.page.evaluate("() => window.probe.events")]

    def mark(self) -> int:
        """The number of events so far."""
        return int(self.page.evaluate("() => window.probe.events.length"))

    def wait_event(self, kind: str, after: int = 0, within: float = WITHIN) -> Stamped:
        """The first event of type `kind` from index `after` on."""
        condition = "([kind, after]) => window.probe.events.slice(after).some(({event}) => event.type === kind)"
        self.wait(condition, [kind, after], within)
        return next(stamped for stamped in self.events()[after:] if stamped.type == kind)

    def answered(self, after: int) -> str:
        """Wait until the first response that begins from event `after` on has been played; returns its id."""
        response = self.wait_event("response.created", after).event["response"]["id"]
        condition = """(id) => window.probe.events.some(
            ({event}) => event.type === 'output_audio_buffer.stopped' && event.response_id === id)"""
        self.wait(condition, response)
        return str(response)

    def nobody_left(self) -> None:
        """Wait until the server has no session."""
        self.page.evaluate(
            """async () => {
                while ((await (await fetch('/healthz')).json()).sessions) await new Promise((on) => setTimeout(on, 50));
            }"""
        )

    def sounding(self, seconds: float) -> None:
        """Wait until the agent has been heard for so long without a break."""
        condition = """(ms) => {
            const { last, active } = window.probe.app.agent.activity;
            return active && last && last.to - last.from >= ms;
        }"""
        self.wait(condition, seconds * 1000)

    def sounded(self, seconds: float, since: float = 0.0) -> None:
        """Wait until the agent has been heard for so long in all since that page time, and is heard now."""
        condition = """([ms, since]) => {
            const { runs, active } = window.probe.app.agent.activity;
            return active && runs.reduce((sum, { from, to }) => sum + Math.max(0, to - Math.max(from, since)), 0) >= ms;
        }"""
        self.wait(condition, [seconds * 1000, since])

    def quiet(self, seconds: float = 0.6) -> None:
        """Wait until nothing is being said and nothing is owed, for so long."""
        condition = """(ms) => {
            const { app } = window.probe;
            const { stage } = app;
            if (stage.cuttable || stage.owed || stage.hearing || stage.held) window.probe.busy = performance.now();
            return performance.now() - (window.probe.busy ?? 0) >= ms;
        }"""
        self.wait(condition, seconds * 1000)

    def recording(self) -> Recording:
        """All that was recorded since `live` or `forget`."""
        return Recording.of(self.page.evaluate("() => window.probe.recording.take()"))

    def gates(self, recording: Recording) -> list[tuple[int, bool]]:
        """Each time that the page shut or opened its gate since `live`: the sample of `recording`, and whether it was
        shut. Exact, whatever the machine does besides: both are on the clock of the audio."""
        return [
            (round(one["frame"]) - recording.first, bool(one["muted"]))
            for one in self.page.evaluate("() => window.probe.gates")
        ]

    def forget(self) -> None:
        """Forget what was recorded so far."""
        self.page.evaluate("() => window.probe.recording.forget()")

    # --- what is seen ----------------------------------------------------------------------------------------------

    def captions(self) -> list[Caption]:
        found = self.page.evaluate(
            """() => [...document.querySelectorAll('.caption:not([hidden])')].map((block) => {
                const words = block.querySelector('.words');
                const struck = words.querySelector('.unheard')?.textContent ?? '';
                return {
                    side: block.dataset.side,
                    state: block.dataset.state,
                    said: [...words.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data).join(''),
                    struck,
                    remarks: [...block.querySelectorAll('.remark')].map((remark) => remark.textContent),
                };
            })"""
        )
        return [
            Caption(one["side"], one["state"], one["said"].strip(), one["struck"].strip(), tuple(one["remarks"]))
            for one in found
        ]

    def said_by(self, side: str) -> list[Caption]:
        return [caption for caption in self.captions() if caption.side == side]

    def text(self, selector: str) -> str:
        return str(self.page.inner_text(selector)).strip()

    def wait_text(self, selector: str, text: str) -> None:
        """Until `text` is shown there."""
        condition = "([selector, text]) => document.querySelector(selector)?.textContent === text"
        self.page.wait_for_function(condition, arg=[selector, text])

    def number(self, selector: str) -> float:
        """The first number of what is shown there; NaN for none."""
        found = re.search(r"[\d.]+", self.text(selector))
        return float(found[0]) if found else float("nan")


Heard = Callable[[NDArray[np.int16], int], str]
"""What a recognizer makes of int16 mono PCM at a rate."""
