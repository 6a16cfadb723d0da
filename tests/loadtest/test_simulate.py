"""A simulated cluster holds its sessions through what happens to clusters."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from loadtest.simulate import simulate
from loadtest.simulation.call import Behaviour
from loadtest.simulation.cluster import Cluster
from loadtest.simulation.places import Node
from loadtest.simulation.times import ServiceTimes
from sessions.core.timeline import TICK_RATE


def cluster(sessions: int = 24, nodes: int = 3, room: int = 12, slots: int = 16, **more: object) -> Cluster:
    behaviour = Behaviour(barge_in=0.3)
    return Cluster.of(sessions, nodes, 3, room=room, slots=slots, behaviour=behaviour, ramp_s=1.0, **more)


def spread_of(figures: dict[str, object], name: str) -> dict[str, float]:
    found = figures[name]
    assert isinstance(found, dict)
    return found


def test_people_are_answered_and_heard_when_they_cut_in() -> None:
    figures = simulate(cluster(), 40.0)
    assert figures["held_at_end"] == figures["opened"] == 24
    assert figures["refusals"] == figures["stale_frames"] == figures["unbalanced_ledgers"] == 0
    assert int(str(figures["turns"])) > 100
    assert figures["unanswered"] == 0
    # 200 ms of silence, whole windows, and what was measured of the rest.
    first = spread_of(figures, "first_audio")
    assert 200 < first["p50"] < first["p95"] < 330
    assert int(str(figures["interruptions"])) > 10
    assert 200 < spread_of(figures, "barge_in_commit")["p50"] < 300
    assert spread_of(figures, "barge_in_stop")["p50"] <= spread_of(figures, "barge_in_hold")["p50"] < 100


def test_the_same_seed_is_the_same_run() -> None:
    def run(seed: int) -> dict[str, object]:
        figures = simulate(cluster(8, seed=seed), 15.0)
        return {
            name: value for name, value in figures.items() if name not in ("cpu_s", "times_real_time", "resident_mb")
        }

    assert run(3) == run(3)
    assert run(3) != run(4)


def test_the_sessions_of_a_dead_node_go_on_elsewhere() -> None:
    made = cluster(24, nodes=3, room=12)
    figures = simulate(made, 30.0, kill_at=8.0)
    assert figures["held_at_end"] == 24
    assert figures["stranded"] == figures["stale_frames"] == 0
    dark = spread_of(figures, "without_a_server")
    assert dark["n"] == 8
    assert 300 <= dark["p50"] <= dark["max"] < 2200
    moved = [call for node in made.nodes for call in node.calls.values() if call.incarnation > 1]
    assert len(moved) == 8


def test_where_there_is_no_room_for_them_they_wait_for_the_node_to_come_back() -> None:
    figures = simulate(cluster(24, nodes=2, room=12), 60.0, kill_at=5.0)
    # The node is back after 15 s, and they wait for 30.
    assert figures["held_at_end"] == 24
    assert int(str(figures["refusals"])) > 24
    assert spread_of(figures, "without_a_server")["p50"] > 12_000


def test_a_rolling_deploy_moves_everybody_and_loses_nobody() -> None:
    made = cluster(24, nodes=3, room=14)
    figures = simulate(made, 40.0, deploy_at=5.0)
    assert figures["held_at_end"] == 24
    assert figures["stranded"] == figures["unbalanced_ledgers"] == figures["stale_frames"] == 0
    assert spread_of(figures, "without_a_server")["n"] >= 24
    assert all(node.alive and node.ready for node in made.nodes)


def test_more_sessions_than_there_is_room_for_are_refused() -> None:
    figures = simulate(cluster(30, nodes=2, room=10), 10.0)
    assert figures["held_at_end"] == 20
    assert int(str(figures["refusals"])) >= 10


def test_workers_are_room_too() -> None:
    assert simulate(cluster(24, slots=5), 10.0)["held_at_end"] == 15


def test_who_hangs_up_leaves_nothing_and_is_followed() -> None:
    made = cluster(12, mean_call_s=5.0)
    figures = simulate(made, 40.0)
    assert int(str(figures["ended"])) > 40
    assert figures["held_at_end"] == 12
    assert figures["unbalanced_ledgers"] == 0
    assert sum(worker.taken for worker in made.workers) == 12
    assert all(node.speaking <= len(node.calls) for node in made.nodes)
    assert all(worker.beginning >= 0 for worker in made.workers)


def test_a_fuller_node_is_slower_and_an_overfull_one_falls_behind() -> None:
    slow = replace(ServiceTimes(), listening_per_s=30.0, speaking_per_s=30.0)

    def first(sessions: int) -> float:
        made = Cluster.of(sessions, 1, 1, room=100, slots=100, times=slow, ramp_s=0.5)
        return spread_of(simulate(made, 20.0), "first_audio")["p95"]

    quiet, busy, over = first(2), first(25), first(60)
    assert quiet < busy < over
    assert over > 1000


def test_a_node_accounts_for_its_core() -> None:
    made = cluster(0)
    node: Node = made.nodes[0]
    made.clock.run(10 * TICK_RATE)
    node.changed()
    assert node.busy == pytest.approx(10 * made.times.base_per_s / 1000)
    before = made.clock.now
    ends = [node.work(10.0) for _ in range(3)]
    assert all(later - earlier >= TICK_RATE // 100 for earlier, later in itertools.pairwise([before, *ends]))
