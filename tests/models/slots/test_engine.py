"""The slot engine: admission, lateness, cuts, failures, and nothing of a former tenant."""

from __future__ import annotations

import random

import numpy as np
import pytest

from models.slots.engine import SlotEngine, SlotOptions, SlotOutput
from models.slots.table import Lease
from sessions.ports import Busy
from tests.models.slots.recorder import HOP, MARGIN, RecorderModel

Engine = SlotEngine[str]


def frame(value: int) -> np.ndarray:
    return np.full(HOP, value / 1000, np.float32)


def build(batch: int = 3, margin: int = MARGIN, **options: object) -> tuple[Engine, RecorderModel]:
    model = RecorderModel(batch, margin)
    return SlotEngine(model, SlotOptions(**options), now=lambda: 0.0), model  # type: ignore[arg-type]


def numbers(outputs: list[SlotOutput[str]]) -> list[tuple[int, int]]:
    return [(output.lease.slot, output.number) for output in outputs]


def test_every_session_with_audio_is_stepped_once_per_tick() -> None:
    engine, model = build()
    leases = [engine.admit(name, seed) for seed, name in enumerate("abc")]
    for lease in leases:
        engine.feed(lease, frame(1))
    outputs = engine.tick()
    assert numbers(outputs) == [(0, 0), (1, 0), (2, 0)]
    assert [output.stamp for output in outputs] == ["a", "b", "c"]
    assert [output.said for output in outputs] == [(0, 1), (1, 1), (2, 1)]
    assert model.steps == [[0, 1, 2]]


def test_a_tick_without_audio_costs_no_step() -> None:
    engine, model = build()
    engine.admit("a", 0)
    assert engine.tick() == []
    assert model.steps == []


def test_a_late_session_misses_the_tick_and_holds_up_nobody() -> None:
    engine, model = build()
    late, prompt = engine.admit("late", 0), engine.admit("prompt", 1)
    engine.feed(prompt, frame(1))
    assert numbers(engine.tick()) == [(1, 0)]
    engine.feed(prompt, frame(2))
    engine.feed(late, frame(1))
    engine.feed(late, frame(2))
    assert numbers(engine.tick()) == [(0, 0), (1, 1), (0, 1)]
    assert model.steps == [[1], [0, 1], [0]]


def test_catching_up_is_bounded_per_tick_and_by_the_clock() -> None:
    engine, model = build(catch_up=2)
    lease = engine.admit("a", 0)
    for n in range(6):
        engine.feed(lease, frame(n))
    assert [number for _, number in numbers(engine.tick())] == [0, 1, 2]
    # No time left: one step, as every tick has.
    assert [number for _, number in numbers(engine.tick(until=0.0))] == [3]
    assert engine.counters["steps_extra"] == 2
    assert len(model.steps) == 4


def test_what_waits_too_long_is_answered_with_silence_in_its_place() -> None:
    engine, model = build(waiting=3)
    lease = engine.admit("a", 0)
    for n in range(1, 6):
        engine.feed(lease, frame(n))
    outputs = engine.tick()
    assert [output.number for output in outputs] == [0, 1, 2, 3, 4]
    assert [output.lost for output in outputs] == [True, True, False, False, False]
    assert not outputs[0].pcm.any()
    assert [value for _, value in model.history[0]] == [3, 4, 5]
    assert engine.counters["frames_lost"] == 2


def test_a_full_engine_refuses_at_once_with_a_time() -> None:
    engine, _ = build(batch=1)
    engine.admit("a", 0)
    with pytest.raises(Busy) as refused:
        engine.admit("b", 1)
    assert refused.value.retry_after > 0
    assert engine.counters["sessions_refused"] == 1


def test_a_slot_that_was_left_can_be_let_at_once_and_is_clean() -> None:
    engine, model = build(batch=1)
    first = engine.admit("first", 7)
    engine.feed(first, frame(1))
    engine.tick()
    engine.release(first)
    second = engine.admit("second", 9)
    engine.feed(second, frame(2))
    (output,) = engine.tick()
    assert (output.stamp, output.number, output.said) == ("second", 0, (9, 2))
    assert model.history[0] == [("heard", 2)]
    assert not engine.holds(first)
    engine.feed(first, frame(3))
    engine.release(first)
    assert engine.holds(second)
    assert engine.tick() == []


