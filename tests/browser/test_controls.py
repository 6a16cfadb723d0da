"""The voice page's other ways: push to talk, mute, keys, a lost connection, an API key, a server that is not ready."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Route

from tests.bench.words import word_error_rate
from tests.browser.chromium import needs_chromium
from tests.browser.listening import clip, loud_between
from tests.browser.voice_page import VoicePage
from tests.servers import ServerProcess
from tests.speech import RATE

pytestmark = [pytest.mark.browser, pytest.mark.models, pytest.mark.wide, needs_chromium]

CAPITAL = "What is the capital of France?"
STORY = "Tell me a long story about a ship that sails around the world."
KEY = "key-for-tests-0123456789"


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[VoicePage]:
    with VoicePage(browser, url) as visit:
        visit.visit()
        visit.start()
        yield visit
        assert visit.faults == []


def choose_push_to_talk(page: VoicePage) -> None:
    page.page.click("#open-settings")
    page.page.check("input[name=turns][value=push]")
    page.page.click("#close-settings")
    page.wait_event("session.updated")


@pytest.mark.parametrize("way", ["space", "button"])
def test_what_is_said_while_a_key_or_button_is_held_is_answered(page: VoicePage, way: str) -> None:
    choose_push_to_talk(page)
    said = clip("questions", CAPITAL)
    # Not held: nobody hears it.
    page.say(said.pcm, RATE)
    page.page.wait_for_timeout(said.seconds * 1000 + 300)
    if way == "space":
        page.page.evaluate("() => document.activeElement.blur()")
        page.page.keyboard.down("Space")
    else:
        page.page.hover("#push")
        page.page.mouse.down()
    page.say(said.pcm, RATE)
    page.page.wait_for_timeout(len(said.pcm) / RATE * 1000 + 100)
    if way == "space":
        page.page.keyboard.up("Space")
    else:
        page.page.mouse.up()
    page.wait_event("response.done")
    page.quiet(0.3)
    [question] = page.said_by("user")
    assert word_error_rate([CAPITAL], [question.said]) <= 0.1
    assert "Paris" in page.said_by("agent")[0].said
    assert "input_audio_buffer.speech_started" not in [event.type for event in page.events()]


def test_a_press_cuts_the_answer_and_a_tap_says_nothing(page: VoicePage) -> None:
    choose_push_to_talk(page)
    page.ask(STORY)
    page.sounding(1.0)
    page.page.keyboard.down("Space")
    page.page.keyboard.up("Space")
    page.wait_event("x_talkover.playback_cleared")
    page.page.wait_for_timeout(600)
    recording = page.recording()
    assert loud_between(recording.agent, recording.rate, len(recording.agent) - recording.rate // 3, 1 << 40) == 0
    assert "input_audio_buffer.committed" not in [event.type for event in page.events()]


def test_nothing_is_heard_of_whoever_is_muted(page: VoicePage) -> None:
    page.page.keyboard.press("m")
    assert page.page.get_attribute("#mute", "aria-pressed") == "true"
    page.wait("() => document.getElementById('state-word').textContent === 'Muted'")
    said = clip("questions", CAPITAL)
    page.say(said.pcm, RATE)
    page.page.wait_for_timeout(len(said.pcm) / RATE * 1000 + 800)
    assert "input_audio_buffer.speech_started" not in [event.type for event in page.events()]
    page.page.keyboard.press("m")
    page.say(said.pcm, RATE)
    page.wait_event("input_audio_buffer.speech_started")


def test_escape_silences_the_answer_at_once(page: VoicePage) -> None:
    page.ask(STORY)
    page.sounding(1.0)
    page.page.keyboard.press("Escape")
    cleared = page.wait_event("x_talkover.playback_cleared")
    assert cleared.event["heard_by"] == "report"
    page.page.wait_for_timeout(800)
    recording = page.recording()
    cut = recording.sample(cleared.at)
    assert loud_between(recording.agent, recording.rate, cut + recording.rate // 100, len(recording.agent)) == 0
    assert page.said_by("agent")[0].state == "interrupted"
    page.ask(CAPITAL)
    page.sounding(0.5)


def test_a_typed_message_interrupts_as_well(page: VoicePage) -> None:
    page.ask(STORY)
    page.sounding(1.0)
    page.ask(CAPITAL)
    page.wait("() => document.querySelectorAll('.caption[data-side=agent]').length === 2")
    page.quiet(0.3)
    first, second = page.said_by("agent")
    assert (first.state, second.state) == ("interrupted", "done")
    assert "Paris" in second.said
    assert page.text("#notice-title") == ""


def rejoined(page: VoicePage, mark: int, session: str) -> None:
    """The page is live again with the same session, and it is of use."""
    page.wait("() => window.probe.app.session.state === 'live'")
    created = page.wait_event("session.created", mark)
    assert created.event["session"]["id"] == session
    page.say(clip("questions", CAPITAL).pcm, RATE)
    # What became of an answer before is told first, so only a new one counts.
    page.answered(mark)
    page.wait(
        "(at) => window.probe.app.agent.activity.runs.some(({from, to}) => from > at && to - from > 100)", created.at
    )
    assert page.said_by("agent")[-1].said.startswith("The capital")


def test_a_connection_that_breaks_is_followed_by_another_with_the_same_session(page: VoicePage) -> None:
    before = page.page.evaluate("() => window.probe.app.session.id")
    page.ask(STORY)
    page.sounding(1.0)
    mark = page.mark()
    # What closes below the page, as by the browser itself.
    page.page.evaluate("() => window.probe.breakOff()")
    page.wait("() => window.probe.app.session.state === 'rejoining'")
    rejoined(page, mark, before)


def test_a_server_that_falls_silent_is_joined_again(page: VoicePage, server: ServerProcess) -> None:
    before = page.page.evaluate("() => window.probe.app.session.id")
    mark = page.mark()
    os.kill(server.pid, signal.SIGSTOP)
    try:
        page.wait("() => window.probe.app.session.state === 'rejoining'")
        assert page.text("#state-word") == "Reconnecting"
    finally:
        os.kill(server.pid, signal.SIGCONT)
    rejoined(page, mark, before)


def test_a_network_that_is_there_again_does_not_disturb_a_call_that_lives(page: VoicePage) -> None:
    page.ask(STORY)
    page.sounding(1.0)
    page.page.evaluate("() => window.dispatchEvent(new Event('online'))")
    page.page.wait_for_timeout(1200)
    assert page.text("#epoch") == "0"
    assert "session.created" not in [event.type for event in page.events()[1:]]


def test_two_clicks_begin_one_conversation_and_a_click_while_asked_for_the_microphone_ends_it(
    browser: Browser, url: str
) -> None:
    slow = """() => {
        const open = navigator.mediaDevices.getUserMedia;
        navigator.mediaDevices.getUserMedia = async (wanted) => {
            await new Promise((resolve) => (window.allow = resolve));
            return open(wanted);
        };
    }"""
    with VoicePage(browser, url, records=False) as page:
        page.visit()
        page.page.evaluate(slow)
        page.page.click("#talk")
        page.wait_text("#state-word", "Connecting")
        page.page.click("#talk")
        page.wait_text("#state-word", "Ready")
        page.page.evaluate("() => window.allow()")
        page.page.wait_for_timeout(700)
        assert page.page.evaluate("() => window.probe.app.session.state") == "idle"
        assert page.page.evaluate("() => window.probe.app.microphone.stream") is None
        page.page.evaluate("() => { const talk = document.getElementById('talk'); talk.click(); }")
        page.page.evaluate("() => window.allow()")
        page.live()
        page.page.wait_for_timeout(300)
        assert len([event for event in page.events() if event.type == "session.created"]) == 1


def test_a_session_that_is_over_is_told_and_a_new_one_begins(page: VoicePage) -> None:
    page.wait_event("session.created")
    page.page.evaluate(
        """() => {
            const kept = JSON.parse(sessionStorage.getItem('talkover.resume'));
            sessionStorage.setItem('talkover.resume', JSON.stringify({...kept, token: 'x'.repeat(32)}));
            window.probe.breakOff();
        }"""
    )
    page.wait("() => !document.getElementById('notice').hidden")
    assert page.page.get_attribute("#notice", "data-code") == "session_lost"
    page.page.click("#notice-retry")
    page.live()


def test_the_microphone_gets_echo_cancellation_and_all_the_rest(page: VoicePage) -> None:
    wanted = page.page.evaluate("() => window.testMicrophone.wanted.audio")
    assert (wanted["echoCancellation"], wanted["noiseSuppression"], wanted["autoGainControl"]) == (True, True, True)


def test_a_session_that_was_ended_cannot_be_joined_again(page: VoicePage) -> None:
    page.wait_event("session.created")
    kept = page.page.evaluate("() => sessionStorage.getItem('talkover.resume')")
    page.page.evaluate("() => window.probe.app.end()")
    assert page.page.evaluate("() => sessionStorage.getItem('talkover.resume')") is None
    assert page.text("#state-word") == "Ready"
    page.page.evaluate("(kept) => { sessionStorage.setItem('talkover.resume', kept); window.probe.app.goOn(); }", kept)
    page.page.wait_for_selector("#notice[data-code=session_lost]:not([hidden])")


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_lies_beside_the_screen_and_every_control_has_a_name(
    browser: Browser, url: str, width: int, scheme: str
) -> None:
    view = {"width": width, "height": 720}
    with VoicePage(browser, url, records=False, viewport=view, color_scheme=scheme) as page:
        page.visit()
        page.start()
        assert page.page.evaluate("() => document.documentElement.scrollWidth") <= width
        beside = page.page.evaluate(
            """() => [...document.querySelectorAll('button, input, canvas, .conversation')]
                .filter((element) => element.offsetParent)
                .map((element) => [element.id, element.getBoundingClientRect()])
                .filter(([, box]) => box.left < 0 || box.right > innerWidth + 0.5 || box.bottom > innerHeight + 0.5)
                .map(([id]) => id)"""
        )
        assert beside == []
        unnamed = page.page.evaluate(
            """() => [...document.querySelectorAll('button, input, select, textarea')].filter((element) => !(
                element.getAttribute('aria-label') || element.labels?.length || element.textContent.trim()
            )).map((element) => element.outerHTML)"""
        )
        assert unnamed == []
        assert page.faults == []


def test_the_theme_can_be_switched_and_is_kept(browser: Browser, url: str) -> None:
    colour = "() => getComputedStyle(document.body).backgroundColor"
    with VoicePage(browser, url, records=False, color_scheme="light") as page:
        page.visit()
        light = page.page.evaluate(colour)
        page.page.click("#switch-theme")
        dark = page.page.evaluate(colour)
        assert dark != light
        page.reload()
        assert page.page.evaluate(colour) == dark
        page.page.click("#switch-theme")
        assert page.page.evaluate(colour) == light


def test_a_key_is_asked_for_and_kept_in_the_tab_only(browser: Browser) -> None:
    script = "[[reply]]\ntone_hz = 440\nseconds = 1.0\n"
    with (
        ServerProcess("scripted", script, arguments=["--api-key", KEY]) as guarded,
        VoicePage(browser, guarded.base_url.removesuffix("/v1"), records=False) as page,
    ):
        page.visit()
        page.page.click("#talk")
        page.page.wait_for_selector("#key-dialog[open]")
        page.page.fill("#key", "a wrong one")
        page.page.press("#key", "Enter")
        page.wait("() => document.getElementById('key').placeholder.includes('refused')")
        page.page.fill("#key", KEY)
        page.page.press("#key", "Enter")
        page.live()
        page.ask("Anything.")
        page.wait_event("output_audio_buffer.started")
        stored = page.page.evaluate(
            "() => [Object.values(localStorage).join(), sessionStorage.getItem('talkover.key')]"
        )
        assert KEY not in stored[0]
        assert stored[1] == KEY


def test_while_models_load_the_page_shows_how_far_they_are(browser: Browser, url: str) -> None:
    stages = [
        {"status": "starting", "stage": "fetching whisper-base", "progress": 0.25},
        {"status": "starting"},
        {"status": "failed", "error": "no space left on the disk"},
    ]
    now = {"body": stages[0]}

    def health(route: Route) -> None:
        route.fulfill(status=503, body=json.dumps(now["body"]), content_type="application/json")

    with VoicePage(browser, url, records=False) as page:
        page.page.route("**/healthz", health)
        page.page.goto("/")
        page.page.wait_for_selector("#loading:not([hidden])")
        assert page.text("#loading-text") == "fetching whisper-base · 25 %"
        assert page.page.is_disabled("#talk")
        assert page.text("#state-word") == "Preparing"
        now["body"] = stages[1]
        page.page.wait_for_selector("#loading-bar:not([value])")
        now["body"] = stages[2]
        page.wait_text("#loading-text", "no space left on the disk")
    with VoicePage(browser, url, records=False) as page:
        now["body"] = stages[0]
        page.page.route("**/healthz", health)
        page.page.goto("/")
        page.page.wait_for_selector("#loading:not([hidden])")
        page.page.unroute("**/healthz")
        page.page.wait_for_selector("#talk:not([disabled])")
        assert page.page.is_hidden("#loading")


@pytest.mark.parametrize(
    ("script", "code", "word"),
    [
        ("Object.defineProperty(window, 'isSecureContext', {value: false})", "insecure_origin", "https"),
        (
            "navigator.mediaDevices.getUserMedia = async () => { throw new DOMException('', 'NotFoundError'); }",
            "no_microphone",
            "Connect one",
        ),
        (
            "navigator.mediaDevices.getUserMedia = async () => { throw new DOMException('', 'NotReadableError'); }",
            "microphone_busy",
            "Another program",
        ),
        ("delete window.RTCPeerConnection", "unsupported_browser", "current"),
    ],
)
def test_what_keeps_a_microphone_away_is_told_with_its_remedy(
    browser: Browser, url: str, script: str, code: str, word: str
) -> None:
    with VoicePage(browser, url, speaks=False, records=False) as page:
        page.page.add_init_script(script)
        page.visit()
        page.page.click("#talk")
        page.page.wait_for_selector(f"#notice[data-code={code}]:not([hidden])")
        assert word in page.text("#notice-remedy")
        assert page.faults == []


def test_a_microphone_that_is_not_there_any_more_is_replaced_by_the_systems(browser: Browser, url: str) -> None:
    with VoicePage(browser, url, speaks=False, records=False) as page:
        page.page.add_init_script(
            "localStorage.setItem('talkover.choices', JSON.stringify({microphone: 'gone', turns: 'nonsense'}))"
        )
        page.visit()
        page.start()
        assert page.page.evaluate("() => window.probe.app.microphone.track.label") != ""


def test_a_browser_that_keeps_nothing_does_not_keep_one_from_talking(browser: Browser, url: str) -> None:
    blocked = "".join(
        f"Object.defineProperty(window, '{name}', {{get() {{ throw new DOMException('', 'SecurityError'); }}}});"
        for name in ("localStorage", "sessionStorage")
    )
    with VoicePage(browser, url, records=False) as page:
        page.page.add_init_script(blocked)
        page.visit()
        page.page.click("#switch-theme")
        page.start()
        page.wait_event("session.created")
        mark = page.mark()
        page.page.evaluate("() => window.probe.breakOff()")
        page.wait_event("session.created", mark)
        page.live()
        assert page.faults == []


def test_a_full_server_says_so(browser: Browser) -> None:
    script = "[[reply]]\ntone_hz = 440\nseconds = 1.0\n"
    with ServerProcess("scripted", script, arguments=["--max-sessions", "1"]) as small:
        address = small.base_url.removesuffix("/v1")
        with (
            VoicePage(browser, address, records=False) as first,
            VoicePage(browser, address, records=False) as second,
        ):
            first.visit()
            first.start()
            second.visit()
            second.page.click("#talk")
            second.page.wait_for_selector("#notice[data-code=server_busy]:not([hidden])")
            first.page.click("#talk")
            first.wait("() => window.probe.app.session.state === 'idle'")
            first.nobody_left()
            second.page.click("#notice-retry")
            second.live()
