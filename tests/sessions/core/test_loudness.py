from __future__ import annotations

from sessions.core.loudness import ABOVE_FLOOR, FAINTEST, QUIETEST, NoiseFloor


def test_in_a_quiet_room_only_what_can_be_heard_stands_out() -> None:
    floor = NoiseFloor()
    assert not floor.stands_out(FAINTEST - 0.1)
    assert floor.stands_out(FAINTEST)


def test_in_a_loud_room_a_sound_must_be_louder_than_the_room() -> None:
    floor = NoiseFloor(-40.0)
    assert not floor.stands_out(-40.0 + ABOVE_FLOOR - 0.1)
    assert floor.stands_out(-40.0 + ABOVE_FLOOR)


def test_the_floor_follows_a_louder_room_slowly_and_a_quieter_one_at_once() -> None:
    floor = NoiseFloor()
    levels = []
    for _ in range(3):
        floor.follow(-30.0)
        levels.append(round(floor.level, 3))
    assert levels == [QUIETEST + 0.1, QUIETEST + 0.2, QUIETEST + 0.3]
    floor.level = -30.0
    floor.follow(-55.0)
    assert floor.level == -55.0


def test_the_floor_does_not_fall_below_the_quietest_room() -> None:
    floor = NoiseFloor()
    floor.follow(-120.0)
    assert floor.level == QUIETEST


def test_a_sound_that_was_no_speech_becomes_the_floor() -> None:
    floor = NoiseFloor()
    floor.accept(-25.0)
    assert not floor.stands_out(-25.0)
    floor.accept(-60.0)
    assert floor.level == -25.0
