"""`python -m loadtest`: what a server needs for N sessions at a time, and what callers notice of it.

Starts a server of its own with scripted replies, confined to one core, and calls it from this process on another, with
recorded speech at the pace of a microphone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from loadtest import report, stream
from loadtest.saturation import Bound, most_sessions
from loadtest.scenarios import CARRIERS, SCENARIOS, SILENCE_MS, Crowd, Outcome, against, server_for
from tests.bench.report import progress, table, write

EXAMPLES = """
scenarios:
  stream       the agent speaks all the time, the caller is silent: the cost of media alone (default)
{scenarios}

examples:
  python -m loadtest --sessions 100 --baseline
      100 WebSocket sessions, push to talk, and the ratio to a bare echo server loaded just before and after
  python -m loadtest --carrier twilio --sessions 50 --scenario talk --plot answers.svg
      50 telephone calls that ask questions; when the answers came, as a plot too
  python -m loadtest --carrier webrtc --sessions 10 --scenario bargein --json figures.json
      10 calls from browsers, in which every answer is interrupted
  python -m loadtest --carrier twilio --saturation --bound-ms 400
      the most calls on one core with the first audio within 400 ms at p95

Needs Linux and two cores. Ctrl-C ends the load early, with the figures so far; twice ends it at once.
Other loads: python -m loadtest.cycles, .peers, .simulate, .overhead, .gpu_ticks (each has --help).
"""


def _parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {name:<12} {scenario.about}" for name, scenario in SCENARIOS.items())
    parser = argparse.ArgumentParser(
        prog="python -m loadtest",
        description=(__doc__ or "").partition("\n\n")[0] + "\n\n" + (__doc__ or "").partition("\n\n")[2],
        epilog=EXAMPLES.format(scenarios=listed),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sessions", type=int, metavar="N", help="sessions at a time (default: 100; stream), else 10")
    parser.add_argument("--seconds", type=float, metavar="S", help="how long to measure (default: 20; others: 60)")
    parser.add_argument(
        "--carrier", choices=(*CARRIERS, "websocket"), default="ws", help="how they connect (default: ws)"
    )
    parser.add_argument("--scenario", choices=("stream", *SCENARIOS), help="what they do (default: stream)")
    parser.add_argument(
        "--silence-ms",
        type=int,
        default=SILENCE_MS,
        metavar="MS",
        help=f"silence that ends a turn (default: {SILENCE_MS}); part of the time to the first audio",
    )
    parser.add_argument("--vad", action="store_true", help="stream: with speech detection (default: push to talk)")
    parser.add_argument("--baseline", action="store_true", help="stream: with the ratio to a bare echo server")
    parser.add_argument("--saturation", action="store_true", help="search the most sessions that one core carries")
    parser.add_argument(
        "--bound-ms", type=float, default=400.0, metavar="MS", help="… with the first audio within so long"
    )
    parser.add_argument(
        "--bound-at", choices=("p50", "p95", "p99"), default="p95", help="… at this share (default: p95)"
    )
    parser.add_argument("--step", type=int, default=10, metavar="N", help="… to so many sessions (default: 10)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw them there (SVG)")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    carrier = "ws" if options.carrier == "websocket" else options.carrier
    scenario = options.scenario or ("talk" if options.saturation else "stream")
    if options.sessions is not None and options.sessions < 1:
        parser.error("--sessions must be at least 1")
    if (options.baseline or options.vad) and scenario != "stream":
        parser.error("--baseline and --vad belong to --scenario stream; all others have speech detection")
    if scenario == "slow-reader" and carrier == "webrtc":
        parser.error("a call has no slow reader: its packets are sent whether they are read or not; take ws or twilio")
    if scenario == "stream":
        if carrier == "twilio":
            parser.error("for silent telephone calls see python -m loadtest.twilio; or take another --scenario")
        return stream.main(
            carrier, options.sessions or 100, options.seconds or 20.0, options.vad, options.baseline, options.json
        )
    crowd = Crowd(scenario, carrier)
    seconds = options.seconds or (30.0 if options.saturation else 60.0)
    try:
        if options.saturation:
            bound = Bound(options.bound_ms, options.bound_at)
            return _saturate(crowd, options.sessions or 50, seconds, options, bound)
        sessions = options.sessions or 10
        with server_for(crowd.scenario, sessions, options.silence_ms) as server:
            outcome = against(server, crowd, sessions, seconds, options.silence_ms)
    except KeyboardInterrupt:
        print("\nended before there was anything to tell", file=sys.stderr)
        return 130
    figures = outcome.figures()
    progress("")
    print(report.text(figures))
    write(figures, options.json)
    if options.plot:
        report.plot(outcome, options.plot)
    return 1 if figures["failures"] or figures["stale_pieces"] else 0


def _saturate(crowd: Crowd, begin: int, seconds: float, options: argparse.Namespace, bound: Bound) -> int:
    steps: list[dict[str, object]] = []

    def try_out(count: int) -> bool:
        with server_for(crowd.scenario, count, options.silence_ms) as server:
            outcome: Outcome = against(server, crowd, count, seconds, options.silence_ms)
        figures = outcome.figures()
        kept = bound.keeps(outcome)
        steps.append({**figures, "kept": kept})
        first = outcome.figures()["first_audio"]
        progress(f"{count} sessions: first audio {first} ms, {'kept' if kept else 'not kept'}\n")
        return kept

    found = most_sessions(try_out, begin, options.step)
    progress("")
    rows = [
        [
            step["sessions"],
            *(_first(step, share) for share in ("p50", "p95", "p99")),
            step["core_share"],
            step["client_core_share"],
            step["failures"],
            "yes" if step["kept"] else "no",
        ]
        for step in steps
    ]
    print(table(rows, ("sessions", "p50 ms", "p95 ms", "p99 ms", "server core", "load core", "failures", "kept")))
    print(f"\n{found} sessions on one core with the first audio within {bound.first_audio_ms:.0f} ms at {bound.at}")
    write({"most": found, "bound_ms": bound.first_audio_ms, "at": bound.at, "steps": steps}, options.json)
    if options.plot:
        report.plot_saturation(steps, bound.first_audio_ms, options.plot)
    return 0 if found else 1


def _first(step: dict[str, object], share: str) -> object:
    first = step["first_audio"]
    return first[share] if isinstance(first, dict) else "none"


if __name__ == "__main__":
    sys.exit(main())
