"""`python -m loadtest.overhead`: what metrics and traces cost a server.

Two servers share one core and get the same callers at the same time: one tells nobody of its sessions' figures, the
other counts them and sends a trace of each turn to a collector. Whatever else the machine does slows both alike, so
their ratio holds where milliseconds do not.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from loadtest.scenarios import SILENCE_MS, Crowd, Outcome, lines_to, load, server_for, session_object
from loadtest.served import UNOBSERVED
from tests.bench.report import progress, table, write
from tests.servers import ServerProcess


@contextlib.contextmanager
def collector() -> Iterator[tuple[str, list[int]]]:
    """An OTLP endpoint that takes everything; its address, and the size of each batch that came."""
    batches: list[int] = []

    class Take(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            batches.append(len(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Batches are counted, not told."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Take) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1/traces", batches
        finally:
            server.shutdown()
            thread.join()


def measure(carrier: str, scenario: str, sessions: int, seconds: float) -> tuple[Outcome, Outcome, int]:
    """The same load on a server that nobody observes and on one that is observed, and the batches of traces."""
    crowd = Crowd(scenario, carrier)
    session = session_object(crowd.scenario, SILENCE_MS)

    async def both(plain: ServerProcess, observed: ServerProcess) -> tuple[Outcome, Outcome]:
        first, second = await asyncio.gather(
            *(load(crowd, lines_to(one, carrier, session), sessions, seconds, one.pid) for one in (plain, observed))
        )
        return first, second

    with (
        collector() as (url, batches),
        server_for(crowd.scenario, sessions, env={UNOBSERVED: "1"}) as plain,
        server_for(crowd.scenario, sessions, arguments=["--otlp-endpoint", url]) as observed,
    ):
        first, second = asyncio.run(both(plain, observed))
    return first, second, len(batches)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtest.overhead", description=__doc__)
    parser.add_argument("--carrier", choices=("ws", "twilio", "webrtc"), default="twilio", help="(default: twilio)")
    parser.add_argument("--scenario", choices=("talk", "bargein"), default="talk", help="(default: talk)")
    parser.add_argument("--sessions", type=int, default=20, metavar="N", help="at each server (default: 20)")
    parser.add_argument("--seconds", type=float, default=30.0, metavar="S", help="how long to measure (default: 30)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    options = parser.parse_args()
    plain, observed, batches = measure(options.carrier, options.scenario, options.sessions, options.seconds)
    cost = [one.used.per_session(options.sessions) for one in (plain, observed)]
    progress("")
    rows = [
        ["nobody observes", round(cost[0], 2), len(plain.seen.first_audio), 0],
        ["metrics and traces", round(cost[1], 2), len(observed.seen.first_audio), batches],
    ]
    print(table(rows, ("", "CPU ms/s per session", "answers", "batches of traces")))
    print(f"\nmetrics and traces: {100 * (cost[1] / cost[0] - 1):+.1f} % CPU")
    write({"cpu_ms_per_s_per_session": cost, "ratio": cost[1] / cost[0], "batches": batches}, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
