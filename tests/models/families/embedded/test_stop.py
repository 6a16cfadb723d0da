"""`models.families.embedded.stop`."""

from __future__ import annotations

from models.families.embedded.stop import Stop


def test_a_stop_calls_what_was_registered_once() -> None:
    stop, calls = Stop(), []
    stop.then(lambda: calls.append(1))
    assert not stop
    stop.set()
    stop.set()
    assert stop
    assert calls == [1]


def test_what_is_registered_too_late_is_called_at_once() -> None:
    stop, calls = Stop(), []
    stop.set()
    stop.then(lambda: calls.append(1))
    assert calls == [1]


def test_a_call_may_register_another_without_a_deadlock() -> None:
    stop, calls = Stop(), []
    stop.then(lambda: stop.then(lambda: calls.append(2)))
    stop.set()
    assert calls == [2]
