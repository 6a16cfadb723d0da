"""Steps of sessions that a state machine drove: every kind of event and effect, in odd orders."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from sessions.core.config import SessionConfig
from sessions.core.events import Event
from sessions.core.session import Session
from sessions.core.state import Abilities
from sessions.journal import Recorder
from tests.sessions.core.driver import Step
from tests.sessions.core.machine import Tally, explore
from tests.sessions.core.visits import Visits


@dataclass
class Driven:
    """One session and all its steps."""

    name: str
    incarnation: int
    config: SessionConfig
    abilities: Abilities
    steps: list[Step] = field(default_factory=list)


@dataclass
class Watching(Visits):
    """Keeps every session that the machine drives. It takes the place of the tally's own observer."""

    driven: list[Driven] = field(default_factory=list)
    _session: Session | None = None

    def before(self, session: Session, event: Event, now: int) -> None:
        state = session.state
        # One that was restored from a snapshot in the middle goes on as the one that it was.
        fresh = session is not self._session and not state.opened and not state.closed and state.serial == 0
        if fresh and state.now == 0:
            self._session = session
            self.driven.append(Driven(state.session, state.incarnation, state.config, state.abilities))

    def after(self, session: Session, step: Step) -> None:
        self.driven[-1].steps.append(step)


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


def write(root: Path, driven: Driven) -> Path:
    """Record a driven session below `root`; returns its folder. There is no audio: the machine has none."""
    recorder = Recorder(root)
    journal = recorder.open(driven.name, driven.incarnation, driven.config, driven.abilities, 24_000)
    for step in driven.steps:
        journal.event(step.event, step.now, None, 0)
        journal.effects(step.effects)
    journal.close("end")
    recorder.close()
    assert recorder.faults == 0
    return journal.folder
