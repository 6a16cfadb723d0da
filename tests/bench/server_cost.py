"""What a server costs: memory with loaded models, memory per further session, event loop lag at work.

`python -m tests.bench.server_cost --spawn` (only a server of its own can be weighed).
"""

from __future__ import annotations

import asyncio
import sys

from server.client import RATE, RealtimeClient
from tests.bench.report import progress, table, write
from tests.bench.target import arguments, server
from tests.servers import ServerProcess
from tests.speech import RATE as CLIP_RATE
from tests.speech import load

MB = 1e6
SESSION: dict[str, object] = {"type": "realtime", "audio": {"input": {"turn_detection": {"type": "server_vad"}}}}


async def turn(client: RealtimeClient, index: int) -> None:
    """One spoken question, heard to the end of its answer."""
    clip = load("questions", "test")[index]
    mark = len(client.events)
    utterance = client.say(clip.pcm, CLIP_RATE)
    await utterance.time_of(round(clip.end * RATE / CLIP_RATE))
    await client.wait_for("response.done", after=mark, within=90)


async def measure(process: ServerProcess, sessions: int, turns: int) -> dict[str, object]:
    figures: dict[str, object] = {"rss_models_mb": process.rss / MB}
    async with RealtimeClient(process.realtime_url, SESSION) as client:
        client.open_microphone()
        for index in range(turns):
            progress(f"turn {index + 1}/{turns}")
            await client.pause(0.6)
            await turn(client, index)
        health = await asyncio.to_thread(process.health)
        figures["rss_after_turns_mb"] = process.rss / MB
        figures["loop_lag_ms_p50"] = health.get("loop_lag_ms_p50")
        figures["loop_lag_ms_p99"] = health.get("loop_lag_ms_p99")
    before = process.rss
    clients: list[RealtimeClient] = []
    try:
        for index in range(sessions):
            progress(f"session {index + 1}/{sessions}")
            client = RealtimeClient(process.realtime_url, SESSION)
            await client.__aenter__()
            clients.append(client)
            client.open_microphone()
            await client.pause(0.1)
        await clients[-1].pause(5.0)
        figures["sessions"] = sessions
        figures["rss_per_session_mb"] = (process.rss - before) / MB / sessions
        health = await asyncio.to_thread(process.health)
        figures["loop_lag_ms_p99_with_sessions"] = health.get("loop_lag_ms_p99")
        figures["late_client_frames"] = sum(client.late_frames for client in clients)
    finally:
        await asyncio.gather(*(client.__aexit__(None, None, None) for client in clients))
    return figures


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--sessions", type=int, default=10, metavar="N", help="further sessions to open (default: 10)")
    parser.add_argument("--turns", type=int, default=4, metavar="N", help="spoken questions before (default: 4)")
    options = parser.parse_args()
    if options.url:
        parser.error("only a server of its own can be weighed; use --spawn")
    with server(options, "embedded", None, ["--max-sessions", str(options.sessions + 1)]) as target:
        assert target.process is not None
        figures = asyncio.run(measure(target.process, options.sessions, options.turns))
    print(table([[name, value] for name, value in figures.items()], ("", "")))
    write({"bench": "server_cost", **figures}, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
