"""What a load does: which replies the server has, how it listens, and who calls it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from loadtest.lines import CallLine, Line, RealtimeLine, TwilioLine
from loadtest.measure import Used, talking
from loadtest.observed import Seen, observe, script
from loadtest.person import Habits, Kind, Person
from loadtest.served import FakeEarsProcess
from loadtest.server_cpu import confine, cpu
from loadtest.talkers import Comer, SlowReader, Talker
from loadtest.voice import Utterance, Voice
from server.carriers.webrtc.pacer import Pacer
from tests.bench.report import progress
from tests.caller import Json
from tests.servers import ServerProcess

CARRIERS = ("ws", "webrtc", "twilio")
SILENCE_MS = 200
"""Silence that ends a turn, as short as other voice servers have it."""
SLOW_EVERY = 4
"""One caller in so many reads slowly."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """`reply_s`: how long each answer is. `detection`: the server's turn detection."""

    about: str
    habits: Habits
    reply_s: float
    detection: str = "server_vad"
    kinds: tuple[Kind, ...] = ("question",)


SCENARIOS: dict[str, Scenario] = {
    "talk": Scenario("questions, each answer heard to its end", Habits(), 3.0),
    "bargein": Scenario(
        "every answer is interrupted by a command", Habits("command"), 60.0, kinds=("question", "command")
    ),
    "backchannel": Scenario(
        "mm-hmm over answers, which must go on (with the models: it takes words to know)",
        Habits("backchannel", after=2.0),
        30.0,
        "semantic_vad",
        ("question", "backchannel"),
    ),
    "churn": Scenario("everybody asks one thing, hangs up, and somebody else calls", Habits(), 3.0),
    "slow-reader": Scenario("as talk, but every fourth stops reading for seconds", Habits(), 3.0),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a load was like. `client_share`: of the core that the load itself had; near 1 its figures are its own."""

    carrier: str
    scenario: str
    sessions: int
    seen: Seen
    slow: Seen | None
    used: Used
    connect_s: list[float]
    connections: int
    broken: list[str]
    late_sends: int
    client_share: float
    health: Json

    def figures(self) -> dict[str, object]:
        """As plain data, times in milliseconds."""
        seen, used = self.seen, self.used
        found: dict[str, object] = {
            "carrier": self.carrier,
            "scenario": self.scenario,
            "sessions": self.sessions,
            "seconds": round(used.seconds, 1),
            "cpu_ms_per_s_per_session": round(used.per_session(self.sessions), 2),
            "of_it_in_other_threads": round(used.cpu.others / used.seconds / self.sessions * 1000, 2),
            "core_share": round(used.cpu.total / used.seconds, 3),
            "first_audio": spread(seen.first_audio),
            "barge_in_stop": spread(seen.stop),
            "barge_in_clear": spread(seen.clear),
            "backchannel_pause": spread(seen.hold),
            "connect": spread(self.connect_s),
            "stale_pieces": seen.stale,
            "interruptions_missed": seen.missed,
            "backchannels": seen.backchannels,
            "replies_lost_to_backchannels": seen.lost,
            "unanswered": seen.unanswered,
            "longest_gap_ms": round(max(seen.gaps, default=0.0) * 1000, 1),
            "gaps_over_200_ms": sum(gap > 0.2 for gap in seen.gaps),
            "connections": self.connections,
            "failures": len(seen.failures) + len(self.broken),
            "failed": [*self.broken, *seen.failures][:3],
            "late_sends": self.late_sends,
            "client_core_share": round(self.client_share, 3),
            "loop_lag_ms_p99": self.health.get("loop_lag_ms_p99_10s"),
            "resident_mb": self.health.get("resident_mb"),
        }
        if self.slow is not None:
            found["slow_readers_ended"] = len(self.slow.failures)
        return found


def spread(values: Sequence[float]) -> dict[str, float | int] | None:
    """Count and percentiles of `values`, which are seconds, in milliseconds; None of none."""
    if not values:
        return None
    ordered = sorted(values)

    def at(share: float) -> float:
        return round(ordered[max(0, -int(-share * len(ordered) // 1) - 1)] * 1000, 1)

    return {"n": len(ordered), "p50": at(0.5), "p95": at(0.95), "p99": at(0.99), "max": round(ordered[-1] * 1000, 1)}


def session_object(scenario: Scenario, silence_ms: int) -> Json:
    """The session that a load asks for."""
    turns: Json = {"type": scenario.detection}
    if scenario.detection == "server_vad":
        turns["silence_duration_ms"] = silence_ms
    return {"type": "realtime", "audio": {"input": {"turn_detection": turns}}}


@contextlib.contextmanager
def server_for(
    scenario: Scenario,
    sessions: int,
    silence_ms: int = SILENCE_MS,
    arguments: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> Iterator[ServerProcess]:
    """A server with scripted replies that takes so many, confined to the first core.

    It hears real words only where a scenario needs them.
    """
    kind = FakeEarsProcess if scenario.detection == "server_vad" else ServerProcess
    with tempfile.TemporaryDirectory(prefix="talkover-load-") as scratch:
        phone = Path(scratch) / "session.json"
        phone.write_text(json.dumps(session_object(scenario, silence_ms)))
        given = ["--phone-session", str(phone), "--max-sessions", str(sessions + 8), "--log-level", "warning"]
        with kind("scripted", script(scenario.reply_s), env, [*given, *arguments]) as server:
            confine(server.pid)
            yield server


def lines_to(server: ServerProcess, carrier: str, session: Json) -> Callable[[], Line]:
    """Makes new lines to `server`."""
    numbers = itertools.count()
    base = f"127.0.0.1:{server.port}"
    if carrier == "ws":
        return lambda: RealtimeLine(server.realtime_url, session)
    if carrier == "twilio":
        return lambda: TwilioLine(f"ws://{base}/telephony/twilio", next(numbers))
    return lambda: CallLine(f"http://{base}", session)


class Crowd:
    """Everybody who calls, with what they can say, encoded once."""

    def __init__(self, scenario: str, carrier: str) -> None:
        self.name, self.carrier = scenario, carrier
        self.scenario = SCENARIOS[scenario]
        self.voice = Voice("opus" if carrier == "webrtc" else "ulaw")
        sets = {"question": "questions", "command": "commands", "backchannel": "backchannels"}
        self._clips: dict[Kind, Sequence[Utterance]] = {
            kind: self.voice.utterances(sets[kind], longest=2.0 if kind == "command" else 4.0)  # type: ignore[arg-type]
            for kind in self.scenario.kinds
        }

    def clips(self, kind: Kind) -> Sequence[Utterance]:
        """What they can say of that kind."""
        return self._clips[kind]

    def of(self, lines: Callable[[], Line], count: int) -> list[Talker]:
        """`count` talkers. To be called in the running loop."""
        pacer, seeds = Pacer(), itertools.count()

        def person() -> Person:
            return Person(self.scenario.habits, self.voice, self._clips, next(seeds))

        kinds = {"churn": Comer}
        return [
            (SlowReader if self.name == "slow-reader" and one % SLOW_EVERY == 0 else kinds.get(self.name, Talker))(
                lines, person, pacer, one
            )
            for one in range(count)
        ]


async def load(
    crowd: Crowd, lines: Callable[[], Line], sessions: int, seconds: float, pid: int, health: str | None = None
) -> Outcome:
    """Load the server `pid` and see what becomes of it. `health`: where it tells of itself.

    The first SIGINT ends the load early, with what was seen until then.
    """
    talkers = crowd.of(lines, sessions)
    loop = asyncio.get_running_loop()
    progress(f"{crowd.carrier}, {crowd.name}: {sessions} sessions connect")
    async with talking(talkers) as broken:
        own = time.process_time()
        for talker in talkers:
            talker.tally.late_sends = 0
        used = await _watched(talkers, pid, seconds, crowd)
        share = (time.process_time() - own) / used.seconds
        told = await _health(health)
        ended = loop.time()
    slow = [talker for talker in talkers if isinstance(talker, SlowReader)]
    even = [talker for talker in talkers if not isinstance(talker, SlowReader)]

    def seen(some: Sequence[Talker]) -> Seen:
        return observe((memory for talker in some for memory in talker.memories), crowd.voice.coding, ended)

    return Outcome(
        crowd.carrier,
        crowd.name,
        sessions,
        seen(even),
        seen(slow) if slow else None,
        used,
        [took for talker in talkers for took in talker.connect_s],
        sum(len(talker.connect_s) for talker in talkers),
        [f"{type(one).__name__}: {one}" for one in broken],
        sum(talker.tally.late_sends for talker in talkers),
        share,
        told,
    )


async def _watched(talkers: Sequence[Talker], pid: int, seconds: float, crowd: Crowd) -> Used:
    """What the server uses in `seconds`, or until SIGINT; tells how far it is."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGINT, stop.set)
    began, frames, before = loop.time(), sum(one.tally.frames for one in talkers), cpu(pid)
    try:
        while not stop.is_set() and (left := seconds - (loop.time() - began)) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, 5.0)):
                    await stop.wait()
            said = sum(len(memory.said) for talker in talkers for memory in talker.memories)
            passed = loop.time() - began
            progress(f"{crowd.carrier}, {crowd.name}: {passed:3.0f} of {seconds:.0f} s, {said} utterances said")
    finally:
        loop.remove_signal_handler(signal.SIGINT)
    return Used(loop.time() - began, cpu(pid) - before, sum(one.tally.frames for one in talkers) - frames)


async def _health(url: str | None) -> Json:
    if url is None:
        return {}
    async with httpx.AsyncClient(trust_env=False) as client:
        return dict((await client.get(url)).json())


def run(carrier: str, scenario: str, sessions: int, seconds: float, silence_ms: int = SILENCE_MS) -> Outcome:
    """Start a server, load it, and stop it."""
    crowd = Crowd(scenario, carrier)
    with server_for(crowd.scenario, sessions, silence_ms) as server:
        return against(server, crowd, sessions, seconds, silence_ms)


def against(
    server: ServerProcess, crowd: Crowd, sessions: int, seconds: float, silence_ms: int = SILENCE_MS
) -> Outcome:
    """Load a server that runs."""
    session = session_object(crowd.scenario, silence_ms)

    async def main() -> Outcome:
        lines = lines_to(server, crowd.carrier, session)
        return await load(crowd, lines, sessions, seconds, server.pid, f"http://127.0.0.1:{server.port}/healthz")

    return asyncio.run(main())


__all__ = ["CARRIERS", "SCENARIOS", "Crowd", "Outcome", "against", "load", "run", "server_for", "spread"]
