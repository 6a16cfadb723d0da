"""`models.plan.measure`: what is computed beside what tensors really hold here."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from models.plan import measure
from models.plan.families import planned
from models.plan.figures import PlanError
from models.plan.measure import Made, Stage, allocated

AGREEMENT = 0.1
"""How far what is computed may be from what is measured."""


def test_memory_is_that_of_the_tensors_that_were_made_and_are_kept() -> None:
    def make() -> list[torch.Tensor]:
        temporary = torch.zeros(1000)
        whole = torch.zeros(100, dtype=torch.float64)
        return [whole, whole[10:], whole.view(10, 10), (temporary[:50] + 1).to(torch.int8)]

    kept, size = allocated(make)
    assert len(kept) == 4
    assert size == 800 + 50


def test_weights_and_state_are_told_apart_by_making_it_twice() -> None:
    def make(sessions: int) -> Made:
        return Made((torch.zeros(1000), torch.zeros(sessions + 2, 50)), {})

    taken = measure.measure(make, lambda what: None, sessions=(1, 3), spare=2)
    assert (taken.weights.value, taken.session.value, taken.steps) == (4000, 200, {})


def test_one_number_of_sessions_tells_nothing_apart() -> None:
    with pytest.raises(PlanError):
        measure.measure(lambda sessions: Made(None, {}), lambda what: None, sessions=(2,))


@pytest.mark.parametrize(("family", "make"), [("moshi", measure.moshi), ("qwen3-omni", measure.qwen3_omni)])
def test_the_tiny_models_hold_what_the_planner_says_within_ten_percent(
    family: str, make: Callable[[int], Made]
) -> None:
    geometry = planned(family, tiny=True).geometry
    told: list[str] = []
    taken = measure.measure(make, told.append, sessions=(1, 4), spare=geometry.spare_sessions)
    assert geometry.weights == pytest.approx(taken.weights.value, rel=AGREEMENT)
    assert geometry.session == pytest.approx(taken.session.value, rel=AGREEMENT)
    for sessions, size in taken.total.items():
        computed = geometry.weights + (sessions + geometry.spare_sessions) * geometry.session
        assert computed == pytest.approx(size, rel=AGREEMENT)
    assert len(told) >= 3
    assert all(seconds > 0 for seconds in taken.steps.values())
    assert set(taken.steps) == {1, 4}
    assert set(taken.stages) == (set() if family == "moshi" else set(geometry.stages))


def test_a_step_is_the_sum_of_its_stages_each_by_tick() -> None:
    calls: list[str] = []

    def make(sessions: int) -> Made:
        return Made(
            torch.zeros(sessions), {"a": Stage(lambda: calls.append("a")), "b": Stage(lambda: calls.append("b"), 20)}
        )

    taken = measure.measure(make, lambda what: None, sessions=(1, 2))
    assert set(taken.stages) == {"a", "b"}
    assert calls.count("a") == calls.count("b")
    for count in (1, 2):
        assert taken.steps[count] == taken.stages["a"][count] + taken.stages["b"][count]
