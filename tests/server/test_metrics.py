"""What the process tells about itself."""

from __future__ import annotations

import asyncio
import re

import pytest

from server.metrics import KEPT, PERIOD, LoopLag, prometheus, resident_bytes
from sessions.counters import Counters
from sessions.virtual_clock import run


def test_lag_is_nothing_before_anything_was_seen() -> None:
    assert LoopLag().quantile(0.99) == 0.0


def test_lag_is_how_long_others_kept_the_loop() -> None:
    lag = LoopLag()

    async def scene() -> None:
        lag.start()
        await asyncio.sleep(0)
        held = asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() - held < 5 * PERIOD:
            pass  # keeps the loop, as a computation would
        await asyncio.sleep(2 * PERIOD)
        lag.stop()

    asyncio.run(scene())
    assert lag.quantile(1.0) >= 4 * PERIOD
    lag.reset()
    assert lag.quantile(1.0) == 0.0


def test_an_idle_loop_has_none_and_only_the_last_minute_counts() -> None:
    lag = LoopLag()

    async def scene() -> None:
        lag.start()
        await asyncio.sleep(PERIOD * (KEPT + 500))
        lag.stop()

    run(scene())
    assert len(lag._lags) == KEPT
    assert lag.quantile(1.0) == pytest.approx(0.0, abs=1e-9)


def test_quantiles_are_by_nearest_rank() -> None:
    lag = LoopLag()
    lag._lags.extend(n / 1000 for n in range(1, 101))
    assert lag.quantile(0.5) == 0.050
    assert lag.quantile(0.99) == 0.099
    assert lag.quantile(1.0) == 0.100
    assert lag.quantile(0.001) == 0.001
    assert lag.quantile(0.5, looks=10) == 0.095, "only the newest looks count"
    assert lag.quantile(1.0, looks=1000) == 0.100


def test_stop_may_come_before_start() -> None:
    LoopLag().stop()


def test_this_process_is_resident() -> None:
    assert resident_bytes() > 1_000_000


def test_the_text_is_prometheus_format() -> None:
    counters = Counters()
    counters.add("sessions_opened", 2)
    counters.add("access_denied")
    text = prometheus(counters, LoopLag(), {"sessions": 1, "unsent_bytes": 0})
    assert text.endswith("\n")
    sample = re.compile(r'talkover_[a-z_]+(\{[a-z]+="[^"\\\n]*"\})? -?\d+(\.\d+)?')
    kinds: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in kinds
            kinds[name] = kind
        else:
            assert sample.fullmatch(line), line
            assert re.split(r"[{ ]", line)[0] in kinds
    assert kinds["talkover_sessions"] == "gauge"
    assert kinds["talkover_events_total"] == "counter"
    assert 'talkover_events_total{event="access_denied"} 1' in text
    assert 'talkover_events_total{event="sessions_opened"} 2' in text
