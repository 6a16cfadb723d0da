"""The invariants of a session under every interleaving that a state machine finds.

`TALKOVER_PROPERTY_STEPS` (default 75,000) rules are executed; `TALKOVER_PROPERTY_SEED` (default 0) chooses which, so
that a run can be repeated and another one explores something else. `TALKOVER_PROPERTY_REPORT` names a file that the
visit report is added to.
"""

from __future__ import annotations

import os
import time

from sessions.core import counters

from .conftest import Publish
from .machine import explore

STEPS = int(os.environ.get("TALKOVER_PROPERTY_STEPS", "75000"))
SEED = int(os.environ.get("TALKOVER_PROPERTY_SEED", "0"))

ENOUGH = 75_000
"""Steps from which a run must have seen nearly everything."""
SHARE = {True: 0.9, False: 0.6}
"""Share of the phase x event pairs that must have been visited, by whether the run was long enough.

Measured: 168 of 180 (seed 0) and 166 (seed 2) at 75,000 steps. A frame of an engine that owns its turns cannot come
in a hold, and no engine here says anything beforehand or forgets.
"""
RARE = {
    counters.INTERRUPTIONS,
    counters.WITHDRAWN,
    counters.HOLDS,
    counters.RESUMES,
    counters.RETRACTED,
    counters.EMPTY_TURNS,
    counters.STALE_AUDIO,
    counters.STALE_EVENT,
    counters.LATE_AUDIO,
    counters.LATE_ANSWER,
    counters.BAD_REPORT,
    counters.REJECTED,
    counters.UNANSWERED_TOOLS,
    counters.AFTER_CLOSE,
}
"""What every run of some length must have met; a machine that never interrupts proves nothing."""
ENDS = {"completed", "cancelled", "incomplete", "failed", "timed_out"}
"""How responses outside the conversation must have ended; and that a silence was taken as a turn."""


def test_the_invariants_hold_under_every_interleaving(publish: Publish) -> None:
    began = time.process_time()
    tally = explore(STEPS, SEED)
    seconds = time.process_time() - began
    counted = ", ".join(f"{name} {number:,}" for name, number in sorted(tally.counted.items()))
    counted += "; outside the conversation, idle: "
    counted += ", ".join(f"{name} {number:,}" for name, number in sorted(tally.told.items()) if number)
    publish(
        f"seed {SEED}: {tally.steps:,} steps in {tally.examples:,} examples, {seconds:.0f} s of CPU "
        f"({tally.steps / max(seconds, 0.001):,.0f} steps/s)\ncounters: {counted}\n{tally.visits.report()}"
    )
    assert tally.steps >= STEPS
    assert tally.counted[counters.LEDGER_FAULT] == 0
    if STEPS >= 50_000:
        assert set(tally.counted) >= RARE
        assert {name for name, number in tally.told.items() if number} >= ENDS
        assert tally.visits.phase_share >= SHARE[STEPS >= ENOUGH]
