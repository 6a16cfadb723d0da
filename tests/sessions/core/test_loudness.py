from __future__ import annotations

from sessions.core.loudness import (
    ABOVE_FLOOR,
    ABOVE_HISS,
    FAINTEST,
    FAINTEST_HISS,
    FORGETS,
    LOUDER,
    QUIETEST,
    SILENT,
    NoiseFloor,
)
from sessions.core.timeline import TICK_RATE


def room(level: float = QUIETEST, hiss: float = QUIETEST) -> NoiseFloor:
    return NoiseFloor(level, hiss)


def test_the_first_window_is_the_floor_whatever_it_is() -> None:
    floor = NoiseFloor()
    assert not floor.stands_out(-20.0, -30.0, 0)
    floor.follow(-20.0, -30.0)
    assert (floor.level, floor.hiss) == (-20.0, -30.0)


def test_in_a_quiet_room_only_what_can_be_heard_stands_out() -> None:
    assert not room().stands_out(FAINTEST - 0.1, SILENT, 0)
    assert room().stands_out(FAINTEST, SILENT, 0)


def test_in_a_loud_room_a_sound_must_be_louder_than_the_room() -> None:
    floor = room(-40.0)
    assert not floor.stands_out(-40.0 + ABOVE_FLOOR - 0.1, SILENT, 0)
    assert floor.stands_out(-40.0 + ABOVE_FLOOR, SILENT, 0)


def test_what_hisses_stands_out_from_a_room_that_is_as_loud_but_lower() -> None:
    floor = room(-40.0, -62.0)
    assert floor.stands_out(-40.0, -62.0 + ABOVE_HISS, 0)
    assert not floor.stands_out(-40.0, -62.0 + ABOVE_HISS - 1.0, 0)


def test_a_hiss_that_can_hardly_be_heard_is_no_sound() -> None:
    assert room().stands_out(FAINTEST_HISS, -50.0, 0)
    assert not room().stands_out(FAINTEST_HISS - 0.1, -50.0, 0)


def test_the_floor_follows_a_louder_room_slowly_and_a_quieter_one_at_once() -> None:
    floor = room()
    levels = []
    for _ in range(3):
        floor.follow(-30.0, -40.0)
        levels.append((round(floor.level, 3), round(floor.hiss, 3)))
    assert levels == [(QUIETEST + step, QUIETEST + step) for step in (0.1, 0.2, 0.3)]
    floor.level = floor.hiss = -30.0
    floor.follow(-55.0, -65.0)
    assert (floor.level, floor.hiss) == (-55.0, -65.0)


def test_the_floor_does_not_fall_below_the_quietest_room() -> None:
    floor = room()
    floor.follow(SILENT, SILENT)
    assert (floor.level, floor.hiss) == (QUIETEST, QUIETEST)


def test_only_something_louder_counts_after_a_sound_that_was_no_speech() -> None:
    floor = room()
    floor.accept(-25.0, -45.0, 0)
    assert not floor.stands_out(-25.0 + LOUDER - 0.1, -45.0 + LOUDER - 1.0, 0)
    assert floor.stands_out(-25.0 + LOUDER, SILENT, 0)
    assert floor.stands_out(-30.0, -45.0 + LOUDER, 0)


def test_that_sound_is_forgotten_little_by_little() -> None:
    floor = room()
    floor.accept(-25.0, -45.0, TICK_RATE)
    seconds = LOUDER / FORGETS
    assert not floor.stands_out(-25.0, -45.0, round(seconds * TICK_RATE))
    assert floor.stands_out(-25.0, SILENT, round((1 + seconds) * TICK_RATE))
    assert floor.stands_out(-30.0, -45.0, round((1 + seconds) * TICK_RATE))


def test_a_fainter_sound_does_not_make_a_louder_one_forgotten() -> None:
    floor = room()
    floor.accept(-25.0, -45.0, 0)
    floor.accept(-60.0, -70.0, 2 * TICK_RATE)
    assert (floor.known_level, floor.known_hiss) == (-25.0 - 2 * FORGETS, -45.0 - 2 * FORGETS)
    assert floor.known_at == 2 * TICK_RATE