def test_output_of_a_session_that_left_during_the_step_is_dropped() -> None:
    engine, model = build(batch=2)
    leases = [engine.admit(name, 0) for name in "ab"]
    for lease in leases:
        engine.feed(lease, frame(1))
    model.during = lambda: engine.release(leases[0])
    assert [output.stamp for output in engine.tick()] == ["b"]
    assert engine.counters["frames_stale"] == 1


def test_a_session_that_came_during_the_step_waits_for_its_slot_to_be_zeroed() -> None:
    engine, model = build(batch=1)
    first = engine.admit("first", 0)
    for _ in range(2):
        engine.feed(first, frame(1))
    arrived: list[Lease] = []

    def swap() -> None:
        if not arrived:
            engine.release(first)
            arrived.append(engine.admit("second", 5))
            engine.feed(arrived[0], frame(2))

    model.during = swap
    assert engine.tick() == []
    (output,) = engine.tick()
    assert (output.stamp, output.said) == ("second", (5, 2))
    assert model.history[0] == [("heard", 2)]


def test_numbers_that_are_not_finite_end_only_their_session() -> None:
    engine, _ = build(batch=2)
    ill, well = engine.admit("ill", 0), engine.admit("well", 0)
    engine.feed(ill, frame(500))
    engine.feed(well, frame(1))
    outputs = engine.tick()
    assert [(output.stamp, output.fault) for output in outputs] == [("ill", "not_finite"), ("well", "")]
    assert np.isfinite(outputs[0].pcm).all()
    assert not engine.holds(ill)
    assert engine.holds(well)
    heir = engine.admit("heir", 3)
    assert heir.slot == ill.slot
    engine.feed(heir, frame(2))
    assert [(output.stamp, output.fault) for output in engine.tick()] == [("heir", "")]


def test_audio_that_cannot_be_is_refused_before_it_reaches_a_neighbour() -> None:
    engine, _ = build()
    lease = engine.admit("a", 0)
    with pytest.raises(ValueError, match="shape"):
        engine.feed(lease, np.zeros(HOP + 1, np.float32))
    with pytest.raises(ValueError, match="not finite"):
        engine.feed(lease, np.array([0, np.nan, 0, 0], np.float32))
    with pytest.raises(ValueError, match="seed"):
        engine.admit("b", -1)


# --- interruptions ----------------------------------------------------------------------------------------------------


def talk(engine: Engine, lease: Lease, count: int, start: int = 1) -> list[SlotOutput[str]]:
    out = []
    for n in range(start, start + count):
        engine.feed(lease, frame(n))
        out += engine.tick()
    return out


def test_keep_changes_only_the_stamp() -> None:
    engine, model = build(policy="keep")
    lease = engine.admit("old", 0)
    talk(engine, lease, 3)
    engine.cut(lease, "new", heard=1)
    outputs = talk(engine, lease, 2, 4)
    assert [(output.stamp, output.hushed, output.number) for output in outputs] == [
        ("new", False, 3),
        ("new", False, 4),
    ]
    assert model.history[0] == [("heard", n) for n in range(1, 6)]


def test_annotate_makes_the_agent_hear_itself_fall_silent() -> None:
    engine, model = build(policy="annotate", hush=2)
    lease = engine.admit("old", 0)
    talk(engine, lease, 3)
    engine.cut(lease, "new", heard=1)
    assert [output.hushed for output in talk(engine, lease, 3, 4)] == [True, True, False]
    assert model.history[0] == [
        *[("heard", n) for n in range(1, 4)],
        *[("heard, hushed", n) for n in (4, 5)],
        ("heard", 6),
    ]


def test_rewind_goes_back_to_what_was_heard_and_gives_the_user_again() -> None:
    engine, model = build(policy="rewind", hush=1, catch_up=2)
    lease = engine.admit("old", 0)
    talk(engine, lease, 6)
    engine.cut(lease, "new", heard=2)
    outputs = talk(engine, lease, 3, 7)
    # Four frames are replayed, three in the first tick; those were answered already and are not answered again.
    assert [(output.number, output.hushed) for output in outputs] == [(6, True), (7, False), (8, False)]
    assert model.history[0] == [
        ("heard", 1),
        ("heard", 2),
        *[("replayed, hushed", n) for n in range(3, 7)],
        ("heard, hushed", 7),
        ("heard", 8),
        ("heard", 9),
    ]
    assert engine.counters["frames_replayed"] == 4


def test_rewind_ends_at_the_margin() -> None:
    engine, model = build(policy="rewind", hush=0, catch_up=9)
    lease = engine.admit("old", 0)
    talk(engine, lease, 9)
    engine.cut(lease, "new", heard=0)
    talk(engine, lease, 1, 10)
    assert [what for what, _ in model.history[0]] == ["heard"] * 4 + ["replayed, hushed"] * MARGIN + ["heard"]


