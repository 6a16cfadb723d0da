"""Steps of sessions that a state machine drove: every kind of event and effect, in odd orders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from sessions.core.config import SessionConfig
from sessions.core.events import Event, OwnershipTaken
from sessions.core.records import Plain
from sessions.core.session import Session
from sessions.core.state import Abilities
from sessions.journal import Recorder
from tests.sessions.core.driver import Step
from tests.sessions.core.machine import Tally, explore
from tests.sessions.core.visits import Visits


@dataclass
class Part:
    """What one owner of a session handled, which is what it records.

    `state`: how it found the session, if another had begun it; `behind`: without the last that the other handled.
    """

    incarnation: int
    config: SessionConfig
    state: Mapping[str, Plain] | None = None
    behind: bool = False
    steps: list[Step] = field(default_factory=list)


@dataclass
class Driven:
    """One session, with a part for each of its owners."""

    name: str
    abilities: Abilities
    parts: list[Part]


@dataclass
class Watching(Visits):
    """Keeps every session that the machine drives. It takes the place of the tally's own observer."""

    driven: list[Driven] = field(default_factory=list)
    _session: Session | None = None
    _last: Session | None = None
    """The session as it last handled something."""

    def before(self, session: Session, event: Event, now: int) -> None:
        state = session.state
        if isinstance(event, OwnershipTaken) and event.incarnation > state.incarnation:
            found = cast(Mapping[str, Plain], session.snapshot())
            behind = self._last is not None and self._last.snapshot() != found
            self.driven[-1].parts.append(Part(event.incarnation, state.config, found, behind))
            return
        # One that was restored from a snapshot in the middle goes on as the one that it was.
        fresh = session is not self._session and not state.opened and not state.closed and state.serial == 0
        if fresh and state.now == 0 and state.incarnation == 1:
            self._session = session
            self.driven.append(Driven(state.session, state.abilities, [Part(1, state.config)]))

    def after(self, session: Session, step: Step) -> None:
        self._last = session
        self.driven[-1].parts[-1].steps.append(step)


def drive(sessions: int, seed: int = 0) -> list[Driven]:
    """So many sessions as the property tests have them; the same seed gives the same."""
    watching = Watching()
    tally = Tally(visits=watching)
    round_ = 0
    while len(watching.driven) < sessions:
        tally.steps = 0
        explore(80 * (sessions - len(watching.driven)), seed * 1000 + round_, shrink=False, tally=tally)
        round_ += 1
    return watching.driven[:sessions]


def write(root: Path, driven: Driven) -> None:
    """Record the parts of a driven session below `root`, without audio: the machine has none."""
    recorder = Recorder(root)
    for part in driven.parts:
        journal = recorder.open(driven.name, part.incarnation, part.config, driven.abilities, 24_000, state=part.state)
        for step in part.steps:
            journal.event(step.event, step.now, None, 0)
            journal.effects(step.effects)
        journal.close("end")
    recorder.close()
    assert recorder.faults == 0
