"""The WebRTC transport of @openai/agents-realtime, unmodified in a real browser, holds spoken conversations."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Error, Page, Route, sync_playwright

from tests.bench.words import word_error_rate
from tests.browser.chromium import launch, needs_chromium
from tests.browser.listening import audible, loud_between, words_beyond
from tests.browser.voice_page import HERE as BROWSER
from tests.browser.voice_page import WITHIN, Recording
from tests.conformance.conftest import Hear, question
from tests.conformance.environments import HERE
from tests.conformance.node import needs_node, packages, run_node
from tests.servers import ServerProcess
from tests.speech import RATE, Clip, load

pytestmark = [pytest.mark.conformance, pytest.mark.wide, pytest.mark.models, needs_node, needs_chromium]

FAMILY = "openai_agents_js"
CAPITAL = "What is the capital of France?"
STORY = "Tell me a long story about a ship that sails around the world."
TRANSCRIBED = "conversation.item.input_audio_transcription.completed"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # It ends with the module: beside Playwright's event loop no other could run.
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


class Talk:
    """A page with the SDK in it."""

    def __init__(self, page: Page, bundle: Path) -> None:
        self.page = page
        self._bundle = bundle
        page.set_default_timeout(WITHIN)
        page.route("**/sdk/*", lambda route: self._serve(route, bundle / Path(route.request.url).name))
        page.route("**/web/test-*.js", lambda route: self._serve(route, _of_tests(route.request.url)))
        page.route("**/blank", lambda route: route.fulfill(body="<!doctype html>", content_type="text/html"))
        page.add_init_script(path=BROWSER / "microphone.js")

    @staticmethod
    def _serve(route: Route, path: Path) -> None:
        route.fulfill(path=path, content_type="text/javascript")

    def connect(self, config: dict[str, object]) -> str:
        """Returns the id of the call, as the SDK read it."""
        self.page.goto("/blank")
        return str(self.page.evaluate("async (c) => (await import('/web/test-browser.js')).connect(c)", config))

    def wait(self, condition: str, argument: object = None) -> None:
        try:
            self.page.wait_for_function(condition, arg=argument, polling=30)
        except Error as error:
            tail = [event["type"] for event in self.events()[-12:]]
            errors = self.page.evaluate("() => window.talk.errors")
            raise AssertionError(f"waited for {condition}; last came {tail}; errors {errors}") from error

    def wait_event(self, kind: str, after: int = 0) -> dict[str, Any]:
        condition = "([kind, after]) => window.talk.events.slice(after).some(({event}) => event.type === kind)"
        self.wait(condition, [kind, after])
        return next(event for event in self.events()[after:] if event["type"] == kind)

    def events(self) -> list[dict[str, Any]]:
        return [dict(entry["event"]) for entry in self.page.evaluate("() => window.talk.events")]

    def at(self, event: dict[str, Any]) -> float:
        """The page time at which an event came."""
        condition = "(id) => window.talk.events.find(({event}) => event.event_id === id).at"
        return float(self.page.evaluate(condition, event["event_id"]))

    def say(self, clip: Clip) -> None:
        encoded = base64.b64encode(clip.pcm.tobytes()).decode()
        self.page.evaluate("([pcm, rate]) => window.testMicrophone.say(pcm, rate)", [encoded, RATE])

    def recording(self) -> Recording:
        return Recording.of(self.page.evaluate("() => window.talk.recording.take()"))

    def history(self) -> list[str]:
        return list(self.page.evaluate("() => window.talk.history()"))


def _of_tests(url: str) -> Path:
    name = url.rpartition("/web/test-")[2]
    return HERE / FAMILY / name if name == "browser.js" else BROWSER / name


@pytest.fixture
def talk(browser: Browser, server: ServerProcess, tmp_path: Path) -> Iterator[Talk]:
    bundle = packages(FAMILY) / "node_modules" / "@openai" / "agents-realtime" / "dist" / "bundle"
    context = browser.new_context(base_url=server.base_url.removesuffix("/v1"))
    talk = Talk(context.new_page(), bundle)
    yield talk
    events = tmp_path / "events.json"
    events.write_text(json.dumps(talk.events()))
    assert talk.page.evaluate("() => window.talk.errors") == []
    context.close()
    verdict = run_node(FAMILY, "judge", {"events": str(events)})
    assert verdict["invalid"] == []
    assert isinstance(verdict["count"], int)
    assert verdict["count"] > 10


def heard(recording: Recording, until: int | None, hear: Hear, folder: Path) -> str:
    path = folder / "heard.raw"
    path.write_bytes(audible(recording.agent[:until], recording.rate).astype("<i2").tobytes())
    return hear(path, recording.rate)


def test_a_spoken_question_is_answered_with_the_settings_that_the_sdk_has_by_itself(
    talk: Talk, hear: Hear, tmp_path: Path
) -> None:
    assert talk.connect({}).startswith("rtc_")
    talk.say(question(CAPITAL))
    done = talk.wait_event("response.done")
    talk.wait_event("output_audio_buffer.stopped")
    talk.page.wait_for_timeout(500)
    assert done["response"]["status"] == "completed"
    user, agent = talk.history()
    assert word_error_rate([CAPITAL], [user.removeprefix("user: ")]) <= 0.1
    said = agent.removeprefix("assistant: ")
    assert word_error_rate([said], [heard(talk.recording(), None, hear, tmp_path)]) <= 0.1
    assert "response.output_audio.delta" not in [event["type"] for event in talk.events()]


@pytest.mark.parametrize("detection", ["semantic_vad", "server_vad"])
def test_an_answer_is_interrupted_aloud_and_the_next_one_is_heard(
    talk: Talk, hear: Hear, tmp_path: Path, detection: str
) -> None:
    talk.connect({"audio": {"input": {"turnDetection": {"type": detection}}}})
    talk.page.evaluate("(text) => window.talk.session.sendMessage(text)", STORY)
    talk.wait_event("output_audio_buffer.started")
    talk.page.wait_for_timeout(2500)
    mark = len(talk.events())
    talk.say(question(CAPITAL))
    started = talk.wait_event("input_audio_buffer.speech_started", mark)
    cleared = talk.wait_event("output_audio_buffer.cleared", mark)
    first = talk.wait_event("response.done", mark)
    assert (first["response"]["status"], first["response"]["status_details"]["reason"]) == (
        "cancelled",
        "turn_detected",
    )
    assert cleared["response_id"] == first["response"]["id"]
    answered = talk.wait_event("output_audio_buffer.started", mark)
    talk.wait_event("output_audio_buffer.stopped", mark)
    talk.page.wait_for_timeout(500)

    recording = talk.recording()
    cut = recording.sample(talk.at(started))
    until = recording.sample(talk.at(answered))
    # No gate in this page: what was on its way still sounds.
    assert loud_between(recording.agent, recording.rate, cut + recording.rate * 3 // 10, until) == 0
    kept = next(line for line in talk.history() if line.startswith("assistant: ")).removeprefix("assistant: ")
    unheard, unshown = words_beyond(kept, heard(recording, cut, hear, tmp_path))
    assert (unheard <= 1, unshown <= 1) == (True, True)
    assert word_error_rate([CAPITAL], [talk.wait_event(TRANSCRIBED, mark)["transcript"]]) <= 0.1
    assert "Paris" in talk.history()[-1]


def test_the_stop_button_of_the_sdk_silences_the_answer_and_the_session_goes_on(talk: Talk) -> None:
    talk.connect({})
    talk.page.evaluate("(text) => window.talk.session.sendMessage(text)", STORY)
    talk.wait_event("output_audio_buffer.started")
    talk.page.wait_for_timeout(1500)
    mark = len(talk.events())
    stopped = talk.page.evaluate("() => { window.talk.session.interrupt(); return performance.now(); }")
    done = talk.wait_event("response.done", mark)
    assert done["response"]["status_details"]["reason"] == "client_cancelled"
    talk.wait_event("output_audio_buffer.cleared", mark)
    talk.page.wait_for_timeout(1000)
    recording = talk.recording()
    cut = recording.sample(stopped)
    assert loud_between(recording.agent, recording.rate, cut + recording.rate * 3 // 10, len(recording.agent)) == 0
    mark = len(talk.events())
    talk.say(question(CAPITAL))
    talk.wait_event("output_audio_buffer.stopped", mark)
    assert "Paris" in talk.history()[-1]


def test_a_backchannel_does_not_disturb_the_sdk(talk: Talk) -> None:
    talk.connect({"audio": {"input": {"turnDetection": {"type": "semantic_vad"}}}})
    talk.page.evaluate("(text) => window.talk.session.sendMessage(text)", STORY)
    talk.wait_event("output_audio_buffer.started")
    talk.page.wait_for_timeout(1500)
    mark = len(talk.events())
    talk.say(next(clip for clip in load("backchannels", "test") if clip.text == "yeah"))
    talk.page.wait_for_timeout(2500)
    kinds = [event["type"] for event in talk.events()[mark:]]
    assert "input_audio_buffer.speech_started" not in kinds
    assert "output_audio_buffer.cleared" not in kinds
    recording = talk.recording()
    tail = np.abs(recording.agent[-recording.rate // 2 :].astype(int))
    assert tail.max() > 300
