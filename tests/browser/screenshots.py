"""Pictures of the voice page in use: `python -m tests.browser.screenshots FOLDER`.

A conversation is held aloud with a server of its own, in both themes, on a desk and on a phone: asked, interrupted,
asked again. Nothing is drawn by hand.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from tests.browser.chromium import launch
from tests.browser.listening import clip
from tests.browser.voice_page import VoicePage
from tests.servers import ServerProcess
from tests.speech import RATE


@dataclass(frozen=True, slots=True)
class View:
    name: str
    scheme: str
    width: int
    height: int
    scale: float


VIEWS = (
    View("desk-light", "light", 1280, 800, 1.5),
    View("desk-dark", "dark", 1280, 800, 1.5),
    View("phone-light", "light", 390, 844, 2),
    View("phone-dark", "dark", 390, 844, 2),
)


def converse(page: VoicePage) -> None:
    """A question, a long answer that is interrupted aloud, and the answer to that."""
    page.say(clip("questions", "What is the capital of France?").pcm, RATE)
    page.wait_event("response.done")
    page.quiet(0.5)
    page.ask("Tell me a long story about a ship that sails around the world.")
    page.sounding(2.5)
    mark = page.mark()
    page.say(clip("backchannels", "yeah").pcm, RATE)
    page.wait_event("x_talkover.resumed", mark)
    page.sounding(1.5)
    mark = page.mark()
    page.say(clip("commands", "what about London").pcm, RATE)
    page.wait_event("x_talkover.playback_cleared", mark)
    page.wait_event("output_audio_buffer.started", mark)
    page.sounding(1.2)


def take(browser: Browser, url: str, view: View, folder: Path) -> None:
    size = {"width": view.width, "height": view.height}
    with VoicePage(
        browser, url, records=False, viewport=size, color_scheme=view.scheme, device_scale_factor=view.scale
    ) as page:
        page.visit()
        page.page.screenshot(path=folder / f"{view.name}-welcome.png")
        page.start()
        converse(page)
        page.page.screenshot(path=folder / f"{view.name}-talk.png")
        page.page.click("#open-settings")
        page.page.screenshot(path=folder / f"{view.name}-settings.png")
        page.page.keyboard.press("Escape")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--only", choices=[view.name for view in VIEWS])
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    with ServerProcess("embedded") as server, sync_playwright() as playwright:
        browser = launch(playwright)
        for view in VIEWS:
            if options.only in (None, view.name):
                take(browser, server.base_url.removesuffix("/v1"), view, options.folder)
                print(f"{view.name}: {options.folder}")
        browser.close()


if __name__ == "__main__":
    main()
