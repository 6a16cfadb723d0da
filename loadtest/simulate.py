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
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from loadtest.scenarios import spread
from loadtest.simulation.call import Behaviour
from loadtest.simulation.cluster import Cluster
from loadtest.simulation.measured import Load, Voices, calibrated, compared, simulated
from loadtest.simulation.places import after
from loadtest.simulation.times import ServiceTimes
from sessions.core.timeline import TICK_RATE
from tests.bench.report import progress, table, write

EPILOG = """
examples:
  python -m loadtest.simulate --sessions 10000 --nodes 125 --seconds 60
  python -m loadtest.simulate --sessions 5000 --nodes 60 --kill-at 20 --deploy-at 40 --seconds 120
real loads first, each by python -m loadtest --carrier twilio|ws --scenario talk|bargein --sessions N --json FILE:
  python -m loadtest.simulate --calibrate times.json --loads talk-20.json talk-60.json bargein-10.json
  python -m loadtest.simulate --validate --times times.json --loads talk-40.json bargein-20.json
"""


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
        "barge_in_stop": spread(seen.stop),
        "barge_in_commit": spread(seen.commit),
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


def calibrate(files: Sequence[Path], silence_ms: int, to: Path) -> None:
    """Write service times worked out from real loads. Raises ValueError where they do not say enough."""
    times = calibrated([Load.read(file) for file in files], Voices(), silence_ms)
    times.write(to)
    print(to.read_text(), end="")


def validate(files: Sequence[Path], times: ServiceTimes, silence_ms: int) -> dict[str, object]:
    """Real loads beside the same simulated. Raises ValueError for loads that cannot be."""
    voices, found = Voices(), {}
    for file in files:
        real = Load.read(file)
        made = simulated(real, times, voices, silence_ms)
        pairs = compared(real, made)
        rows = [[name, round(a, 3), round(b, 3), f"{100 * (b / a - 1):+.1f} %"] for name, a, b in pairs]
        print(f"{real.scenario}, {real.sessions} sessions, {real.unanswered} and {made.unanswered} unanswered")
        print(table(rows, ("", "measured", "simulated", "difference")), end="\n\n")
        found[str(file)] = {name: [a, b] for name, a, b in pairs}
    return {"times": asdict(times), "compared": found}


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
        "--frame-ms",
        type=int,
        default=100,
        metavar="MS",
        help="pieces that a node sends (default: 100; serve's own: 20)",
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of all chance (default: 1)")
    parser.add_argument("--times", type=Path, metavar="FILE", help="service times (JSON), as --calibrate writes them")
    parser.add_argument("--calibrate", type=Path, metavar="FILE", help="work them out of --loads and write them there")
    parser.add_argument("--validate", action="store_true", help="--loads beside the same simulated")
    parser.add_argument(
        "--loads", type=Path, nargs="+", default=[], metavar="FILE", help="figures of real loads (JSON)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    options = parser.parse_args()
    times = ServiceTimes.read(options.times) if options.times else ServiceTimes()
    if options.calibrate or options.validate:
        if not options.loads:
            parser.error("--calibrate and --validate need --loads")
        try:
            if options.calibrate:
                calibrate(options.loads, options.silence_ms, options.calibrate)
            else:
                write(validate(options.loads, times, options.silence_ms), options.json)
        except (OSError, ValueError, KeyError) as error:
            parser.error(f"--loads: {error}")
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
