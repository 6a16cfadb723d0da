"""Which event met which state of the session: what a run has explored, and what it never saw."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple, get_args

from sessions.core.events import Event
from sessions.core.session import Session
from sessions.core.state import State
from sessions.core.timeline import Ticks

from .driver import Step

EVENTS: tuple[str, ...] = tuple(kind.__name__ for kind in get_args(Event))
PHASES = ("idle", "onset", "over", "speech", "closing")


class Situation(NamedTuple):
    """What of a session's state decides how it takes an event."""

    phase: str
    held: bool
    active: str
    sounding: bool
    attached: bool
    blocked: bool

    def __str__(self) -> str:
        flags = [name for name in ("held", "sounding", "blocked") if getattr(self, name)]
        flags += [] if self.attached else ["detached"]
        return f"{self.phase}/{self.active}" + "".join(f"+{flag}" for flag in flags)


def situation(state: State) -> Situation:
    active = state.active
    if state.closed:
        return Situation("closed", False, "none", False, state.attached, False)
    if active is None:
        lane = "none"
    elif not active.announced:
        lane = "provisional"
    else:
        lane = "done" if active.done else "announced"
    return Situation(state.policy.phase, state.held, lane, bool(state.sounding), state.attached, state.blocked)


@dataclass
class Visits:
    """Observer that counts (situation, event) pairs."""

    counts: Counter[tuple[Situation, str]] = field(default_factory=Counter)

    def before(self, session: Session, event: Event, now: Ticks) -> None:
        self.counts[situation(session.state), type(event).__name__] += 1

    def after(self, session: Session, step: Step) -> None:
        """Only the state ahead of an event counts."""

    @property
    def phase_pairs(self) -> set[tuple[str, str]]:
        """Visited pairs of phase and event, closed sessions left out."""
        return {(place.phase, event) for place, event in self.counts if place.phase != "closed"}

    @property
    def phase_share(self) -> float:
        """Share of all phase x event pairs that were visited."""
        return len(self.phase_pairs) / (len(PHASES) * len(EVENTS))

    def never(self) -> dict[Situation, list[str]]:
        """For each situation that was reached: the events that it never met.

        Situations that no event can lead to do not appear, because nothing reached them. Engine events of the other
        kind of engine are not missed where only one kind can be.
        """
        places = sorted({place for place, _ in self.counts})
        return {place: [event for event in EVENTS if (place, event) not in self.counts] for place in places}

    def report(self) -> str:
        """The figures, and every pair that was reached or missed, for people."""
        never = self.never()
        reached = len(never) * len(EVENTS)
        missed = sum(map(len, never.values()))
        lines = [
            f"events handled            {sum(self.counts.values()):>10,}",
            f"situations reached        {len(never):>10,}",
            f"situation x event pairs   {reached - missed:>10,} of {reached:,} visited",
            f"phase x event pairs       {len(self.phase_pairs):>10,} of {len(PHASES) * len(EVENTS):,} visited",
            "",
            "phase x event, counts:",
        ]
        table: Counter[tuple[str, str]] = Counter()
        for (place, event), number in self.counts.items():
            table[place.phase, event] += number
        columns = (*PHASES, "closed")
        lines.append(f"{'':24}" + "".join(f"{phase:>10}" for phase in columns))
        for event in EVENTS:
            lines.append(f"{event:24}" + "".join(f"{table[phase, event]:>10,}" for phase in columns))
        lines += ["", "never visited, by situation reached (phase/active response + flags):"]
        for place, events in never.items():
            seen = sum(number for (where, _), number in self.counts.items() if where == place)
            lines.append(f"  {place!s:44} {seen:>9,} events; missed: {', '.join(events) if events else 'none'}")
        return "\n".join(lines)
