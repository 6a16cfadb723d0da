"""`models.caches`."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.caches import CacheKey, NotReusable, StateCache, feature_key, key, prefix_key
from models.graph.states import RULES, Agreement, StateKind


def prefix(tenant: str, *tokens: str, model: str = "m1", first: int = 0) -> CacheKey:
    return prefix_key(tenant, tokens, model, first)


@pytest.mark.parametrize(
    "other",
    [
        prefix("b", "x", "y"),
        prefix("a", "x", "y", model="m2"),
        prefix("a", "x", "y", first=1),
        prefix("a", "x"),
        prefix("a", "x", "y", "z"),
        prefix("a", "xy"),
        prefix("a", "y", "x"),
    ],
    ids=["tenant", "version", "position", "shorter", "longer", "cut elsewhere", "order"],
)
def test_a_prefix_is_found_only_when_all_of_it_agrees(other: CacheKey) -> None:
    cache: StateCache[str] = StateCache(StateKind.KV, 100)
    cache.put(prefix("a", "x", "y"), "state", 10)
    assert cache.get(prefix("a", "x", "y")) == "state"
    assert cache.get(other) is None


@pytest.mark.parametrize(
    "other",
    [
        feature_key("b", b"pixels", "448", "e1"),
        feature_key("a", b"others", "448", "e1"),
        feature_key("a", b"pixels", "224", "e1"),
        feature_key("a", b"pixels", "448", "e2"),
    ],
    ids=["tenant", "content", "preprocessing", "encoder version"],
)
def test_a_feature_is_found_only_when_all_of_it_agrees(other: CacheKey) -> None:
    cache: StateCache[str] = StateCache(StateKind.FEATURE, 100)
    cache.put(feature_key("a", b"pixels", "448", "e1"), "state", 10)
    assert cache.get(feature_key("a", b"pixels", "448", "e1")) == "state"
    assert cache.get(other) is None


@pytest.mark.parametrize("kind", [kind for kind in StateKind if not RULES[kind].reusable])
def test_what_never_serves_twice_has_neither_key_nor_cache(kind: StateKind) -> None:
    with pytest.raises(NotReusable, match="never serves a second request"):
        key(kind, {})
    with pytest.raises(NotReusable):
        StateCache(kind, 10)


@pytest.mark.parametrize("left_out", sorted(RULES[StateKind.CODE].agreements or (), key=lambda a: a.name))
def test_a_key_that_leaves_something_out_is_refused(left_out: Agreement) -> None:
    whole = dict.fromkeys(RULES[StateKind.CODE].agreements or (), "x")
    assert key(StateKind.CODE, whole)
    with pytest.raises(NotReusable, match="must name exactly codec identity, content, tenant"):
        key(StateKind.CODE, {agreement: value for agreement, value in whole.items() if agreement is not left_out})
    with pytest.raises(NotReusable, match="is empty"):
        key(StateKind.CODE, {**whole, left_out: ""})


def test_a_key_of_another_kind_is_refused() -> None:
    cache: StateCache[str] = StateCache(StateKind.FEATURE, 100)
    for use in (lambda: cache.get(prefix("a", "x")), lambda: cache.put(prefix("a", "x"), "s", 1)):
        with pytest.raises(NotReusable, match="kv is not kept in the cache of features"):
            use()


def test_the_least_recently_used_goes_first() -> None:
    gone: list[str] = []
    cache: StateCache[str] = StateCache(StateKind.KV, 30, gone.append)
    for name in "abc":
        cache.put(prefix("t", name), name, 10)
    assert cache.get(prefix("t", "a")) == "a"
    cache.put(prefix("t", "d"), "d", 10)
    assert gone == ["b"]
    assert cache.metrics.evictions == 1
    assert (cache.metrics.entries, cache.metrics.bytes) == (3, 30)


def test_what_is_larger_than_the_budget_is_refused_and_displaces_nothing() -> None:
    cache: StateCache[str] = StateCache(StateKind.KV, 30)
    cache.put(prefix("t", "a"), "a", 30)
    assert not cache.put(prefix("t", "b"), "b", 31)
    assert cache.get(prefix("t", "a")) == "a"
    assert cache.metrics.refused == 1


def test_a_state_that_is_put_again_takes_its_own_place() -> None:
    gone: list[str] = []
    cache: StateCache[str] = StateCache(StateKind.KV, 30, gone.append)
    cache.put(prefix("t", "a"), "old", 20)
    assert cache.put(prefix("t", "a"), "new", 30)
    assert (cache.get(prefix("t", "a")), gone) == ("new", ["old"])
    assert cache.metrics.evictions == 0


def test_a_tenant_leaves_with_all_that_is_its_own() -> None:
    cache: StateCache[str] = StateCache(StateKind.KV, 100)
    for tenant in "aab":
        cache.put(prefix(tenant, "x", str(cache.metrics.entries)), tenant, 1)
    assert cache.evict(tenant="a") == 2
    assert cache.metrics.entries == 1
    assert cache.evict() == 1
    assert cache.metrics.bytes == 0


def test_caches_of_two_kinds_have_budgets_and_figures_of_their_own() -> None:
    prefixes: StateCache[str] = StateCache(StateKind.KV, 10)
    features: StateCache[str] = StateCache(StateKind.FEATURE, 10)
    prefixes.put(prefix("t", "x"), "s", 10)
    assert features.get(feature_key("t", b"", "p", "e")) is None
    assert (prefixes.metrics.misses, features.metrics.misses) == (0, 1)
    assert features.metrics.bytes == 0


@pytest.mark.parametrize("make", [lambda: StateCache(StateKind.KV, -1), lambda: StateCache(StateKind.KV, 1).put(
    prefix("t", "x"), "s", -1)])  # fmt: skip
def test_a_size_below_nothing_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match="at least 0 bytes"):
        make()


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 40), st.booleans()), max_size=60))
def test_the_budget_holds_and_the_figures_add_up(steps: list[tuple[str, int, bool]]) -> None:
    held: dict[str, int] = {}
    cache: StateCache[str] = StateCache(StateKind.KV, 50, lambda name: held.pop(name, None))
    for name, size, put in steps:
        if put:
            if cache.put(prefix("t", name), name, size):
                held[name] = size
        else:
            assert (cache.get(prefix("t", name)) is not None) == (name in held)
        assert cache.metrics.bytes == sum(held.values()) <= 50
        assert cache.metrics.entries == len(held)


def test_threads_do_not_lose_count() -> None:
    cache: StateCache[int] = StateCache(StateKind.KV, 64)

    def work(number: int) -> None:
        for step in range(200):
            cache.put(prefix(f"t{number}", str(step % 9)), step, 4)
            cache.get(prefix(f"t{number}", str(step % 7)))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    metrics = cache.metrics
    assert metrics.hits + metrics.misses == 800
    assert metrics.bytes == 4 * metrics.entries <= 64
