"""What is planned happens in the order of its times, and of one time in the order in which it was planned."""

from __future__ import annotations

import random

from loadtest.simulation.clock import SLOT, Clock


def test_plans_happen_in_the_order_of_their_times_whatever_order_they_came_in() -> None:
    clock, chance = Clock(), random.Random(1)
    planned: list[tuple[int, int]] = []
    happened: list[tuple[int, int]] = []

    def plan(after: int) -> None:
        time = clock.now + after
        planned.append((max(time, clock.now), len(planned)))
        clock.at(time, happen, *planned[-1])

    def happen(time: int, number: int) -> None:
        assert clock.now == time
        happened.append((time, number))
        if len(planned) < 5000:
            for _ in range(chance.choice((0, 1, 1, 2))):
                plan(chance.choice((-5, 0, 1, SLOT // 3, SLOT - 1, SLOT, 7 * SLOT + 3, 90 * SLOT)))

    for _ in range(400):
        plan(chance.randrange(100 * SLOT))
    until = 0
    while len(happened) < len(planned):
        until += chance.choice((1, SLOT // 2, SLOT, 3 * SLOT + 1))
        clock.run(until)
        assert clock.now == until
        assert all(time <= until for time, _ in happened)
        assert happened == [one for one in sorted(planned) if one[0] <= until]
    assert clock.happened == len(planned) > 1000


def test_what_is_due_at_the_very_end_happens_and_what_comes_behind_it_waits() -> None:
    clock = Clock()
    happened: list[str] = []
    clock.at(SLOT, happened.append, "at the end")
    clock.at(SLOT + 1, happened.append, "behind it")
    clock.run(SLOT)
    assert happened == ["at the end"]
    clock.at(SLOT, happened.append, "planned late")
    clock.run(SLOT + 1)
    assert happened == ["at the end", "planned late", "behind it"]
