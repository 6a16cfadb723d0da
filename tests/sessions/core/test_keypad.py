"""Keys of a telephone, and who speaks first."""

from __future__ import annotations

from dataclasses import replace

from sessions.core.config import SessionConfig
from sessions.core.effects import FlushCarrier, StartResponse
from sessions.core.events import DigitPressed
from sessions.core.notices import DigitHeard, EpochBegan, ItemAdded
from sessions.core.timeline import from_ms

from .driver import World, effects_in, notices_in

CONFIG = SessionConfig(keys_pause_ms=1000)
RESUMABLE = replace(CONFIG, grace=from_ms(20_000))


def started(world: World) -> int:
    return len(world.effects(StartResponse))


def test_a_key_is_told_at_once_and_alone_is_no_turn() -> None:
    world = World(SessionConfig())
    effects = world.post(DigitPressed("5"))
    assert notices_in(effects, DigitHeard) == [DigitHeard("5", world.session.state.input.watermark)]
    world.wait(5000)
    assert (started(world), world.session.state.conversation.items) == (0, [])


def test_keys_become_one_turn_when_no_other_follows() -> None:
    world = World(CONFIG)
    world.post(DigitPressed("4"))
    world.wait(900)
    world.post(DigitPressed("2"))
    world.wait(900)
    assert started(world) == 0
    world.wait(200)
    [order] = world.effects(StartResponse)
    assert [entry.text for entry in order.context] == ["[keys pressed: 42]"]
    assert world.session.state.keys == ""


def test_the_hash_ends_the_entry_at_once() -> None:
    world = World(CONFIG)
    world.post(DigitPressed("7"))
    effects = world.post(DigitPressed("#"))
    assert [notice.item.text for notice in notices_in(effects, ItemAdded)] == ["[keys pressed: 7#]"]
    assert len(effects_in(effects, StartResponse)) == 1
    world.wait(3000)
    assert started(world) == 1


def test_a_key_takes_the_floor_only_where_it_is_configured_so() -> None:
    for interrupts in (False, True):
        world = World(replace(CONFIG, keys_interrupt=interrupts))
        world.post(DigitPressed("#"))
        world.wait(700)
        assert world.session.state.sounding
        effects = world.post(DigitPressed("1"))
        causes = [notice.cause for notice in notices_in(effects, EpochBegan)]
        assert causes == (["key_pressed"] if interrupts else [])
        assert bool(effects_in(effects, FlushCarrier)) is interrupts


def test_keys_over_a_silent_agent_cut_nothing() -> None:
    world = World(replace(CONFIG, keys_interrupt=True))
    assert effects_in(world.post(DigitPressed("1")), FlushCarrier) == []


def test_the_agent_greets_only_where_it_is_configured_so() -> None:
    world = World(SessionConfig())
    world.wait(10_000)
    assert started(world) == 0


def test_the_agent_greets_when_nobody_speaks_and_only_once() -> None:
    world = World(SessionConfig(greet_after_ms=1500))
    world.wait(1400)
    assert started(world) == 0
    world.wait(200)
    assert started(world) == 1
    world.wait(20_000)
    assert started(world) == 1


def test_an_answering_machine_is_not_talked_over() -> None:
    world = World(SessionConfig(greet_after_ms=1500))
    world.quiet(1000)
    world.talk(4000)
    assert started(world) == 0
    world.quiet(800)
    assert started(world) == 1


def test_keys_that_waited_for_another_wait_again_at_the_owner_who_goes_on() -> None:
    world = World(RESUMABLE)
    world.post(DigitPressed("4"))
    world.wait(900)
    world.take_over()
    world.attach()
    world.wait(900)
    assert started(world) == 0
    world.post(DigitPressed("2"))
    world.wait(1100)
    [order] = world.effects(StartResponse)
    assert [entry.text for entry in order.context] == ["[keys pressed: 42]"]


def test_keys_end_as_a_turn_although_nobody_presses_another_one_after_a_takeover() -> None:
    world = World(RESUMABLE)
    world.post(DigitPressed("4"))
    world.take_over()
    world.attach()
    world.wait(1100)
    assert started(world) == 1


def test_the_agent_greets_although_its_owner_died_before() -> None:
    world = World(replace(RESUMABLE, greet_after_ms=1500))
    world.wait(1000)
    world.take_over()
    world.wait(2000)
    assert started(world) == 0  # to nobody
    world.attach()
    world.wait(3000)
    assert started(world) == 1
    world.take_over()
    world.attach()
    world.wait(20_000)
    assert started(world) == 1


def test_ids_of_a_new_owner_are_none_of_those_that_the_one_before_gave_in_its_last_moment() -> None:
    world = World(RESUMABLE)
    told = notices_in(world.post(DigitPressed("#")), ItemAdded)
    world.succeed(lost=1)
    world.claim()
    world.attach()
    again = notices_in(world.post(DigitPressed("#")), ItemAdded)
    assert (len(told), len(again)) == (1, 1)
    assert told[0].item.id != again[0].item.id
