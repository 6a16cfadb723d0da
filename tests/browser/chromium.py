"""Chromium without a screen: where it is, and what it needs to hold a call on loopback."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def executable() -> str | None:
    """`$CHROMIUM`, or the first of `NAMES` that is installed."""
    named = os.environ.get("CHROMIUM")
    found = (shutil.which(name) for name in NAMES)
    return named or next((path for path in found if path), None)


needs_chromium = pytest.mark.skipif(executable() is None, reason="no Chromium is installed; set CHROMIUM to its path")

FLAGS = (
    "--no-sandbox",
    "--autoplay-policy=no-user-gesture-required",
    # Microphones that need no device; what they hear is replaced by a file or by tests/browser/microphone.js.
    "--use-fake-device-for-media-stream",
    # Without it a page on loopback has no candidates at all.
    "--allow-loopback-in-peer-connection",
    # Throttled timers of a window that nobody sees would delay what is measured.
    "--disable-background-timer-throttling",
    "--disable-renderer-backgrounding",
    "--disable-backgrounding-occluded-windows",
)


def launch(playwright: Playwright, *, microphone: Path | None = None, more: Sequence[str] = ()) -> Browser:
    """A browser. `microphone`: a WAV file that its microphone hears once, from the moment it is opened."""
    flags = [*FLAGS, *more]
    if microphone is not None:
        flags.append(f"--use-file-for-fake-audio-capture={microphone}%noloop")
    return playwright.chromium.launch(executable_path=executable(), args=flags)
