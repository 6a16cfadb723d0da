"""Figures of the engine as Prometheus metrics: slots, keys and values, queues, caches by kind, and what it counts.

They are asked of the engine when somebody asks for the metrics; nothing is kept here. No label names a session.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from models.occupancy import Counts, Occupancy, Occupied
from sessions.ports import EnginePort


class EngineMetrics(Collector):
    """Collector of one engine, for a registry."""

    def __init__(self, engine: EnginePort) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        engine = self._engine
        if isinstance(engine, Counts):
            events = CounterMetricFamily("talkover_engine_events", "What the engine counted", labels=("event",))
            for name, count in sorted(engine.counters.items()):
                events.add_metric((name,), count)
            yield events
        if isinstance(engine, Occupied):
            yield from _occupancy(engine.occupancy)


def _occupancy(now: Occupancy) -> Iterator[Metric]:
    yield GaugeMetricFamily("talkover_engine_slots", "Slots or rows that the engine has", value=now.slots)
    yield GaugeMetricFamily("talkover_engine_slots_busy", "Slots or rows that are at work", value=now.busy)
    held = GaugeMetricFamily("talkover_engine_kv_bytes", "Keys and values that are allocated", labels=("stage",))
    places = GaugeMetricFamily(
        "talkover_engine_kv_positions",
        "Positions of keys and values: that there are, and in use",
        labels=("stage", "of"),
    )
    for stage, kv in now.kv.items():
        held.add_metric((stage,), kv.bytes)
        places.add_metric((stage, "all"), kv.positions)
        places.add_metric((stage, "held"), kv.held)
    yield held
    yield places
    queues = GaugeMetricFamily(
        "talkover_engine_queue", "What waits; the name of a queue ends with its unit", labels=("queue",)
    )
    for queue, waiting in now.queues.items():
        queues.add_metric((queue,), waiting)
    yield queues
    yield from _caches(now)


def _caches(now: Occupancy) -> Iterator[Metric]:
    asked = CounterMetricFamily(
        "talkover_engine_cache_lookups", "What was looked up in a cache", labels=("kind", "result")
    )
    gone = CounterMetricFamily("talkover_engine_cache_evictions", "What a cache let go of for room", labels=("kind",))
    held = GaugeMetricFamily("talkover_engine_cache_bytes", "What a cache holds", labels=("kind",))
    for kind, cache in now.caches.items():
        asked.add_metric((kind, "hit"), cache.hits)
        asked.add_metric((kind, "miss"), cache.misses)
        gone.add_metric((kind,), cache.evictions)
        held.add_metric((kind,), cache.bytes)
    yield from (asked, gone, held)
