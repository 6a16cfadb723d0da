"""`models.families.scheduler`."""

from __future__ import annotations

import threading

from models.families.scheduler import TimerThread

from .hearing import PATIENCE


def test_calls_run_in_the_order_of_their_times() -> None:
    timers, order, done = TimerThread(), [], threading.Event()
    timers.call_later(0.02, done.set)
    timers.call_later(0.01, lambda: order.append(2))
    timers.call_later(0.0, lambda: order.append(1))
    assert done.wait(PATIENCE)
    timers.close()
    assert order == [1, 2]


def test_a_cancelled_call_does_not_run() -> None:
    timers, order, done = TimerThread(), [], threading.Event()
    timers.call_later(0.0, lambda: order.append("cancelled")).cancel()
    timers.call_later(0.001, done.set)
    assert done.wait(PATIENCE)
    timers.close()
    assert order == []


def test_closing_drops_what_waits_and_may_be_done_twice_or_from_a_call() -> None:
    timers, ran, done = TimerThread(), [], threading.Event()
    timers.call_later(3600, lambda: ran.append(1))

    def close() -> None:
        timers.close()
        done.set()

    timers.call_later(0.0, close)
    assert done.wait(PATIENCE)
    timers.close()
    assert ran == []
