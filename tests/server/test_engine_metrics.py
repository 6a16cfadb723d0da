"""Figures of an engine as Prometheus metrics."""

from __future__ import annotations

from collections.abc import Mapping

from models.caches import CacheMetrics
from models.families.script import PreparedReply
from models.families.scripted import ScriptedEngine
from models.occupancy import KeyValues, Occupancy
from server.voice_metrics import VoiceMetrics
from sessions.core.fence import Fence
from tests.models.families.hearing import shut
from tests.server.test_voice_metrics import samples


class Full(ScriptedEngine):
    """An engine that tells how full it is."""

    occupancy = Occupancy(
        slots=6,
        busy=2,
        kv={"thinker": KeyValues(4096, 12_288, 700)},
        queues={"replies": 3, "output_ticks": 9_600},
        caches={"feature": CacheMetrics(hits=5, misses=2, evictions=1, bytes=512), "kv": CacheMetrics(hits=1)},
    )

    @property
    def counters(self) -> Mapping[str, int]:
        return {"sessions_resumed": 2, "output_stale_samples": 480}


def engine(kind: type[ScriptedEngine] = ScriptedEngine) -> ScriptedEngine:
    return kind([PreparedReply(0, bytes(96))])


def test_slots_keys_and_values_queues_and_caches_are_told_apart() -> None:
    metrics = VoiceMetrics()
    with shut(full := engine(Full)):
        metrics.watch(full)
        seen = samples(metrics)
    assert seen["talkover_engine_slots", ()] == 6
    assert seen["talkover_engine_slots_busy", ()] == 2
    assert seen["talkover_engine_kv_bytes", (("stage", "thinker"),)] == 4096
    assert seen["talkover_engine_kv_positions", (("of", "all"), ("stage", "thinker"))] == 12_288
    assert seen["talkover_engine_kv_positions", (("of", "held"), ("stage", "thinker"))] == 700
    assert seen["talkover_engine_queue", (("queue", "output_ticks"),)] == 9_600
    assert seen["talkover_engine_cache_lookups_total", (("kind", "feature"), ("result", "hit"))] == 5
    assert seen["talkover_engine_cache_lookups_total", (("kind", "feature"), ("result", "miss"))] == 2
    assert seen["talkover_engine_cache_lookups_total", (("kind", "kv"), ("result", "hit"))] == 1
    assert seen["talkover_engine_cache_evictions_total", (("kind", "feature"),)] == 1
    assert seen["talkover_engine_cache_bytes", (("kind", "feature"),)] == 512


def test_what_an_engine_counts_is_told_by_name() -> None:
    metrics = VoiceMetrics()
    with shut(full := engine(Full)):
        metrics.watch(full)
        seen = samples(metrics)
    assert seen["talkover_engine_events_total", (("event", "sessions_resumed"),)] == 2
    assert seen["talkover_engine_events_total", (("event", "output_stale_samples"),)] == 480


def test_an_engine_that_does_not_tell_how_full_it_is_has_its_counts_alone() -> None:
    metrics = VoiceMetrics()
    with shut(plain := engine()):
        metrics.watch(plain)
        plain.advance(Fence("nobody", 1, 0))
        names = {name for name, _ in samples(metrics) if name.startswith("talkover_engine")}
    assert names == {"talkover_engine_events_total"}
