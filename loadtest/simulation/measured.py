"""Real loads and the same simulated: service times are worked out from some, and the model is tried on others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from loadtest.measure import SETTLE
from loadtest.observed import DECIDED
from loadtest.scenarios import SCENARIOS, Crowd, spread
from loadtest.simulation.call import Behaviour
from loadtest.simulation.cluster import Cluster
from loadtest.simulation.places import queueing
from loadtest.simulation.speech import NOTHING, Speech, Window
from loadtest.simulation.times import ServiceTimes
from sessions.core.timeline import TICK_RATE

FRAME_MS = 20
"""`serve`'s own."""
SEEDS = 4
"""Crowds that are simulated for one that was measured."""
ROUNDS = 4
TALKING = ("talk", "bargein")
"""Scenarios that can be simulated."""
LINES = ("twilio", "ws")
"""Carriers whose loads can be: the people on both speak µ-law, and hear what arrives."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a load was like, real or simulated. Spreads are in milliseconds: p50 and p95."""

    scenario: str
    sessions: int
    seconds: float
    core_share: float
    answers: int
    """That were heard while it was watched."""
    interruptions: int
    first_audio: tuple[float, float]
    stop: tuple[float, float]
    commit: tuple[float, float]
    unanswered: int

    @classmethod
    def read(cls, path: Path) -> Load:
        """As `python -m loadtest --carrier twilio|ws --json` wrote it. Raises ValueError for one of another kind."""
        given = json.loads(path.read_text())
        if given.get("scenario") not in TALKING or given.get("carrier") not in LINES:
            raise ValueError(f"{path} must be of carrier {' or '.join(LINES)}, scenario {' or '.join(TALKING)}")
        return cls(
            given["scenario"],
            given["sessions"],
            given["seconds"],
            given["core_share"],
            _count(given["first_audio"]),
            _count(given["barge_in_clear"]),
            _halves(given["first_audio"]),
            _halves(given["barge_in_stop"]),
            _halves(given["barge_in_clear"]),
            given["unanswered"],
        )

    def figures(self) -> dict[str, float]:
        """By name; what does not happen in it is left out."""
        minutes = self.sessions * _watched(self.seconds) / 60
        found = {
            "answers per session and minute": self.answers / minutes,
            "interruptions per session and minute": self.interruptions / minutes,
            "first audio p50, ms": self.first_audio[0],
            "first audio p95, ms": self.first_audio[1],
            "stop p50, ms": self.stop[0],
            "stop p95, ms": self.stop[1],
            "commit p50, ms": self.commit[0],
            "commit p95, ms": self.commit[1],
            "share of the core": self.core_share,
        }
        return {name: value for name, value in found.items() if value}


def _count(given: dict[str, float] | None) -> int:
    return int(given["n"]) if given else 0


def _halves(given: dict[str, float] | dict[str, float | int] | None) -> tuple[float, float]:
    return (given["p50"], given["p95"]) if given else (0.0, 0.0)


def _watched(seconds: float) -> float:
    """How long what people say is looked at: from the first frame on, until it may not be decided any more."""
    return SETTLE + seconds - DECIDED


ANSWERED = 0.3
"""Seconds until what is said at the end of that has its answer."""


@dataclass(slots=True)
class Voices:
    """What the people of a scenario say, by kind; encoded and heard once."""

    _heard: dict[str, tuple[Speech, ...]] = field(default_factory=dict)
    _room: Window = NOTHING

    def behaviour(self, scenario: str) -> Behaviour:
        """How they behave. Raises ValueError for a scenario that cannot be simulated."""
        if scenario not in TALKING:
            raise ValueError(f"scenario must be one of {', '.join(TALKING)}, not {scenario!r}")
        habits, plan = SCENARIOS[scenario].habits, SCENARIOS[scenario]
        if not all(kind in self._heard for kind in plan.kinds):
            # Only who compares needs the models.
            from loadtest.simulation.recorded import heard

            crowd = Crowd(scenario, LINES[0])
            found, self._room = heard({kind: crowd.clips(kind) for kind in plan.kinds}, crowd.voice)
            self._heard.update(found)
        return Behaviour(
            questions=self._heard["question"],
            commands=self._heard.get("command", ()),
            room=self._room,
            reply=plan.reply_s,
            pause=habits.pause,
            barge_in=1.0 if habits.over is not None else 0.0,
            over_after=habits.after,
        )


