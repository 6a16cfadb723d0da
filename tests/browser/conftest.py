"""A browser, the server under test, and an ear for what the page played."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import soxr
from numpy.typing import NDArray
from playwright.sync_api import Browser, Playwright, sync_playwright

from tests.browser.chromium import launch
from tests.browser.listening import audible, sounded
from tests.browser.voice_page import Heard
from tests.servers import ServerProcess
from tests.speech import RATE


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "browser: drives the voice page in a real browser")


# Everything ends with its module: Playwright keeps an event loop running, beside which no test with its own could run.


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    """`talkover serve` with the embedded engine."""
    with ServerProcess("embedded") as process:
        yield process


@pytest.fixture(scope="module")
def url(server: ServerProcess) -> str:
    return server.base_url.removesuffix("/v1")


@pytest.fixture(scope="module")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as driver:
        yield driver


@pytest.fixture(scope="module")
def browser(playwright: Playwright) -> Iterator[Browser]:
    browser = launch(playwright)
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def hear() -> Iterator[Heard]:
    """What Whisper makes of what is audible in a recording."""
    from models.assets import ensure
    from models.perception.asr import Recognizer

    recognizer = Recognizer(ensure(["whisper-base"], lambda stage, fraction: None)["whisper-base"])

    def listen(pcm: NDArray[np.int16], rate: int) -> str:
        part = audible(pcm, rate)
        mono = np.asarray(soxr.resample(part.astype(np.float32) / 32768, rate, RATE), np.float32)
        return sounded(recognizer.recognize(mono, times=True).words, part, rate)

    yield listen
    recognizer.unload()
