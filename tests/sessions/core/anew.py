"""Hypothesis without its variations: every example is drawn anew.

By itself Hypothesis makes four of five examples from an earlier one, of which it repeats parts, and spends a fifth of
the time on finding those. That serves to find values that must be equal. What a session does with an event depends on
all that came before it, so that here such examples see little that is new: after the same 8,000 steps 69 % of the pairs
of phase and event were visited with them and 84 % without, and the slowest planted faults were caught after 20,000
steps and after 9,300. How values are drawn, and how a failure is made small, stay Hypothesis's own.
"""

from __future__ import annotations

from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider

ANEW = "anew"
"""What `settings(backend=…)` takes."""


class Anew(HypothesisProvider):
    """The provider by another name: only of its own does Hypothesis make variations."""


AVAILABLE_PROVIDERS[ANEW] = f"{__name__}.{Anew.__name__}"
