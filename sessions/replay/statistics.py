"""Figures over a folder of recorded sessions, and which of them another policy would change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..core.timeline import TICK_RATE, TICKS_PER_MS, Ticks
from ..recording.format import JournalError
from ..recording.retention import entries
from .account import SPOKEN_OVER, Account, account
from .alterations import Alterations
from .reader import Recording
from .what_if import WhatIf, what_if


@dataclass(slots=True)
class Figures:
    """Sums over sessions. Durations in ticks."""

    sessions: int = 0
    unreadable: int = 0
    length: Ticks = 0
    answers: int = 0
    interruptions: int = 0
    false: int = 0
    """Interruptions by voice that no words were found in."""
    withdrawn: int = 0
    overlaps: int = 0
    backchannels: int = 0
    """Sounds over the agent in which words were understood, and that did not interrupt."""
    talk_over: Ticks = 0
    """From the onset of an interruption to the end of the agent's voice: both were heard."""
    reaction: list[Ticks] = field(default_factory=list)
    latencies: list[Ticks] = field(default_factory=list)
    stages: dict[str, list[Ticks]] = field(default_factory=dict)

    def add(self, told: Account) -> None:
        """Count one session."""
        self.sessions += 1
        self.length += told.length
        self.answers += len(told.answers)
        for cut in told.interruptions:
            if cut.cause == "withdrawn":
                self.withdrawn += 1
            elif cut.cause in SPOKEN_OVER:
                self.interruptions += 1
                self.false += cut.said == ""
                if cut.onset is not None:
                    self.talk_over += max(0, cut.decided - cut.onset)
                    self.reaction.append(cut.decided - cut.onset)
        self.overlaps += len(told.overlaps)
        self.backchannels += sum(bool(overlap.words) for overlap in told.overlaps)
        for answer in told.answers:
            if answer.latency is not None:
                self.latencies.append(answer.latency)
                for stage, length in answer.parts().items():
                    self.stages.setdefault(stage, []).append(length)

    def plain(self) -> dict[str, object]:
        """For JSON: counts, seconds, and medians and 95th percentiles in ms."""
        return {
            "sessions": self.sessions,
            "unreadable": self.unreadable,
            "seconds": round(self.length / TICK_RATE, 3),
            "answers": self.answers,
            "interruptions": self.interruptions,
            "false_interruptions": self.false,
            "withdrawn": self.withdrawn,
            "sounds_over_the_agent": self.overlaps,
            "backchannels": self.backchannels,
            "talk_over_seconds": round(self.talk_over / TICK_RATE, 3),
            "reaction_ms": _spread(self.reaction),
            "latency_ms": _spread(self.latencies),
            "stages_ms": {stage: _spread(lengths) for stage, lengths in self.stages.items()},
        }

    def __str__(self) -> str:
        lines = [
            f"{self.sessions} sessions, {self.length / TICK_RATE:.1f} s"
            + (f"; {self.unreadable} could not be read" if self.unreadable else ""),
            f"answers {self.answers}, withdrawn before anything was heard {self.withdrawn}",
            f"interruptions {self.interruptions}, of which {self.false} without words; "
            f"both spoke for {self.talk_over / TICK_RATE:.1f} s",
            f"sounds over the agent that were none {self.overlaps}, of which {self.backchannels} with words",
            f"{'':<22}{'median':>8}{'95 %':>8}   ms",
        ]
        rows = [("onset to silence", self.reaction), ("end of speech to ear", self.latencies), *self.stages.items()]
        for name, lengths in rows:
            if lengths:
                median, most = (percentile(lengths, share) // TICKS_PER_MS for share in (0.5, 0.95))
                lines.append(f"{name:<22}{median:>8}{most:>8}")
        return "\n".join(lines)


def percentile(values: Sequence[Ticks], share: float) -> Ticks:
    """The smallest of `values` that `share` of them do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-len(ordered) * round(share * 1000) // 1000) - 1))]


def _spread(values: Sequence[Ticks]) -> dict[str, float] | None:
    if not values:
        return None
    return {
        "count": len(values),
        "median": percentile(values, 0.5) / TICKS_PER_MS,
        "p95": percentile(values, 0.95) / TICKS_PER_MS,
    }


def figures(root: Path) -> Figures:
    """Figures of all sessions below `root`. Raises OSError."""
    total = Figures()
    for entry in entries(root):
        try:
            recording = Recording(entry.folder)
            told = account(recording.manifest.config, recording.steps([]))
        except JournalError:
            total.unreadable += 1
        else:
            total.add(told)
    return total


@dataclass(frozen=True, slots=True)
class Compared:
    """One session under another policy. `fault`: why it could not be run."""

    session: str
    result: WhatIf | None
    fault: str = ""


def compare_all(root: Path, alterations: Alterations) -> Iterator[Compared]:
    """Run every session below `root` with `alterations`. Raises OSError."""
    for entry in entries(root):
        try:
            yield Compared(entry.session, what_if(entry.folder, alterations))
        except JournalError as error:
            yield Compared(entry.session, None, str(error))
