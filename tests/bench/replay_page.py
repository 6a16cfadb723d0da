"""How the replay page does with a long session: how soon it opens, how smoothly it scrolls, zooms and plays.

`python -m tests.bench.replay_page` makes a recording of two hours (once; `--keep FOLDER` uses it again), serves it, and
opens it in headless Chromium. Frames are counted by their own times, while the page is dragged through the session at
several zooms; the peaks of what comes into view are fetched meanwhile.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from tests.bench.report import percentile, progress, table, write
from tests.browser.chromium import executable, launch
from tests.browser.replay_page import ReplayPage
from tests.servers import ServerProcess
from tests.sessions.conversations import SECONDS, converse

SCRIPT = "[[reply]]\ntone_hz = 440\nseconds = 1.0\n"

FRAMES = """async (app, {span, seconds, way}) => {
    app.view.set(app.source.length * 0.3, span);
    app.redraw();
    await new Promise((go) => setTimeout(go, 300));
    app.scene.took.length = 0;
    const times = [];
    const began = performance.now();
    await new Promise((done) => {
        const step = (now) => {
            times.push(now);
            if (way === 'pan') app.view.pan(app.view.span / 90);
            else app.view.zoom(Math.sin((now - began) / 400) > 0 ? 1.04 : 1 / 1.04, app.view.from + app.view.span / 2);
            app.redraw();
            if (now - began < seconds * 1000) requestAnimationFrame(step);
            else done();
        };
        requestAnimationFrame(step);
    });
    return {times, draws: [...app.scene.took]};
}"""

RUN_MS = 900_000.0
"""Milliseconds that a run of the whole session may take on a slow machine."""

SPANS = {"10 ms": 0.01, "1 s": 1, "30 s": 30, "10 min": 600, "all": 1e9}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=float, default=2.0, help="length of the recording (2)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where the recording is made, and found again")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each movement goes on (3)")
    parser.add_argument("--runs", action="store_true", help="also explain the session and run it otherwise: minutes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    options = parser.parse_args()
    if executable() is None:
        print("no Chromium is installed; set CHROMIUM to its path", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as scratch:
        root = options.keep or Path(scratch) / "recordings"
        root.mkdir(parents=True, exist_ok=True)
        folder = next(root.iterdir(), None)
        if folder is None:
            progress(f"making {options.hours} hours of conversation")
            began = time.process_time()
            folder = converse(root, rounds=round(options.hours * 3600 / SECONDS))
            progress(f"made in {time.process_time() - began:.0f} s of CPU")
        figures = measure(root, folder.name, options.seconds, runs=options.runs)
    show(figures)
    write(figures, options.json)
    return 0


def measure(root: Path, recording: str, seconds: float, *, runs: bool) -> dict[str, Any]:
    with (
        ServerProcess("scripted", SCRIPT, arguments=["--record", str(root)]) as server,
        sync_playwright() as playwright,
    ):
        browser = launch(playwright)
        url = server.base_url.removesuffix("/v1")
        opened, settled = [], []
        for _ in range(3):
            with ReplayPage(browser, url, viewport={"width": 1440, "height": 900}) as page:
                page.visit(f"/replay/{recording}")
                page.wait("app => app.openedIn !== null")
                opened.append(float(page.app("app => app.openedIn")))
                page.wait("app => app.source.settled && app.source.interruptions.length > 0")
                settled.append(float(page.page.evaluate("() => performance.now()")))
                progress(f"opened after {opened[-1]:.0f} ms, whole strip after {settled[-1]:.0f} ms")
        moves: dict[str, Any] = {}
        with ReplayPage(browser, url, viewport={"width": 1440, "height": 900}) as page:
            page.open(recording)
            for way in ("pan", "zoom"):
                for name, span in SPANS.items():
                    found = page.app(FRAMES, {"span": span, "seconds": seconds, "way": way})
                    moves[f"{way}, {name} in view"] = frames(found["times"], found["draws"])
                    progress(f"{way} {name}: {moves[f'{way}, {name} in view']}")
            took: dict[str, float] = {}
            if runs:
                took = {"explained_s": explained(page), "altered_s": altered(page)}
                # The other timeline lies over the recorded one.
                for name, span in SPANS.items():
                    found = page.app(FRAMES, {"span": span, "seconds": seconds, "way": "pan"})
                    moves[f"pan, {name} in view, overlaid"] = frames(found["times"], found["draws"])
            length = float(page.app("app => app.source.length"))
        browser.close()
    return {"length_s": length, "opened_ms": opened, "whole_ms": settled, "moves": moves, **took}


def explained(page: ReplayPage) -> float:
    """Seconds until the whole session is explained in the page."""
    began = time.perf_counter()
    page.page.click("#open-explanation")
    page.page.wait_for_selector("#open-explanation:not(:disabled)", timeout=RUN_MS)
    page.page.wait_for_selector("#event-detail:has-text('the user spoke over the agent')")
    progress(f"explained after {time.perf_counter() - began:.1f} s")
    return time.perf_counter() - began


def altered(page: ReplayPage) -> float:
    """Seconds until the whole session was run otherwise and is drawn."""
    page.page.click("#open-what-if")
    page.page.fill("#what-if-hold", "80")
    began = time.perf_counter()
    page.page.click("#what-if-run")
    page.page.wait_for_selector("#what-if-clear:not([hidden])", timeout=RUN_MS)
    took = time.perf_counter() - began
    progress(f"run otherwise after {took:.1f} s")
    page.page.click("#what-if-close")
    return took


def frames(times: list[float], draws: list[float]) -> dict[str, float]:
    """Of frame times in ms: frames a second, and how long a frame and a drawing took."""
    gaps = [after - before for before, after in itertools.pairwise(times)]
    return {
        "fps": round(1000 * len(gaps) / (times[-1] - times[0]), 1),
        "frame_p50": round(percentile(gaps, 0.5), 1),
        "frame_p95": round(percentile(gaps, 0.95), 1),
        "draw_p50": round(percentile(draws, 0.5), 1),
        "draw_p95": round(percentile(draws, 0.95), 1),
    }


def show(figures: dict[str, Any]) -> None:
    print(f"a session of {figures['length_s'] / 3600:.2f} h")
    print(f"opens in {', '.join(f'{ms:.0f}' for ms in figures['opened_ms'])} ms (the first time with nothing at hand)")
    print(f"whole strip after {', '.join(f'{ms:.0f}' for ms in figures['whole_ms'])} ms")
    if "altered_s" in figures:
        print(f"explained in {figures['explained_s']:.1f} s, run otherwise in {figures['altered_s']:.1f} s")
    rows = [[name, *found.values()] for name, found in figures["moves"].items()]
    print(table(rows, ("", "frames/s", "frame p50 ms", "p95 ms", "drawing p50 ms", "p95 ms")))


if __name__ == "__main__":
    sys.exit(main())
