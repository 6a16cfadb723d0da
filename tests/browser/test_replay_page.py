"""The replay page in a browser: opened, gone through, listened to, by those who may."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from sessions.replay.view import View
from tests.browser.chromium import needs_chromium
from tests.browser.replay_page import ReplayPage
from tests.browser.voice_page import VoicePage
from tests.servers import ServerProcess
from tests.sessions.conversations import converse
from tests.sessions.recordings import change_manifest

pytestmark = [pytest.mark.browser, needs_chromium]

SCRIPT = "[[reply]]\ntone_hz = 440\nseconds = 1.0\n"
KEY = "key-for-tests-0123456789"


def made(root: Path, rounds: int = 1) -> Path:
    """A recording, made in a thread: Playwright keeps an event loop running in this one."""
    with ThreadPoolExecutor(1) as aside:
        return aside.submit(converse, root, rounds).result()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("recordings")
    made(root, rounds=3)
    return root


@pytest.fixture(scope="module")
def recording(root: Path) -> Path:
    return next(root.iterdir())


@pytest.fixture(scope="module")
def url(root: Path, recording: Path) -> Iterator[str]:
    """A server that has one recording of 39 s."""
    with ServerProcess("scripted", SCRIPT, arguments=["--record", str(root)]) as process:
        yield process.base_url.removesuffix("/v1")


@pytest.fixture
def page(browser: Browser, url: str, recording: Path) -> Iterator[ReplayPage]:
    with ReplayPage(browser, url) as visit:
        visit.open(recording.name)
        yield visit
        assert visit.faults == []


@pytest.fixture(scope="module")
def epochs(recording: Path) -> list[float]:
    """When the session was interrupted, in seconds."""
    found: list[Any] = View(recording).interruptions()
    return [one["now"] / 48_000 for one in found]


def test_a_recording_is_gone_through_from_one_interruption_to_the_next(page: ReplayPage, epochs: list[float]) -> None:
    assert page.view() == (0, 30)
    assert page.coloured() > 10_000
    page.page.keyboard.press("n")
    assert page.at() == pytest.approx(epochs[0] - 1.5)
    page.page.keyboard.press("n")
    assert page.at() == pytest.approx(epochs[1] - 1.5)
    page.page.keyboard.press("p")
    assert page.at() == pytest.approx(epochs[0] - 1.5)
    # The events around it are listed, and the cut stands among them with all its fields.
    page.page.wait_for_selector("#events li[data-current=true]")
    page.page.click("#events button:has-text('AdvanceEpoch')")
    page.page.wait_for_selector("#event-detail:not([hidden])")
    assert '"barge_in"' in page.page.inner_text("#event-detail")
    assert page.at() == pytest.approx(epochs[0], abs=0.001)


def test_it_plays_both_sides_loops_and_zooms(page: ReplayPage) -> None:
    page.page.keyboard.press("+")
    first, last = page.view()
    assert last - first == pytest.approx(15)
    page.app("(app) => { app.view.set(2, 0.6); app.loop(); }")
    page.page.keyboard.press(" ")
    page.wait("app => app.player.playing && app.player.at > 2.2")
    # Round it goes.
    page.wait("app => { const before = window.last ?? 0; window.last = app.player.at; return window.last < before; }")
    page.page.keyboard.press(" ")
    assert 2 <= page.at() <= 2.6
    page.wait("() => location.hash.includes('loop=2-2.6')")
    page.page.keyboard.press("Escape")
    page.page.keyboard.press("0")
    assert page.view()[1] == pytest.approx(39, abs=0.2)


def test_a_link_leads_to_a_place(browser: Browser, url: str, recording: Path) -> None:
    with ReplayPage(browser, url) as page:
        page.open(recording.name, "#t=20.5&span=2&loop=20-21")
        assert page.at() == 20.5
        assert page.view() == (19.5, 21.5)
        assert page.app("app => app.player.loop") == [20, 21]
        page.app("() => { location.hash = '#t=3&span=0.02'; }")
        page.wait("app => app.player.at === 3")
        # So close that the samples themselves are drawn.
        page.wait("app => app.source.settled")
        assert page.view() == pytest.approx((2.99, 3.01))
        assert page.coloured() > 1_000
        assert page.faults == []


def test_a_session_is_explained_and_run_otherwise(page: ReplayPage, epochs: list[float]) -> None:
    page.page.click("#open-explanation")
    page.page.wait_for_selector("#event-detail:has-text('the user spoke over the agent')")
    page.page.click("#open-what-if")
    page.page.fill("#what-if-more", "turn.nothing=1")
    page.page.press("#what-if-more", "Enter")
    page.page.wait_for_selector("#what-if-text:has-text('there is no such setting')")
    page.page.fill("#what-if-more", "")
    page.page.fill("#what-if-shift", "300")
    page.page.press("#what-if-shift", "Enter")
    page.wait("app => app.scene.altered !== null")
    altered = page.app("app => app.scene.altered.epochs.map(({ now }) => now / 48000)")
    assert any(epoch == pytest.approx(epochs[0] + 0.3, abs=0.1) for epoch in altered)
    page.page.click("#what-if-clear")
    assert page.app("app => app.scene.altered") is None


def test_a_run_that_goes_otherwise_is_drawn_over_the_recorded_one(page: ReplayPage, epochs: list[float]) -> None:
    page.app("(app, at) => app.go(at, true)", epochs[0])
    page.wait("app => app.source.settled && app.scene.complete")
    hold = page.page.evaluate("() => getComputedStyle(document.documentElement).getPropertyValue('--hold').trim()")
    before = page.coloured(hold)
    page.page.click("#open-what-if")
    page.page.fill("#what-if-shift", "400")
    page.page.click("#what-if-run")
    page.wait("app => app.scene.altered !== null")
    page.page.click("#what-if-close")
    page.page.wait_for_selector("#open-what-if[aria-pressed=true]")
    page.drawn()
    overlaid = page.coloured(hold)
    assert overlaid > before + 200
    # The dialog keeps what it told, and puts the other timeline away.
    page.page.click("#open-what-if")
    assert page.page.is_visible("#what-if-text")
    page.page.click("#what-if-clear")
    page.page.click("#what-if-close")
    page.drawn()
    assert page.coloured(hold) < before + 50


def test_the_input_watermark_is_drawn_and_told_at_the_cursor(page: ReplayPage) -> None:
    page.app("app => app.go(20, true)")
    page.wait("app => app.source.settled && app.scene.complete && app.scene.marked.input > 19")
    assert page.app("app => app.scene.marked.input") == pytest.approx(20, abs=0.3)
    # Who made this recording reported nothing of what was heard.
    assert page.app("app => app.scene.marked.heard") is None
    told = page.page.inner_text("#watermarks")
    assert re.fullmatch(r"in to 0:(19|20)\.\d{3}", told), told
    good = page.page.evaluate("() => getComputedStyle(document.documentElement).getPropertyValue('--good').trim()")
    # The line runs along the whole lane.
    assert page.coloured(good) > page.page.evaluate("() => document.getElementById('scene').width")


def test_it_is_scrubbed_dragged_and_a_stretch_is_chosen_with_the_mouse(page: ReplayPage) -> None:
    strip, scene = (page.page.locator(name).bounding_box() for name in ("#overview", "#scene"))
    assert strip is not None
    assert scene is not None
    mouse = page.page.mouse
    length = page.app("app => app.source.length")
    # Scrubbed in the strip: the cursor follows, and the view with it.
    mouse.move(strip["x"] + strip["width"] * 0.25, strip["y"] + 20)
    mouse.down()
    assert page.at() == pytest.approx(length * 0.25, abs=length / 200)
    mouse.move(strip["x"] + strip["width"] * 0.75, strip["y"] + 20, steps=5)
    assert page.at() == pytest.approx(length * 0.75, abs=length / 200)
    mouse.up()
    # A drag in the timeline moves what is seen and not the cursor.
    page.page.keyboard.press("+")
    page.page.keyboard.press("+")
    before, at = page.view(), page.at()
    y = scene["y"] + scene["height"] / 2
    mouse.move(scene["x"] + scene["width"] * 0.5, y)
    mouse.down()
    mouse.move(scene["x"] + scene["width"] * 0.6, y, steps=4)
    mouse.up()
    span = before[1] - before[0]
    assert page.view()[0] == pytest.approx(before[0] - span * 0.1, abs=span / 100)
    assert page.at() == at
    # With shift it chooses a stretch, which is looped; a click puts the cursor there.
    page.page.keyboard.down("Shift")
    mouse.move(scene["x"] + scene["width"] * 0.2, y)
    mouse.down()
    mouse.move(scene["x"] + scene["width"] * 0.4, y, steps=4)
    mouse.up()
    page.page.keyboard.up("Shift")
    first, _ = page.view()
    loop = page.app("app => app.player.loop")
    assert loop == pytest.approx([first + span * 0.2, first + span * 0.4], abs=span / 100)
    assert page.page.get_attribute("#loop", "aria-pressed") == "true"
    mouse.click(scene["x"] + scene["width"] * 0.9, y)
    assert page.at() == pytest.approx(first + span * 0.9, abs=span / 100)
    # The wheel zooms where it points.
    mouse.wheel(0, -400)
    page.wait("(app, span) => app.view.span < span * 0.8", span)
    under = page.app("(app, x) => app.scene.time(x)", scene["width"] * 0.9)
    assert under == pytest.approx(first + span * 0.9, abs=span / 50)
    page.page.keyboard.press("Escape")
    assert page.app("app => app.player.loop") is None


def test_everything_is_reached_by_keys(page: ReplayPage, epochs: list[float]) -> None:
    keys = page.page.keyboard
    keys.press("End")
    assert page.at() == page.app("app => app.source.length")
    keys.press("Home")
    assert page.at() == 0
    keys.press("ArrowRight")
    assert page.at() == pytest.approx(30 / 40)
    keys.press("Shift+ArrowRight")
    assert page.at() == pytest.approx(30 / 40 + 30 / 4)
    keys.press("ArrowLeft")
    assert page.at() == pytest.approx(30 / 4)
    keys.press("-")
    keys.press("l")
    assert page.app("app => app.player.loop") == list(page.view())
    # From one control to the next; a focused button keeps its keys, and one that is pressed does its own.
    page.page.focus("#next")
    keys.press("Enter")
    assert page.at() == pytest.approx(next(one for one in epochs if one > 30 / 4 + 1.51) - 1.5)
    page.page.focus("#hear-user")
    keys.press(" ")
    assert page.page.get_attribute("#hear-user", "aria-pressed") == "false"
    assert page.app("app => app.player.playing") is False
    # What is typed into a field of the dialog is no command to the page.
    at = page.at()
    page.page.focus("#open-what-if")
    keys.press("Enter")
    page.page.focus("#what-if-more")
    keys.type("n p 0 l")
    assert page.at() == at
    keys.press("Escape")
    page.page.wait_for_selector("#what-if-dialog:not([open])", state="attached")


def test_a_folder_is_opened_as_a_session_of_the_server(
    browser: Browser, root: Path, recording: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "mine"
    for name in ("sess_a", "sess_b"):
        shutil.copytree(recording, folder / "below" / name)
    change_manifest(folder / "below" / "sess_b", session="sess_b", began="2000-01-01T00:00:00+00:00")
    (folder / "notes.txt").write_text("stays where it is")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.txt").write_text("no recording")
    with (
        ServerProcess("scripted", SCRIPT) as server,
        ReplayPage(browser, server.base_url.removesuffix("/v1")) as page,
    ):
        page.visit("/replay")
        page.page.wait_for_selector("#recordings :text('records nothing')")
        page.page.set_input_files("#folder", tmp_path / "empty")
        page.page.wait_for_selector("#problem[data-code=no_recording]:not([hidden])")
        # Several are offered, the newest first.
        page.page.set_input_files("#folder", folder)
        page.page.wait_for_selector("#found button:nth-of-type(1)")
        assert page.page.locator("#found button b").all_inner_texts() == [recording.name, "sess_b"]
        page.page.click("#found li:first-child button")
        page.page.wait_for_url("**/replay/brought_*")
        page.attach()
        page.here()
        assert page.page.inner_text("#title") == recording.name
        assert "from a folder" in page.page.inner_text("#about")
        assert page.coloured() > 10_000
        page.page.keyboard.press("n")
        page.page.wait_for_selector("#events li[data-current=true]")
        page.page.click("#open-explanation")
        page.page.wait_for_selector("#event-detail:has-text('the user spoke over the agent')")
        # A reload and a link lead there as well, as long as the server keeps it.
        page.wait("() => location.hash !== ''")
        page.page.reload()
        page.attach()
        page.here()
        assert page.at() > 0
        assert page.faults == []


@pytest.mark.wide
def test_the_voice_page_leads_to_the_recording_of_its_session(browser: Browser, url: str) -> None:
    with VoicePage(browser, url, records=False) as talk:
        talk.visit()
        assert talk.page.is_hidden("#recording")
        talk.start()
        talk.page.wait_for_selector("#recording:not([hidden])")
        mark = talk.mark()
        talk.ask("Anything.")
        talk.wait_event("output_audio_buffer.started")
        with talk.context.expect_page() as opened:
            talk.page.click("#recording")
        opened.value.wait_for_selector("body[data-view=recording]")
        session = talk.page.evaluate("() => window.probe.app.session.id")
        assert opened.value.inner_text("#title") == session
        assert "still recorded" in opened.value.inner_text("#about")
        talk.answered(mark)
        talk.page.evaluate("() => window.probe.app.end()")
        talk.nobody_left()
    # What the page reported as heard stands in it.
    with ReplayPage(browser, url) as page:
        page.visit(f"/replay/{session}")
        page.wait("app => app.openedIn !== null && app.source.settled")
        at, place = page.app(
            """app => {
                const { reports, sent } = app.source.marks(0);
                const [now, response, position] = reports.at(-1);
                const [placed, , , content] = sent.findLast(([, , of, from]) => of === response && from <= position);
                return [now / 48_000, (placed + position - content) / 48_000];
            }"""
        )
        page.app("(app, at) => app.go(at + 0.001, true)", at)
        page.wait("app => app.scene.marked.heard !== null")
        assert page.app("app => app.scene.marked.heard") == pytest.approx(place, abs=0.001)
        assert "heard to" in page.page.inner_text("#watermarks")


@pytest.mark.wide
def test_recordings_are_listed_and_what_is_not_there_is_said(browser: Browser, url: str, recording: Path) -> None:
    with ReplayPage(browser, url) as page:
        page.visit("/replay")
        page.page.click(f"a[href='/replay/{recording.name}']")
        page.page.wait_for_selector("body[data-view=recording]")
        page.visit("/replay/sess_none")
        page.page.wait_for_selector("#problem[data-code=recording_not_found]:not([hidden])")
        assert page.faults == []


@pytest.mark.wide
def test_a_key_opens_what_was_made_with_it(browser: Browser, tmp_path: Path) -> None:
    folder = made(tmp_path)
    change_manifest(folder, tenant="default")
    with (
        ServerProcess("scripted", SCRIPT, arguments=["--record", str(tmp_path), "--api-key", KEY]) as guarded,
        ReplayPage(browser, guarded.base_url.removesuffix("/v1")) as page,
    ):
        page.visit(f"/replay/{folder.name}")
        page.page.wait_for_selector("#key-dialog[open]")
        page.page.fill("#key", "a wrong one")
        page.page.press("#key", "Enter")
        page.page.wait_for_selector("#key-problem:not([hidden])")
        page.page.fill("#key", KEY)
        page.page.press("#key", "Enter")
        page.page.wait_for_selector("body[data-view=recording]")
        page.wait("app => app.source.settled && app.openedIn !== null")
        assert page.page.evaluate("() => Object.values(localStorage).join()") == ""


@pytest.mark.wide
@pytest.mark.parametrize("width", [390, 768, 1280])
def test_nothing_lies_beside_the_screen_and_every_control_has_a_name(
    browser: Browser, url: str, recording: Path, width: int
) -> None:
    with ReplayPage(browser, url, viewport={"width": width, "height": 800}) as page:
        page.open(recording.name)
        assert page.page.evaluate("() => document.documentElement.scrollWidth") <= width
        unnamed = page.page.evaluate(
            """() => [...document.querySelectorAll('button, input, a')].filter((element) => !(
                element.getAttribute('aria-label') || element.labels?.length || element.textContent.trim()
            )).map((element) => element.outerHTML)"""
        )
        assert unnamed == []
        assert page.faults == []
