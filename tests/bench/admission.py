"""How many conversations at a time this machine carries: first audio by the number of sessions that talk at once.

`python -m tests.bench.admission --spawn` lets N sessions ask one spoken question after the other, each as soon as it
has heard the answer to the last one, for N = 1, 2, …; the default of `--max-sessions` is the largest N with the first
audio under 3 s at p95.
"""

from __future__ import annotations

import asyncio
import sys

from server.client import RealtimeClient
from tests.bench.latency import WIRE, ask
from tests.bench.report import percentile, progress, table, write
from tests.bench.target import arguments, server
from tests.speech import Clip, load

BOUND = 3.0
"""Seconds that the first audio may take at p95."""


async def talk(url: str, clips: list[Clip], kind: str, late: float) -> list[float]:
    """One session: its questions, each after the answer to the one before; seconds to the first audio of each."""
    session = {
        "type": "realtime",
        "audio": {"input": {"turn_detection": {"type": kind}, "transcription": {"model": "default"}}},
    }
    took = []
    async with RealtimeClient(url, session) as client:
        client.open_microphone()
        await client.pause(late)
        for clip in clips:
            mark = len(client.events)
            took.append(float((await ask(client, clip, settle=0.6))[WIRE]))
            await client.wait_for("response.done", after=mark, within=120)
            await client.pause(1.0)
    return took


async def measure(url: str, clips: list[Clip], kind: str, sessions: int) -> list[float]:
    """Seconds to the first audio, over all questions of `sessions` sessions at a time."""
    shares = [[clips[(index + step * sessions) % len(clips)] for step in range(4)] for index in range(sessions)]
    took = await asyncio.gather(*(talk(url, share, kind, index * 0.37) for index, share in enumerate(shares)))
    return [seconds for one in took for seconds in one]


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--detection", choices=("server_vad", "semantic_vad"), default="server_vad")
    parser.add_argument("--sessions", default="1,2,4,6,8", metavar="N,N,…", help="sessions at a time to try")
    options = parser.parse_args()
    counts = [int(count) for count in options.sessions.split(",")]
    clips = list(load("questions", "test"))[: options.limit]
    rows, figures = [], []
    with server(options, "embedded", None, ("--max-sessions", str(max(counts)))) as target:
        for count in counts:
            took = asyncio.run(measure(target.url, clips, options.detection, count))
            p50, p95 = percentile(took, 0.5), percentile(took, 0.95)
            progress(f"{count} sessions: p50 {p50:.2f} s, p95 {p95:.2f} s")
            rows.append([str(count), str(len(took)), f"{p50:.2f}", f"{p95:.2f}", "yes" if p95 < BOUND else "no"])
            figures.append({"sessions": count, "questions": len(took), "p50_s": p50, "p95_s": p95})
    print(table(rows, ["sessions", "questions", "p50 s", "p95 s", "in bound"]))
    write({"bound_s": BOUND, "counts": figures}, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
