"""`python -m loadtest.simulate`: many servers under up to 100,000 sessions, on a virtual clock.

Every session is the real session core, with its turns, holds, interruptions, timers and ledger; what is simulated is
the people, the models' delays and the time that a node's core takes, which were measured. Shows what a cluster carries,
whom it has to refuse, what the loss of a node costs, and what a rolling deploy does to those who talk.
"""

from __future__ import annotations

import argparse
import gc
import resource
import sys
import time
from dataclasses import replace
from pathlib import Path

from loadtest.scenarios import Crowd, Outcome, against, server_for, spread
from loadtest.simulation.call import Behaviour
from loadtest.simulation.cluster import Cluster
from loadtest.simulation.places import after
from loadtest.simulation.times import ServiceTimes
from sessions.core.timeline import TICK_RATE
from tests.bench.report import progress, table, write

EPILOG = """
examples:
  python -m loadtest.simulate --sessions 10000 --nodes 125 --seconds 60
  python -m loadtest.simulate --sessions 5000 --nodes 60 --kill-at 20 --deploy-at 40 --seconds 120
  python -m loadtest.simulate --calibrate times.json --low 10 --high 50     # measures a server on this machine
  python -m loadtest.simulate --validate --times times.json --sessions 100  # a real run beside the simulated one
"""
SETTLE_S = 8.0


