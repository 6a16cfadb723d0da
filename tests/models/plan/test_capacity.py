"""`models.plan.capacity` and `models.plan.geometry`: arithmetic that can be checked by hand."""

from __future__ import annotations

from fractions import Fraction

import pytest

from models.plan.capacity import Assumptions, capacity, step_seconds
from models.plan.devices import Device
from models.plan.figures import Origin, PlanError, declared
from models.plan.geometry import Attention, Experts, Geometry, Part, kv_bytes


def geometry(weights: int = 1000, cells: int = 10, tick: Fraction | None = Fraction(1, 10), spare: int = 0) -> Geometry:
    """Keys and values of one session: 10 positions · 2 layers · 2 · 1 head · 5 · 2 B = 400 B."""
    attention = Attention("a", 2, 1, 5, cells, 2)
    return Geometry(
        model="m",
        dtype="bfloat16",
        parts=(Part("a", weights, 2, attention=(attention,)),),
        tick=tick,
        source="a test",
        context=cells,
        spare_sessions=spare,
    )


def device(memory: float, bandwidth: float = 1e4, flops: float = 1e12) -> Device:
    rates = {"bfloat16": declared(flops, "FLOP/s", "a test")}
    return Device(
        "d", "a device", declared(memory, "bytes", "a test"), declared(bandwidth, "bytes/s", "a test"), rates, {}
    )


def test_keys_and_values_are_batch_length_layers_two_heads_width_and_bytes() -> None:
    # The founding example: 32 layers, 8 key-value heads of 128, 2 bytes: 128 KiB for each position.
    assert kv_bytes(1, 1, 32, 8, 128, 2) == 128 << 10
    assert kv_bytes(3, 4096, 32, 8, 128, 2) == 3 * 4096 * (128 << 10)
    # Without grouped queries it would be four times as much.
    assert kv_bytes(1, 1, 32, 32, 128, 2) == 4 * kv_bytes(1, 1, 32, 8, 128, 2)


def test_sessions_by_memory_are_what_is_left_beside_weights_and_spare_state() -> None:
    can = capacity(geometry(), device(4000), Assumptions(usable=0.5))
    assert (can.budget.value, can.weights.value, can.session.value) == (2000, 1000, 400)
    assert can.by_memory.value == 2
    assert capacity(geometry(spare=1), device(4000), Assumptions(usable=0.5)).by_memory.value == 1


def test_a_step_takes_at_least_the_longer_of_reading_and_multiplying() -> None:
    # 1000 B of weights and 400 B of each session's state at 10,000 B/s.
    assert step_seconds(geometry(), device(4000), 2) == pytest.approx(0.18)
    # 500 weights take part, two operations each, for every session.
    assert step_seconds(geometry(), device(4000, bandwidth=1e12, flops=1e4), 2) == pytest.approx(0.2)


def test_the_tick_bounds_the_sessions_and_the_first_limit_is_named() -> None:
    fast, slow = device(1e6, bandwidth=1e8), device(1e6, bandwidth=20_000)
    assert capacity(geometry(), slow, Assumptions()).by_tick == pytest.approx(
        capacity(geometry(), slow, Assumptions()).by_tick
    )
    by_tick = capacity(geometry(), slow, Assumptions()).by_tick
    assert by_tick is not None
    # (1000 + 400 B) / 20,000 <= 0.1 s
    assert by_tick.value == 2
    assert capacity(geometry(), slow, Assumptions()).limit.startswith("time")
    assert capacity(geometry(), fast, Assumptions()).limit.startswith("memory: it is full")


@pytest.mark.parametrize(
    ("memory", "bandwidth", "tick", "limit"),
    [
        (500, 1e9, Fraction(1), "memory: the weights alone do not fit"),
        (1200, 1e9, Fraction(1), "memory: beside the weights there is no room"),
        (1e6, 1e3, Fraction(1), "time: a step of one session takes longer"),
        (1e6, 1e9, None, "memory, as far as it is known"),
    ],
)
def test_each_way_to_end_has_its_words(memory: float, bandwidth: float, tick: Fraction | None, limit: str) -> None:
    assert capacity(geometry(tick=tick), device(memory, bandwidth), Assumptions()).limit.startswith(limit)


def test_weights_that_do_not_fit_are_counted_in_devices() -> None:
    assert capacity(geometry(), device(500), Assumptions(usable=1.0)).devices_for_weights == 2


def test_measured_steps_replace_the_bounds() -> None:
    steps = Assumptions(steps={1: 0.02, 11: 0.04}, steps_origin=Origin.MEASURED, steps_source="here")
    can = capacity(geometry(), device(1e6), steps)
    assert can.by_tick is not None
    # 18 ms and 2 ms for each session fill 100 ms with 41.
    assert can.by_tick.value == pytest.approx(41, abs=1)
    assert [(sessions, step.value, step.origin) for sessions, step in can.steps] == [
        (1, 0.02, Origin.MEASURED),
        (11, 0.04, Origin.MEASURED),
    ]


def test_one_measured_step_says_nothing_about_more_sessions() -> None:
    can = capacity(geometry(), device(1e6), Assumptions(steps={4: 0.02}, steps_source="here"))
    assert can.by_tick is not None
    assert can.by_tick.value == 4
    late = capacity(geometry(), device(1e6), Assumptions(steps={4: 0.2}, steps_source="here"))
    assert late.by_tick is not None
    assert late.by_tick.value == 0


def test_more_sessions_read_more_of_a_mixtures_experts_but_never_more_than_there_are() -> None:
    experts = Experts(count=128, used=8, bytes=1000)
    assert experts.read(1) == pytest.approx(1000 * 8 / 128)
    assert experts.read(1) < experts.read(16) < experts.read(1000) <= 1000
    assert experts.multiplied() == experts.read(1)


@pytest.mark.parametrize(
    ("assumptions", "field"),
    [
        (Assumptions(usable=0.0), "--usable"),
        (Assumptions(usable=1.5), "--usable"),
        (Assumptions(steps={0: 0.1}), "--step-ms"),
        (Assumptions(steps={1: -0.1}), "--step-ms"),
        (Assumptions(steps={1: float("nan")}), "--step-ms"),
    ],
)
def test_assumptions_that_cannot_be_are_refused(assumptions: Assumptions, field: str) -> None:
    with pytest.raises(PlanError) as refused:
        capacity(geometry(), device(1e6), assumptions)
    assert refused.value.field == field
