"""A simulated session has the effects that it would have had with every frame and every window in its own time."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest

from loadtest.simulate import simulate
from loadtest.simulation.call import FRAME, UNTIMED, Behaviour, Call
from loadtest.simulation.cluster import Cluster
from loadtest.simulation.coalesce import PUMP, Coalescer, Done, single
from loadtest.simulation.speech import WINDOW, Speech, Trace, plain
from loadtest.simulation.times import ServiceTimes
from sessions.core.effects import AdmitFrame, Effect, ForgetInput, SetTimer
from sessions.core.events import AudioArrived, Event
from sessions.core.session import Session
from sessions.core.timeline import Ticks

TIMES = replace(ServiceTimes(), queue=0.0, echo=0.0, listening_per_s=0.1, speaking_per_s=0.1)
"""Of nodes that are never full: how long a window takes must not depend on when it is planned."""


class Watched(Call):
    """Remembers what its core wanted done."""

    __slots__ = ()
    effects: ClassVar[dict[int, list[Effect]]]

    def _carry_out(self, done: Done) -> None:
        self.effects.setdefault(self.number, []).extend(single(done))
        super()._carry_out(done)


class Plain(Coalescer):
    """Hands over everything as it comes."""

    __slots__ = ()

    def handle(self, event: Event, now: Ticks) -> Done:
        self.handled += 1
        return list(self.session.handle(event, now))

    def catch_up(self, now: Ticks) -> Done:
        return []

    def paced_until(self) -> None:
        return None


class FrameByFrame(Watched):
    """50 frames and 31 windows a second, and every timer that the core asks for."""

    __slots__ = ()

    def _takes(self, session: Session) -> None:
        super()._takes(session)
        self._core = Plain(session)

    def begin(self) -> None:
        super().begin()
        clock = self._cluster.clock
        clock.at(self.now // FRAME * FRAME + FRAME, self._captured)
        clock.at(self.now, self._hear_from, self._heard)

    def _captured(self) -> None:
        if self._attached and self._fed < self.now:
            start, self._fed = self._fed, self.now
            self._give(AudioArrived(start, self.now))
        self._cluster.clock.at(self.now + FRAME, self._captured)

    def _hear_from(self, start: Ticks) -> None:
        """The window from `start`, once it has been heard, and so on."""
        end = start + WINDOW
        clock = self._cluster.clock
        clock.at(-(-end // FRAME) * FRAME + self.node.hearing(self._chance), self._listened, end)
        clock.at(end, self._hear_from, end)

    def _listened(self, end: Ticks) -> None:
        if not self._attached or end <= self._heard:
            return
        self._run(end)
        trace, phase = self._trace, self._state.policy.phase
        if trace is not None and phase == "idle" and self._heard >= self._begin + len(trace.windows) * WINDOW:
            self._spoken()

    def _hear_at(self, end: Ticks) -> None:
        """Nothing needs to be planned."""

    def _feed(self, end: Ticks) -> None:
        """It comes by itself."""

    def _give(self, event: Event) -> None:
        # Of what is due at one time frames leave first.
        if self._timers.get("pump") == self.now:
            del self._timers["pump"]
            super()._give(PUMP)
        super()._give(event)

    def _carry_out(self, done: Done) -> None:
        for effect in done:
            if isinstance(effect, SetTimer) and effect.name in UNTIMED:
                self._timers[effect.name] = effect.due
                self._cluster.clock.at(effect.due, self._due, effect.name, effect.due, self._serial)
        super()._carry_out(done)


def hesitating(*stretches: tuple[int, float], level: float = -30.0, hiss: float = -70.0) -> Speech:
    """Said in pieces: so many windows of such a probability each. All alignments alike."""
    trace = Trace.of([(chance, level, hiss) for count, chance in stretches for _ in range(count)])
    return Speech(0, len(trace.windows) * WINDOW, (trace,) * 8)


HESITATING = (
    hesitating((30, 0.9), (2, 0.1), (5, 0.8), (3, 0.4), (1, 0.2), (9, 0.9)),
    hesitating((2, 0.2), (20, 0.7), (9, 0.1), (25, 0.9)),  # long enough a gap to be answered into
    hesitating((1, 0.9), (1, 0.1), (40, 0.6)),
    hesitating((3, 0.2), (18, 0.9), level=-58.0, hiss=-50.0),  # an "s" that only its hiss tells from the room
)


def run(
    calls: type[Watched], behaviour: Behaviour, frame_ms: int, kill_at: float | None
) -> tuple[dict[str, object], dict[int, list[Effect]]]:
    calls.effects = {}
    cluster = Cluster.of(
        4, 3, 1, room=4, slots=8, behaviour=behaviour, times=TIMES, calls=calls, frame_ms=frame_ms, ramp_s=1.0, seed=5
    )
    figures = simulate(cluster, 40.0, kill_at=kill_at)
    assert figures["stale_frames"] == figures["unbalanced_ledgers"] == 0
    return figures, calls.effects


def compared(effects: list[Effect]) -> list[Effect]:
    """All but the timers that only wake the core to let out a frame or see that input comes, and what is forgotten."""
    return [
        effect
        for effect in effects
        if not (isinstance(effect, ForgetInput) or (isinstance(effect, SetTimer) and effect.name in ("pump", "stall")))
    ]


def forgotten(effects: list[Effect]) -> set[Ticks]:
    return {effect.before for effect in effects if isinstance(effect, ForgetInput)}


@pytest.mark.parametrize(
    "behaviour",
    [
        Behaviour(barge_in=0.5),
        Behaviour(barge_in=0.3, reply=13.0, questions=(plain(0.9), plain(3.1))),
        Behaviour(
            barge_in=0.5,
            room=(0.03, -62.0, -66.0),
            questions=HESITATING,
            commands=(*HESITATING, plain(0.1), plain(0.7)),
        ),
    ],
    ids=["talk", "long answers", "hesitating"],
)
@pytest.mark.parametrize("frame_ms", [20, 100])
@pytest.mark.parametrize("kill_at", [None, 17.003], ids=["kept", "killed"])
def test_coalesced_people_have_the_effects_of_their_frames(
    behaviour: Behaviour, frame_ms: int, kill_at: float | None
) -> None:
    expected, each = run(FrameByFrame, behaviour, frame_ms, kill_at)
    found, few = run(Watched, behaviour, frame_ms, kill_at)
    assert sorted(few) == sorted(each) == [0, 1, 2, 3]
    for number, effects in each.items():
        pairs = zip(compared(few[number]), compared(effects), strict=False)
        assert next((pair for pair in pairs if pair[0] != pair[1]), None) is None
        assert compared(few[number]) == compared(effects)
        assert forgotten(few[number]) == forgotten(effects)
    frames = sum(isinstance(effect, AdmitFrame) for effects in each.values() for effect in effects)
    assert frames == expected["frames"] == found["frames"] > 10_000 / frame_ms
    for name in ("turns", "replies", "interruptions", "first_audio", "barge_in_hold", "barge_in_commit", "core_share"):
        assert found[name] == expected[name], name
    assert int(str(found["core_events"])) * 10 < int(str(expected["core_events"]))