def simulated(like: Load, times: ServiceTimes, voices: Voices, silence_ms: int) -> Load:
    """The same load on one simulated node, whose replies cost the engine nothing."""
    clusters = [
        Cluster.of(
            like.sessions,
            1,
            1,
            room=like.sessions,
            slots=like.sessions,
            parallel=like.sessions,
            times=times,
            behaviour=voices.behaviour(like.scenario),
            silence_ms=silence_ms,
            frame_ms=FRAME_MS,
            ramp_s=0.02,
            seed=seed,
        )
        for seed in range(SEEDS)
    ]
    busy = 0.0
    for cluster in clusters:
        cluster.open_all()
        cluster.clock.run(round(SETTLE * TICK_RATE))
        cluster.finish()
        before = cluster.nodes[0].busy
        until = _watched(like.seconds) + ANSWERED
        cluster.clock.run(round(until * TICK_RATE))
        cluster.finish()
        busy += (cluster.nodes[0].busy - before) / (until - SETTLE)
    seen = [cluster.figures for cluster in clusters]
    first = [value for one in seen for value in one.first_audio]
    commit = [value for one in seen for value in one.commit]
    return Load(
        like.scenario,
        like.sessions,
        like.seconds,
        busy / SEEDS,
        round(len(first) / SEEDS),
        round(len(commit) / SEEDS),
        _halves(spread(first)),
        _halves(spread([value for one in seen for value in one.stop])),
        _halves(spread(commit)),
        round(sum(one.unanswered for one in seen) / SEEDS),
    )


def calibrated(loads: Sequence[Load], voices: Voices, silence_ms: int) -> ServiceTimes:
    """Service times under which the simulation of `loads` is like them.

    Two of "talk", with few sessions and with many, give what media costs and how it waits; one of "bargein", if there
    is one, what an interruption costs. Raises ValueError where two of "talk" are not there.
    """
    talks = sorted((load for load in loads if load.scenario == "talk"), key=lambda load: load.sessions)
    if len(talks) < 2 or talks[0].sessions == talks[-1].sessions:
        raise ValueError("two loads of scenario talk are needed, with few sessions and with many")
    few, many = talks[0], talks[-1]
    interrupted = next((load for load in loads if load.scenario == "bargein"), None)
    times = ServiceTimes()
    for _ in range(ROUNDS):
        low, high = (simulated(load, times, voices, silence_ms) for load in (few, many))
        wrong = [real.core_share - made.core_share for real, made in ((few, low), (many, high))]
        # Media in and out cost alike: half of the time somebody is spoken to.
        media = (wrong[1] - wrong[0]) / (many.sessions - few.sessions) * 1000 / 1.5
        base = times.base_per_s + 1000 * wrong[0] - 1.5 * media * few.sessions
        later = (many.first_audio[0] - few.first_audio[0]) - (high.first_audio[0] - low.first_audio[0])
        apart = queueing(many.core_share) - queueing(few.core_share)
        times = replace(
            times,
            base_per_s=round(max(0.0, base), 2),
            listening_per_s=round(max(0.1, times.listening_per_s + media), 3),
            speaking_per_s=round(max(0.1, times.speaking_per_s + media), 3),
            queue=round(max(0.0, times.queue + later / apart), 2),
            hearing=round(max(0.0, times.hearing + few.first_audio[0] - low.first_audio[0]), 2),
        )
        if interrupted is not None:
            made = simulated(interrupted, times, voices, silence_ms)
            rate = made.interruptions / _watched(interrupted.seconds)
            more = (interrupted.core_share - made.core_share) / max(0.01, rate) * 1000
            late = (interrupted.stop[0] - made.stop[0] + interrupted.commit[0] - made.commit[0]) / 2
            echo = times.echo + late
            # An interruption that is heard sooner than answers say: part of their time is spent after the hearing.
            behind = min(max(0.0, -echo), times.hearing)
            times = replace(
                times,
                interruption=round(max(0.0, times.interruption + more), 2),
                echo=round(max(0.0, echo), 2),
                hearing=round(times.hearing - behind, 2),
                answer=round(times.answer + behind, 2),
            )
    return times


def compared(real: Load, made: Load) -> list[tuple[str, float, float]]:
    """Figure by figure: measured, simulated."""
    one, other = real.figures(), made.figures()
    return [(name, value, other.get(name, 0.0)) for name, value in one.items()]
