"""The voice page in a browser against the running server with its embedded models: spoken to, heard, interrupted."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Playwright

from tests.bench.words import word_error_rate
from tests.browser.chromium import launch, needs_chromium
from tests.browser.listening import clip, end_before, loud_between, microphone_file, onset_after, words_beyond
from tests.browser.voice_page import Heard, VoicePage
from tests.speech import RATE

pytestmark = [pytest.mark.browser, pytest.mark.models, needs_chromium]

CAPITAL = "What is the capital of France?"
STORY = "Tell me a long story about a ship that sails around the world."


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[VoicePage]:
    """The page, live, with a microphone that the test speaks into."""
    with VoicePage(browser, url) as visit:
        visit.visit()
        visit.start()
        yield visit
        assert visit.faults == []


def test_a_spoken_question_is_answered_and_the_captions_say_what_is_heard(
    playwright: Playwright, url: str, hear: Heard, tmp_path: Path
) -> None:
    asked = clip("questions", CAPITAL)
    # The microphone opens before the call is there.
    file = microphone_file(tmp_path / "question.wav", asked, lead=2.5, tail=60)
    browser = launch(playwright, microphone=file)
    with VoicePage(browser, url, speaks=False) as page:
        page.visit()
        page.start()
        page.wait_event("response.done")
        page.quiet(0.8)
        user, agent = page.captions()
        recording = page.recording()
        assert page.faults == []
        assert page.number("#first-audio") > 0
    browser.close()
    assert (user.side, agent.side, agent.state) == ("user", "agent", "done")
    assert word_error_rate([CAPITAL], [user.said]) <= 0.1
    assert word_error_rate([agent.said], [hear(recording.agent, recording.rate)]) <= 0.1


def test_a_spoken_interruption_silences_the_page_and_strikes_what_was_not_heard(page: VoicePage, hear: Heard) -> None:
    page.ask(STORY)
    page.sounding(2.5)
    said = clip("commands", "hang on a second")
    spoken_at = page.say(said.pcm, RATE)
    began = page.wait_event("x_talkover.epoch_began")
    assert began.event["cause"] == "barge_in"
    cleared = page.wait_event("x_talkover.playback_cleared").event
    page.wait_event("conversation.item.input_audio_transcription.completed")
    page.wait("() => !window.probe.app.figures.settling")
    recording = page.recording()
    rate, agent = recording.rate, recording.agent

    onset = onset_after(recording.user, rate, recording.sample(spoken_at), 1000)
    cut = recording.sample(began.at)
    assert onset is not None
    last = end_before(agent, rate, cut + rate // 10)
    first = onset_after(agent, rate, recording.sample(spoken_at) - 2 * rate)
    assert last is not None
    assert first is not None
    # Nothing stale: between the commit and the next answer there is silence, but for the clocks' own 10 ms.
    new = [event for event in page.events() if event.type == "output_audio_buffer.started" and event.at > began.at]
    until = recording.sample(new[0].at) if new else len(agent)
    assert loud_between(agent, rate, cut + rate // 100, until) == 0
    # What the page shows as the time to silence is what the recording says.
    measured = (last - onset) / rate * 1000
    if measured > 60:
        page.wait("() => Number.parseInt(document.getElementById('stop-time').textContent) > 0")
        assert page.number("#stop-time") == pytest.approx(measured, abs=60)
    elif measured < -60:
        # The command fell into a pause between two sentences: nothing sounded that it could have silenced.
        assert page.text("#stop-time") == "–"

    caption = next(caption for caption in page.said_by("agent") if caption.state == "interrupted")
    deltas = [
        event.event["delta"]
        for event in page.events()
        if event.type == "response.output_audio_transcript.delta" and event.event["response_id"] == cleared["response"]
    ]
    assert "".join(deltas).split() == [*caption.said.split(), *caption.struck.split()]
    assert cleared["heard_by"] == "report"
    heard = hear(agent[:cut], rate)
    unheard, unshown = words_beyond(caption.said, heard)
    assert unheard <= 1, (caption, heard)
    assert unshown <= 1, (caption, heard)
    assert any(remark.startswith("interrupted after") for remark in caption.remarks)


def test_a_backchannel_is_heeded_and_the_answer_goes_on(page: VoicePage) -> None:
    page.ask(STORY)
    page.sounding(2.0)
    said = clip("backchannels", "yeah")
    page.say(said.pcm, RATE)
    held = page.wait_event("x_talkover.held")
    resumed = page.wait_event("x_talkover.resumed")
    assert resumed.at > held.at
    page.sounding(1.0)
    assert page.text("#epoch") == "0"
    caption = page.said_by("agent")[0]
    assert (caption.state, caption.struck) == ("open", "")
    assert caption.remarks == (
        (f"went on after “{resumed.event['words'].strip(' .,!?')}”",) if resumed.event["words"] else ()
    )


def test_a_reload_goes_on_with_the_session_and_without_the_old_answer(page: VoicePage) -> None:
    page.ask(STORY)
    page.sounding(1.5)
    before = page.page.evaluate("() => window.probe.app.session.id")
    captions = page.captions()
    page.reload()
    page.live()
    assert page.page.evaluate("() => window.probe.app.session.id") == before
    page.wait("() => Number(document.getElementById('epoch').textContent) >= 1")
    # What became of the answer that the loss cut is told afterwards.
    page.wait("() => /after/.test(document.querySelector('.caption[data-state=interrupted] .remark')?.textContent)")
    question, answer = page.captions()
    assert question.said == STORY
    assert f"{answer.said} {answer.struck}".startswith(captions[1].said)
    mark = page.mark()
    page.say(clip("questions", CAPITAL).pcm, RATE)
    started = page.wait_event("output_audio_buffer.started", mark)
    page.answered(mark)
    page.page.wait_for_timeout(300)
    recording = page.recording()
    assert loud_between(recording.agent, recording.rate, 0, recording.sample(started.at)) == 0
    assert loud_between(recording.agent, recording.rate, recording.sample(started.at), len(recording.agent)) > 300
    assert word_error_rate([CAPITAL], [page.said_by("user")[-1].said]) <= 0.1
    assert [caption.side for caption in page.captions()] == ["user", "agent", "user", "agent"]


def test_a_blocked_microphone_is_explained_and_one_can_type_instead(browser: Browser, url: str) -> None:
    with VoicePage(browser, url, speaks=False, allowed=False, records=False) as page:
        page.visit()
        page.page.click("#talk")
        page.wait("() => !document.getElementById('notice').hidden")
        assert page.page.get_attribute("#notice", "data-code") == "microphone_denied"
        assert page.text("#notice-title") == "The microphone is blocked for this page."
        assert "address bar" in page.text("#notice-remedy")
        assert page.page.is_visible("#notice-retry")
        page.page.click("#without-microphone")
        page.live()
        assert page.page.is_disabled("#mute")
        page.ask(CAPITAL)
        page.wait_event("response.done")
        assert "Paris" in page.said_by("agent")[0].said
        # With its policy enforced.
        assert page.faults == []


@pytest.mark.skipif(shutil.which("node") is None, reason="node (20 or newer) is not installed")
def test_the_parts_that_need_no_browser() -> None:
    ended = subprocess.run(
        ["node", "--test", "modules.test.mjs"], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout[-4000:]
