"""The end of a process in which models are still being loaded."""

from __future__ import annotations

import logging
import os
import sys
import threading
from typing import Final

LOADING: Final = "load-models"
"""Name of the thread that loads models."""


def leave(status: int) -> int:
    """`status`, for the process to end with.

    While a thread still loads models, the process ends here and at once: one that comes out of a library's own code
    while the interpreter is being taken down aborts the process, with a status that nobody asked for.
    """
    if any(thread.name == LOADING for thread in threading.enumerate()):
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status
