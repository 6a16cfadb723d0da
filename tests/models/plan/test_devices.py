"""`models.plan.devices`: every device with its source, and the one that is here."""

from __future__ import annotations

import pytest

from models.plan.devices import CPU, device, names
from models.plan.figures import Origin, PlanError


@pytest.mark.parametrize("name", [name for name in names() if name != CPU])
def test_a_device_states_its_figures_and_who_states_them(name: str) -> None:
    found = device(name)
    figures = (found.memory, found.bandwidth, *found.flops.values(), *found.links.values())
    assert all(figure.origin is Origin.DECLARED and figure.source for figure in figures)
    assert found.memory.value >= 16e9
    assert found.bandwidth.value > found.links["host"].value > found.links["network"].value
    assert found.flops["bfloat16"].value > found.flops["float32"].value


def test_this_machine_is_measured() -> None:
    here = device(CPU)
    assert here.memory.origin is here.bandwidth.origin is here.flops["float32"].origin is Origin.MEASURED
    assert here.memory.value > 1e9
    assert here.bandwidth.value > 1e8


def test_a_device_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(PlanError, match=r"h200.*cpu"):
        device("h9000")
