"""What a scenario is given, how it waits, and how it reports."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def arguments() -> dict[str, Any]:
    return json.loads(sys.argv[1])


def report(result: dict[str, Any]) -> None:
    print(json.dumps(result), flush=True)


class Log(Generic[T]):
    """Everything that a client reported, in order, and waiting for some of it."""

    def __init__(self) -> None:
        self.entries: list[T] = []
        self._news = asyncio.Event()

    def add(self, entry: T) -> None:
        self.entries.append(entry)
        self._news.set()

    def __len__(self) -> int:
        return len(self.entries)

    async def wait(self, fits: Callable[[T], bool], after: int = 0, within: float = 45.0, what: str = "") -> T:
        """The first entry from index `after` on that `fits`; `what` names it in the error."""
        seen, deadline = after, time.monotonic() + within
        while True:
            while seen < len(self.entries):
                entry = self.entries[seen]
                seen += 1
                if fits(entry):
                    return entry
            self._news.clear()
            left = deadline - time.monotonic()
            if left <= 0:
                tail = [str(entry)[:200] for entry in self.entries[after:]][-8:]
                raise AssertionError(f"no {what or 'such entry'} within {within} s; last came {tail}")
            try:
                await asyncio.wait_for(self._news.wait(), left)
            except TimeoutError:
                pass


def typed(name: str) -> Callable[[dict[str, Any]], bool]:
    """Fits an event of this type."""
    return lambda event: event["type"] == name
