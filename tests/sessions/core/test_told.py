"""Engines that hold the context themselves: what a client puts in, calls of tools, and a history that was lost."""

from __future__ import annotations

from dataclasses import replace

from sessions.core import counters
from sessions.core.config import SessionConfig, Tool
from sessions.core.context import ContextEntry
from sessions.core.effects import OpenEngine, TellEngine
from sessions.core.events import ConfigUpdate, EngineForgot, EngineToolCall, ItemCreate
from sessions.core.fence import Fence
from sessions.core.notices import OutputClosed, ResponseClosed
from sessions.core.state import Abilities

from .checker import Checker
from .driver import World, effects_in

QUIET = SessionConfig(turns=None)
TOLD = Abilities(engine_turns=True, engine_listens=True, engine_told=True)
TOOLS = (Tool(name="weather", description="of a city"),)


def desk(abilities: Abilities = TOLD, config: SessionConfig = QUIET) -> World:
    world = World(config, abilities, observers=(Checker(config, owns_turns=abilities.engine_turns),))
    world.engine.silent = True
    return world


def call(world: World, name: str = "c1", fence: Fence | None = None) -> None:
    world.post(EngineToolCall(fence or world.session.fence, "", name, "weather", '{"city":"Ulm"}'))


def test_texts_of_a_client_are_told_and_only_to_an_engine_that_takes_them() -> None:
    item = ItemCreate("user", text="my name is Ada")
    (told,) = effects_in(desk().post(item), TellEngine)
    assert told == TellEngine(Fence("sess_t", 1, 0), (ContextEntry("user", "message", "my name is Ada"),))
    for deaf in (Abilities(), replace(TOLD, engine_told=False)):
        assert effects_in(desk(deaf).post(item), TellEngine) == []


def test_a_call_of_an_engine_that_owns_its_turns_is_a_response_and_its_answer_is_told() -> None:
    world = desk()
    call(world)
    (closed,) = world.notices(ResponseClosed)
    assert closed.response.status == "completed"
    (output,) = world.notices(OutputClosed)
    assert (output.item.kind, output.item.call, output.item.name) == ("function_call", "c1", "weather")
    assert output.item.text == '{"city":"Ulm"}'
    answer = ItemCreate("user", "function_call_output", text="rain", call="c1")
    (told,) = effects_in(world.post(answer), TellEngine)
    assert told.entries == (ContextEntry("user", "function_call_output", "rain", "c1"),)
    assert not told.anew


def test_a_call_that_was_made_before_an_interruption_is_stale() -> None:
    world = desk()
    call(world, fence=Fence("sess_t", 0, 0))
    assert world.count(counters.STALE_EVENT) == 1
    assert world.notices(OutputClosed) == []


def test_an_engine_that_forgot_is_told_what_was_said_and_answered() -> None:
    world = desk()
    fence = world.session.fence
    assert effects_in(world.post(EngineForgot(fence)), TellEngine) == []
    world.post(ItemCreate("user", text="my name is Ada"))
    call(world)
    world.post(ItemCreate("user", "function_call_output", text="rain", call="c1"))
    call(world, "c2")
    (told,) = effects_in(world.post(EngineForgot(fence)), TellEngine)
    assert told.anew
    # A call that nobody has answered yet waits.
    assert [(entry.kind, entry.text) for entry in told.entries] == [
        ("message", "my name is Ada"),
        ("function_call", '{"city":"Ulm"}'),
        ("function_call_output", "rain"),
    ]
    assert effects_in(world.post(EngineForgot(Fence("sess_t", 0, 0))), TellEngine) == []


def test_tools_that_are_offered_later_are_told_to_an_engine_that_takes_them() -> None:
    config = replace(QUIET, tools=TOOLS)
    (opened,) = effects_in(desk().post(ConfigUpdate(config)), OpenEngine)
    assert opened.config.tools == TOOLS
    assert effects_in(desk(replace(TOLD, engine_told=False)).post(ConfigUpdate(config)), OpenEngine) == []
