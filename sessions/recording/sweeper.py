"""Keeps to the policy while a server runs: deletes what must not be kept any longer, in a thread of its own.

Deleting may take long, and nothing that is being recorded waits for it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from .policy import RecordingPolicy
from .retention import sweep

log = logging.getLogger(__name__)

APART_SECONDS: Final = 60.0
"""However many sessions end, the folder is gone through no more often than this."""
AT_LEAST_SECONDS: Final = 3600.0
"""And no less often than this, though nobody talks."""


class Sweeper:
    """Sweeps at once, then soon after `ended`, and every hour. A policy without limits needs no thread."""

    def __init__(self, root: Path, policy: RecordingPolicy, busy: Callable[[], Collection[str]]) -> None:
        """`busy`: the names of the folders that are being written to; called in the sweeper's thread."""
        self._root = root
        self._policy = policy
        self._busy = busy
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="retention", daemon=True) if policy.limited else None
        if self._thread is not None:
            self._thread.start()

    def ended(self) -> None:
        """A recording is finished: there may be too much now."""
        self._wake.set()

    def close(self) -> None:
        """Stop; what is being deleted is deleted first."""
        self._closing.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            try:
                gone = sweep(self._root, self._policy, time.time(), self._busy())
            except Exception:
                log.exception("recordings below %s were not looked after", self._root)
            else:
                if gone:
                    log.info("%d recordings were kept long enough and are deleted", len(gone))
            if self._closing.wait(APART_SECONDS):
                return
            self._wake.wait(AT_LEAST_SECONDS - APART_SECONDS)
            self._wake.clear()
            if self._closing.is_set():
                return
