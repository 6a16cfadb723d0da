"""The replay page as a user sees it, driven from a test."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Browser, Page

WITHIN = 45_000.0


class ReplayPage:
    """One visit. A context manager."""

    def __init__(self, browser: Browser, url: str, **options: Any) -> None:
        self.context = browser.new_context(base_url=url, **options)
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(WITHIN)
        self.faults: list[str] = []
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("console", lambda message: self._console(message.type, message.text))

    def __enter__(self) -> ReplayPage:
        return self

    def __exit__(self, *exception: object) -> None:
        self.context.close()

    def _console(self, kind: str, text: str) -> None:
        if kind == "error" and "status of" not in text:
            self.faults.append(text)

    def visit(self, path: str) -> None:
        """Load a page below `/replay`."""
        self.page.goto(path)
        self.attach()

    def attach(self) -> None:
        """Get hold of the app of a page that was loaded by itself."""
        # Conditions that are waited for may not be promises.
        self.page.evaluate("async () => { window.replay = (await import('/web/replay/main.js')).app; }")

    def open(self, recording: str, link: str = "") -> None:
        """Until its waves, marks and interruptions are here."""
        self.visit(f"/replay/{recording}{link}")
        self.here()

    def here(self) -> None:
        """Until waves, marks and interruptions are here."""
        self.wait("app => app.openedIn !== null && app.source.settled && app.source.interruptions.length > 0")

    def app(self, code: str, argument: object = None) -> Any:
        """What the function `code` of the page's app, and of `argument`, gives."""
        return self.page.evaluate(f"(given) => ({code})(window.replay, given)", argument)

    def wait(self, condition: str, argument: object = None) -> None:
        """Until the function `condition` of the page's app is true."""
        self.page.wait_for_function(f"(given) => ({condition})(window.replay, given)", arg=argument, polling=20)

    def at(self) -> float:
        """Where the cursor is, in seconds."""
        return float(self.app("app => app.player.at"))

    def view(self) -> tuple[float, float]:
        """What is looked at: from and to, in seconds."""
        first, last = self.app("app => [app.view.from, app.view.to]")
        return float(first), float(last)

    def drawn(self) -> None:
        """Until what was changed before is drawn."""
        self.page.evaluate(
            "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(null))))"
        )

    def coloured(self, colour: str = "") -> int:
        """How many pixels of the timeline have anything on them, or are of `colour` (#rrggbb)."""
        return int(
            self.page.evaluate(
                """(colour) => {
                    const canvas = document.getElementById('scene');
                    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
                    const wanted = [1, 3, 5].map((at) => Number.parseInt(colour.slice(at, at + 2), 16));
                    const alike = (at) => wanted.every((value, index) => Math.abs(data[at + index] - value) < 24);
                    let count = 0;
                    for (let at = 0; at < data.length; at += 4) count += data[at + 3] > 0 && (!colour || alike(at));
                    return count;
                }""",
                colour,
            )
        )