def simulate(
    cluster: Cluster, seconds: float, *, kill_at: float | None = None, deploy_at: float | None = None
) -> dict[str, object]:
    """Run `cluster` for so long and return the figures."""
    cluster.open_all()
    if kill_at is not None:
        victim = cluster.nodes[0]
        after(cluster.clock, 1000 * kill_at, lambda: cluster.kill(victim))
        after(cluster.clock, 1000 * (kill_at + 15), lambda: cluster.revive(victim))
    if deploy_at is not None:
        after(cluster.clock, 1000 * deploy_at, lambda: cluster.deploy(restart_s=3.0, between_s=1.0))
    gc.collect()
    gc.freeze()  # a search for garbage among so many sessions would find none, and take most of the time
    gc.disable()
    began, cpu = time.perf_counter(), time.process_time()
    try:
        passed = 0.0
        while passed < seconds:
            passed = min(seconds, passed + 5.0)
            cluster.clock.run(round(passed * TICK_RATE))
            held = sum(len(node.calls) for node in cluster.nodes)
            used = time.perf_counter() - began
            progress(f"{passed:4.0f} of {seconds:.0f} s simulated in {used:.0f} s, {held} sessions held")
    except KeyboardInterrupt:
        seconds = cluster.clock.now / TICK_RATE
    finally:
        gc.enable()
    cluster.finish()
    cpu = time.process_time() - cpu
    seen = cluster.figures
    held = sum(len(node.calls) for node in cluster.nodes)
    return {
        "sessions": cluster.sessions,
        "nodes": len(cluster.nodes),
        "workers": len(cluster.workers),
        "seconds": seconds,
        "held_at_end": held,
        "opened": cluster.opened,
        "ended": cluster.ended,
        "refusals": cluster.refused,
        "stranded": cluster.stranded,
        "turns": seen.turns,
        "replies": seen.replies,
        "interruptions": seen.interruptions,
        "unanswered": seen.unanswered,
        "first_audio": spread(seen.first_audio),
        "barge_in_hold": spread(seen.hold),
        "barge_in_commit": spread(seen.stop),
        "without_a_server": spread(seen.dark),
        "stale_frames": seen.stale,
        "unbalanced_ledgers": seen.unbalanced,
        "core_share": round(sum(node.busy for node in cluster.nodes) / seconds / len(cluster.nodes), 3),
        "fullest_core": round(max(node.fullest for node in cluster.nodes), 3),
        "most_on_a_node": max(node.most for node in cluster.nodes),
        "frames": seen.frames,
        "core_events": seen.events,
        "core_events_per_s_and_session": round(seen.events / seconds / cluster.sessions, 2),
        "cpu_s": round(cpu, 2),
        "times_real_time": round(seconds / cpu, 2),
        "resident_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def _text(figures: dict[str, object]) -> str:
    spreads = {name: value for name, value in figures.items() if isinstance(value, dict)}
    rows = [[name.replace("_", " "), *value.values()] for name, value in spreads.items()]
    singles = [
        [name.replace("_", " "), f"{value:,}" if isinstance(value, int) else str(value)]
        for name, value in figures.items()
        if value is not None and name not in spreads
    ]
    parts = [table(singles, ("", ""))]
    if rows:
        parts.append(table(rows, ("ms", "n", "p50", "p95", "p99", "max")))
    return "\n\n".join(parts)


# --- measured and simulated ------------------------------------------------------------------------------------------


def one_node(sessions: int, seconds: float, times: ServiceTimes, crowd: Crowd, silence_ms: int) -> dict[str, object]:
    """The same load as `crowd` makes, simulated: one node, replies that cost the engine nothing."""
    lengths = tuple(clip.end - clip.onset for clip in crowd.clips("question"))
    behaviour = Behaviour(questions=lengths, reply=crowd.scenario.reply_s, pause=crowd.scenario.habits.pause)
    cluster = Cluster.of(
        sessions,
        1,
        1,
        room=sessions,
        slots=sessions,
        parallel=sessions,
        times=times,
        behaviour=behaviour,
        silence_ms=silence_ms,
        ramp_s=0.1,
    )
    return simulate(cluster, seconds)


def calibrate(low: int, high: int, seconds: float, silence_ms: int) -> tuple[ServiceTimes, list[Outcome]]:
    """Service times by two real loads, with few and with many sessions."""
    crowd = Crowd("talk", "twilio")
    outcomes = []
    for sessions in (low, high):
        with server_for(crowd.scenario, sessions, silence_ms) as server:
            outcomes.append(against(server, crowd, sessions, seconds, silence_ms))
    few, many = outcomes
    times = ServiceTimes()
    share = [one.used.cpu.total / one.used.seconds * 1000 for one in outcomes]
    per_session = (share[1] - share[0]) / (high - low)
    speaks = many.used.frames / many.used.seconds / high / 50
    turns = len(many.seen.first_audio) / many.used.seconds / high
    # Media in and out cost alike; what is measured is their sum and that of the turns.
    media = max(0.1, (per_session - turns * times.turn) / (1 + speaks))
    times = replace(
        times,
        base_per_s=round(max(0.0, share[0] - per_session * low), 2),
        listening_per_s=round(media, 3),
        speaking_per_s=round(media, 3),
    )
    first = spread(few.seen.first_audio)
    if first is not None:
        for _ in range(3):
            found = one_node(low, 60, times, crowd, silence_ms)["first_audio"]
            if isinstance(found, dict):
                times = replace(times, hearing=round(max(0.0, times.hearing + first["p50"] - found["p50"]), 2))
    return times, outcomes


def validate(times: ServiceTimes, sessions: int, seconds: float, silence_ms: int) -> dict[str, object]:
    """A real load and the same simulated."""
    crowd = Crowd("talk", "twilio")
    with server_for(crowd.scenario, sessions, silence_ms) as server:
        outcome = against(server, crowd, sessions, seconds, silence_ms)
    real = outcome.figures()
    made = one_node(sessions, seconds + SETTLE_S, times, crowd, silence_ms)
    # The first seconds, in which people begin, are not in the real figures of CPU.
    rates = {
        "answers per session and minute": (
            60 * len(outcome.seen.first_audio) / sessions / (outcome.used.seconds + 3),
            60 * _n(made["first_audio"]) / sessions / (seconds + SETTLE_S),
        ),
        "first audio p50, ms": (_at(real["first_audio"], "p50"), _at(made["first_audio"], "p50")),
        "first audio p95, ms": (_at(real["first_audio"], "p95"), _at(made["first_audio"], "p95")),
        "share of the core": (float(str(real["core_share"])), float(str(made["core_share"]))),
    }
    rows = [[name, round(a, 3), round(b, 3), f"{100 * (b / a - 1):+.1f} %"] for name, (a, b) in rates.items() if a]
    print(table(rows, ("", "measured", "simulated", "difference")))
    return {"measured": real, "simulated": made, "compared": {name: list(pair) for name, pair in rates.items()}}


def _n(value: object) -> int:
    return int(value["n"]) if isinstance(value, dict) else 0


def _at(value: object, share: str) -> float:
    return float(value[share]) if isinstance(value, dict) else 0.0


# --- the command -----------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.simulate",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sessions", type=int, default=1000, metavar="N", help="held at a time (default: 1000)")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="to simulate (default: 60)")
    parser.add_argument("--nodes", type=int, metavar="N", help="(default: one for each 80 sessions)")
    parser.add_argument("--room", type=int, default=100, metavar="N", help="sessions that a node takes (default: 100)")
    parser.add_argument("--workers", type=int, metavar="W", help="(default: one for each 64 sessions and one more)")
    parser.add_argument("--slots", type=int, default=64, metavar="N", help="sessions that a worker takes (default: 64)")
    parser.add_argument(
        "--parallel", type=int, default=8, metavar="N", help="replies that a worker begins at once (default: 8)"
    )
    parser.add_argument("--engine-ms", type=float, metavar="MS", help="a worker's time to first audio")
    parser.add_argument(
        "--call-s", type=float, metavar="S", help="mean length of a call; who hangs up is followed (default: for ever)"
    )
    parser.add_argument(
        "--barge-in", type=float, default=0.2, metavar="SHARE", help="replies that are interrupted (default: 0.2)"
    )
    parser.add_argument("--ramp", type=float, default=5.0, metavar="S", help="over which they call (default: 5)")
    parser.add_argument("--kill-at", type=float, metavar="S", help="a node dies then, and is back 15 s later")
    parser.add_argument("--deploy-at", type=float, metavar="S", help="a rolling deploy begins then")
    parser.add_argument("--silence-ms", type=int, default=200, metavar="MS", help="that ends a turn (default: 200)")
    parser.add_argument(
        "--frame-ms", type=int, default=100, metavar="MS", help="pieces that a node sends, as serve's (default: 100)"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of all chance (default: 1)")
    parser.add_argument("--times", type=Path, metavar="FILE", help="service times (JSON), as --calibrate writes them")
    parser.add_argument("--calibrate", type=Path, metavar="FILE", help="measure them here and write them there")
    parser.add_argument("--low", type=int, default=10, metavar="N", help="… with so few sessions (default: 10)")
    parser.add_argument("--high", type=int, default=50, metavar="N", help="… and with so many (default: 50)")
    parser.add_argument("--validate", action="store_true", help="a real load beside the simulated one")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    options = parser.parse_args()
    times = ServiceTimes.read(options.times) if options.times else ServiceTimes()
    if options.calibrate:
        times, outcomes = calibrate(options.low, options.high, min(options.seconds, 30.0), options.silence_ms)
        times.write(options.calibrate)
        progress("")
        print(options.calibrate.read_text())
        write({"times": {}, "runs": [one.figures() for one in outcomes]}, options.json)
        return 0
    if options.validate:
        write(validate(times, options.sessions, min(options.seconds, 60.0), options.silence_ms), options.json)
        return 0
    if options.engine_ms is not None:
        times = replace(times, engine=options.engine_ms)
    cluster = Cluster.of(
        options.sessions,
        options.nodes or -(-options.sessions // 80),
        options.workers or -(-options.sessions // options.slots) + 1,
        room=options.room,
        slots=options.slots,
        parallel=options.parallel,
        times=times,
        behaviour=Behaviour(barge_in=options.barge_in),
        mean_call_s=options.call_s,
        ramp_s=options.ramp,
        silence_ms=options.silence_ms,
        frame_ms=options.frame_ms,
        seed=options.seed,
        told=lambda text: progress(text + "\n"),
    )
    figures = simulate(cluster, options.seconds, kill_at=options.kill_at, deploy_at=options.deploy_at)
    progress("")
    print(_text(figures))
    write(figures, options.json)
    return 1 if figures["stale_frames"] or figures["unbalanced_ledgers"] else 0


if __name__ == "__main__":
    sys.exit(main())