def test_an_interruption_during_the_replay_of_another_goes_on_from_there() -> None:
    engine, model = build(policy="rewind", hush=0, catch_up=1)
    lease = engine.admit("old", 0)
    talk(engine, lease, 6)
    engine.cut(lease, "new", heard=4)
    engine.cut(lease, "newer", heard=3)
    engine.feed(lease, frame(7))
    assert engine.tick() == []
    engine.cut(lease, "newest", heard=2)
    outputs = [output for _ in range(4) for output in engine.tick()]
    assert [(output.stamp, output.number) for output in outputs] == [("newest", 6)]
    assert [value for _, value in model.history[0]] == [1, 2, 3, 4, 5, 6, 7]
    assert [what for what, _ in model.history[0]][2:] == ["replayed, hushed"] * 4 + ["heard"]


def test_of_two_interruptions_before_a_tick_the_one_that_was_heard_less_counts() -> None:
    engine, model = build(policy="rewind", hush=0, catch_up=9)
    lease = engine.admit("old", 0)
    talk(engine, lease, 5)
    engine.cut(lease, "new", heard=2)
    engine.cut(lease, "newer", heard=4)
    talk(engine, lease, 1, 6)
    assert [what for what, _ in model.history[0]] == ["heard"] * 2 + ["replayed, hushed"] * 3 + ["heard"]


def test_a_session_cut_in_the_middle_of_a_tick_waits_for_the_next_which_takes_it_back() -> None:
    engine, model = build(policy="rewind", hush=0, catch_up=3)
    lease = engine.admit("old", 0)
    talk(engine, lease, 2)
    for n in (3, 4):
        engine.feed(lease, frame(n))
    model.during = lambda: engine.cut(lease, "new", heard=1)
    assert [(output.number, output.stamp) for output in engine.tick()] == [(2, "old")]
    model.during = lambda: None
    assert [(output.number, output.stamp) for output in engine.tick()] == [(3, "new")]
    assert model.history[0] == [("heard", 1), ("replayed, hushed", 2), ("replayed, hushed", 3), ("heard", 4)]


def test_a_rewind_needs_a_margin() -> None:
    with pytest.raises(ValueError, match="margin"):
        build(margin=0, policy="rewind")


@pytest.mark.parametrize(("policy", "cuts"), [("keep", 2_000), ("annotate", 2_000), ("rewind", 10_000)])
def test_in_ten_thousand_random_interruptions_nothing_old_comes_out(policy: str, cuts: int) -> None:
    """Cuts, hang-ups and new sessions at any time, also in the middle of a step.

    Every output tells the step that made it; a stamp or a lease must not stand on what was made before it existed.
    """
    engine, model = build(batch=4, policy=policy, hush=1)
    dice = random.Random(policy)
    current: dict[Lease, str] = {}
    since: dict[tuple[Lease, str], int] = {}
    counts = {"cuts": 0, "sessions": 0, "outputs": 0}

    def disturb(begun: int = 0) -> None:
        for _ in range(dice.randrange(8)):
            if current and dice.random() < 0.9:
                lease = dice.choice(list(current))
                session, _, epoch = current[lease].rpartition(" ")
                stamp = f"{session} {int(epoch) + 1}"
                counts["cuts"] += 1
                engine.cut(lease, stamp, heard=dice.randrange(10))
            elif len(current) < 4:
                lease = engine.admit(stamp := f"session {counts['sessions']}, epoch 0", counts["sessions"])
                counts["sessions"] += 1
            else:
                engine.release(gone := dice.choice(list(current)))
                del current[gone]
                continue
            current[lease] = stamp
            since[lease, stamp] = len(model.steps) + begun

    model.during = lambda: disturb(begun=1)
    expected: dict[Lease, int] = {}
    while counts["cuts"] < cuts:
        for lease in list(current):
            if dice.random() < 0.9:
                engine.feed(lease, frame(dice.randrange(1, 400)))
        for output in engine.tick():
            counts["outputs"] += 1
            seed, made_in = output.said
            lost = made_in < 0
            assert lost or made_in > since[output.lease, output.stamp]
            assert lost or output.stamp.startswith(f"session {seed},")
            assert output.number == expected.get(output.lease, 0)
            expected[output.lease] = output.number + 1
        disturb()
    assert counts["outputs"] > cuts / 8
    assert counts["sessions"] > cuts / 40
