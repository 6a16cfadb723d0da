"""`python -m loadtest.served serve …`: `talkover serve` that hears the same words in everything, at once.

Speech detection and turn taking are the real ones. Recognizing words is the one model that a scripted engine cannot
replace, and on a CPU it costs more than everything that a load is to measure; the peers are measured without one too.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.perception.asr import Recognition
from server import app, cli, models_loading
from sessions.manager import SessionManager
from tests.servers import ServerProcess

NO_RECOGNIZER = ("--asr-url", "http://127.0.0.1:9/v1", "--asr-model", "fake")
"""Arguments by which Whisper is not loaded; nobody is ever asked there."""

UNOBSERVED = "LOADTEST_UNOBSERVED"
"""Variable by which nobody is told of the sessions' figures: what `loadtest.overhead` compares with."""


class SameWords:
    """A recognizer that takes no time."""

    languages = ("en",)

    def recognize(self, samples: NDArray[np.float32], language: str = "en", *, times: bool = False) -> Recognition:
        """Something that asks for an answer, whatever was said."""
        return Recognition("please go on")

    def close(self) -> None:
        """There is nothing to close."""


class FakeEarsProcess(ServerProcess):
    """A `ServerProcess` of this module."""

    def start(self) -> ServerProcess:
        if "server.cli" in self.command:
            self.command[self.command.index("server.cli")] = "loadtest.served"
            self.command += NO_RECOGNIZER
        return super().start()


class UnobservedManager(SessionManager):
    """Has no observer, whatever it is given."""

    def __init__(self, *arguments: Any, observer: object = None, **named: Any) -> None:
        super().__init__(*arguments, **named)


def main() -> int:
    if os.environ.get(UNOBSERVED):
        app.SessionManager = UnobservedManager  # type: ignore[misc]
    models_loading._recognizer = lambda settings: SameWords()
    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
