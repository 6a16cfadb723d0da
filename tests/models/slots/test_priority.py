"""A thread with a deadline is preferred where the system allows it, and runs all the same where it does not."""

from __future__ import annotations

import os
import sys

import pytest

from models.slots import priority
from models.slots.priority import PREFERENCE, prefer_this_thread

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux knows priorities of threads")


@linux
def test_it_is_served_before_what_has_the_niceness_that_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int, int]] = []
    monkeypatch.setattr(os, "getpriority", lambda which, who: 3)
    monkeypatch.setattr(os, "setpriority", lambda *given: asked.append(given))
    monkeypatch.setattr(priority.threading, "get_native_id", lambda: 77)
    assert prefer_this_thread()
    assert asked == [(os.PRIO_PROCESS, 77, 3 - PREFERENCE)]


@linux
def test_who_is_not_allowed_to_goes_on_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "setpriority", refuse)
    assert not prefer_this_thread()


def test_elsewhere_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(priority.sys, "platform", "darwin")
    monkeypatch.setattr(os, "setpriority", None, raising=False)
    assert not prefer_this_thread()
