"""`models.families.embedded.runtime`, on a runtime that needs no model."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from models.families.embedded.runtime import Prefixes, Runtime
from models.families.embedded.stop import Stop

from ..hearing import PATIENCE

PREAMBLE = ("pre", "amble")


class Generator:
    def __init__(self) -> None:
        self.unloaded = False

    def unload_model(self) -> None:
        self.unloaded = True


class Shelf:
    """Prefixes of ten bytes a token, and what they loaded and read."""

    def __init__(self, budget: int = 100) -> None:
        self.loaded: list[Generator] = []
        self.warmed: list[Runtime] = []
        self.reads: list[tuple[str, ...]] = []
        self.prefixes = Prefixes(self._load, self.warmed.append, PREAMBLE, "v1", budget=budget, token_bytes=10)

    def _load(self) -> Runtime:
        self.loaded.append(Generator())
        return Runtime(self.loaded[-1])

    def keep(self, tenant: str, *head: str, session: str = "s", stop: Stop | None = None, done: bool = True) -> bool:
        def read(runtime: Runtime, tokens: Sequence[str]) -> bool:
            self.reads.append(tuple(tokens))
            return done

        return self.prefixes.keep(tenant, session, head, read, stop or Stop())

    def serves(self, tenant: str, *head: str) -> bool:
        runtime = self.prefixes.enter()
        assert runtime is not None
        try:
            return len(self.prefixes.beginning(runtime, tenant, head)) > len(PREAMBLE)
        finally:
            self.prefixes.leave(runtime)


def test_a_beginning_that_was_read_serves_its_tenant_and_nobody_else() -> None:
    shelf = Shelf()
    assert not shelf.serves("a", "x")
    assert shelf.keep("a", "x")
    assert shelf.serves("a", "x")
    assert not shelf.serves("b", "x")
    assert not shelf.serves("a", "y")
    assert not shelf.serves("a", "x", "y")
    assert not shelf.serves("", "x")
    assert not shelf.serves("a")


def test_it_is_read_once() -> None:
    shelf = Shelf()
    assert shelf.keep("a", "x")
    assert shelf.keep("a", "x")
    assert shelf.reads == [("pre", "amble", "x")]


def test_the_same_words_of_another_tenant_are_not_found_in_its_place() -> None:
    shelf = Shelf(budget=1000)
    shelf.keep("a", "x")
    assert not shelf.keep("b", "x")
    assert (len(shelf.reads), len(shelf.loaded)) == (1, 1)


def test_what_was_given_up_while_it_waited_takes_no_room() -> None:
    shelf = Shelf(budget=30)
    assert not shelf.keep("a", "x", done=False)
    assert not shelf.serves("a", "x")
    assert shelf.keep("a", "y")
    assert len(shelf.loaded) == 1


def test_reading_that_fails_leaves_nothing_behind() -> None:
    shelf = Shelf(budget=30)

    def fail(runtime: Runtime, tokens: Sequence[str]) -> bool:
        raise RuntimeError("as told")

    with pytest.raises(RuntimeError, match="as told"):
        shelf.prefixes.keep("a", "s", ["x"], fail, Stop())
    assert shelf.prefixes.in_use == 0
    assert shelf.keep("a", "y")
    shelf.prefixes.close()
    assert shelf.loaded[0].unloaded


def test_what_a_session_began_with_stays_for_the_next_one_of_its_tenant() -> None:
    shelf = Shelf()
    shelf.keep("a", "x", session="one")
    assert shelf.prefixes.in_use == 30
    shelf.prefixes.release("one")
    assert shelf.prefixes.in_use == 0
    assert shelf.serves("a", "x")
    shelf.keep("a", "x", session="two")
    assert (shelf.prefixes.in_use, len(shelf.reads)) == (30, 1)


def test_a_session_that_ends_while_it_is_read_for_uses_nothing() -> None:
    shelf, gone = Shelf(), Stop()
    gone.set()
    shelf.keep("a", "x", session="one", stop=gone)
    assert shelf.prefixes.in_use == 0


def test_what_two_sessions_begin_with_is_used_until_both_are_over() -> None:
    shelf = Shelf()
    for session in ("one", "two"):
        shelf.keep("a", "x", session=session)
    shelf.prefixes.release("one")
    assert shelf.prefixes.in_use == 30
    shelf.prefixes.release("two")
    assert shelf.prefixes.in_use == 0


def test_without_room_for_what_is_still_used_nothing_more_is_kept() -> None:
    shelf = Shelf(budget=70)
    assert shelf.keep("a", "x", session="one")
    assert shelf.keep("b", "y", session="two")
    assert not shelf.keep("c", "z", session="three")
    assert len(shelf.loaded) == 1
    assert shelf.serves("a", "x")


def test_a_beginning_longer_than_the_budget_is_not_kept() -> None:
    shelf = Shelf(budget=20)
    assert not shelf.keep("a", "x")
    assert (shelf.reads, len(shelf.loaded)) == ([], 1)


def test_when_nobody_uses_most_of_it_a_fresh_runtime_takes_its_place() -> None:
    shelf = Shelf(budget=70)
    shelf.keep("a", "x", session="one")
    shelf.keep("b", "y", session="two")
    shelf.prefixes.release("one")
    shelf.prefixes.release("two")
    assert shelf.keep("c", "z", session="three")
    assert len(shelf.loaded) == len(shelf.warmed) == 2
    assert shelf.loaded[0].unloaded
    assert not shelf.loaded[1].unloaded
    assert shelf.serves("c", "z")
    assert not shelf.serves("a", "x")
    assert (shelf.prefixes.metrics.bytes, shelf.prefixes.in_use) == (30, 30)
    assert shelf.prefixes.metrics.evictions == 2


def full_of_what_nobody_uses() -> Shelf:
    shelf = Shelf(budget=60)
    shelf.keep("a", "x")
    shelf.keep("a", "z")
    shelf.prefixes.release("s")
    return shelf


def test_all_that_is_kept_of_a_tenant_can_be_forgotten() -> None:
    shelf = Shelf(budget=1000)
    assert shelf.keep("a", "x", session="1")
    assert shelf.keep("a", "y", session="2")
    assert shelf.keep("b", "z", session="3")
    assert (shelf.prefixes.held("a"), shelf.prefixes.held("b")) == (2, 1)
    for session in "12":
        shelf.prefixes.release(session)
    shelf.prefixes.forget("a")
    assert shelf.prefixes.held("a") == 0
    assert not shelf.serves("a", "x")
    assert [generator.unloaded for generator in shelf.loaded] == [True, False], "its memory goes with the runtime"
    assert shelf.keep("b", "z", session="3"), "others are read anew"
    shelf.prefixes.forget("nobody")
    assert len(shelf.loaded) == 2, "for nothing nothing is loaded"


def test_what_was_read_on_a_runtime_that_was_replaced_meanwhile_is_not_found() -> None:
    shelf = Shelf(budget=1000)

    def read(runtime: Runtime, tokens: Sequence[str]) -> bool:
        shelf.prefixes.forget("a")
        return True

    assert shelf.prefixes.keep("a", "1", ("x",), read, Stop())
    assert shelf.prefixes.metrics.entries == 0
    assert shelf.prefixes.held("a") == 0


def test_a_runtime_in_use_is_unloaded_only_when_its_last_run_ends() -> None:
    shelf = full_of_what_nobody_uses()
    running = shelf.prefixes.enter()
    assert running is not None
    assert shelf.keep("b", "y")
    assert not shelf.loaded[0].unloaded
    # What it was read for does not hold for the runtime that is on its way out.
    assert shelf.prefixes.beginning(running, "b", ["y"]) == PREAMBLE
    shelf.prefixes.leave(running)
    assert shelf.loaded[0].unloaded


def test_after_the_end_nothing_is_entered_kept_or_loaded() -> None:
    shelf = Shelf()
    running = shelf.prefixes.enter()
    assert running is not None
    shelf.prefixes.close()
    assert not shelf.loaded[0].unloaded
    shelf.prefixes.leave(running)
    assert shelf.loaded[0].unloaded
    assert shelf.prefixes.enter() is None
    assert not shelf.keep("a", "x")
    shelf.prefixes.close()
    assert len(shelf.loaded) == 1


def test_a_runtime_that_was_loaded_while_all_was_closed_is_unloaded_at_once() -> None:
    shelf = full_of_what_nobody_uses()
    load, may = shelf._load, threading.Event()
    loading = threading.Event()

    def slowly() -> Runtime:
        loading.set()
        may.wait(PATIENCE)
        return load()

    shelf.prefixes._load = slowly
    keeping = threading.Thread(target=shelf.keep, args=("b", "y"))
    keeping.start()
    assert loading.wait(PATIENCE)
    shelf.prefixes.close()
    may.set()
    keeping.join(PATIENCE)
    assert all(generator.unloaded for generator in shelf.loaded)
    assert len(shelf.loaded) == 2
    assert len(shelf.reads) == 2
