from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.dialects.realtime_duplex_outbox import Gap, Outbox


def outbox(*texts: str, **bounds: int) -> Outbox:
    made = Outbox(**bounds)
    for text in texts:
        made.add(text)
    return made


def test_what_follows_a_number_is_given_again_in_order() -> None:
    made = outbox("a", "b", "c")
    assert made.last == 3
    assert made.after(0) == ["a", "b", "c"]
    assert made.after(2) == ["c"]
    assert made.after(3) == []


def test_what_was_acknowledged_is_not_kept() -> None:
    made = outbox("a", "b", "c")
    made.acknowledge(2)
    assert (made.first, made.last, made.waiting) == (3, 3, 1)
    assert made.after(2) == ["c"]
    with pytest.raises(Gap, match="2 to 2"):
        made.after(1)
    made.acknowledge(1)
    assert made.after(2) == ["c"]


def test_the_oldest_gives_way_when_there_are_too_many() -> None:
    made = outbox("a", "b", "c", most_events=2)
    assert made.after(1) == ["b", "c"]
    with pytest.raises(Gap):
        made.after(0)


def test_the_oldest_gives_way_when_they_are_too_long() -> None:
    made = outbox("aa", "bb", "cc", most_bytes=5)
    assert made.waiting == 4
    assert made.after(1) == ["bb", "cc"]


def test_one_event_longer_than_the_bound_is_not_kept_and_counted_all_the_same() -> None:
    made = outbox("a", "b" * 10, most_bytes=5)
    assert (made.last, made.first, made.waiting) == (2, 3, 0)
    made.add("c")
    assert made.after(2) == ["c"]
    with pytest.raises(Gap):
        made.after(1)


@pytest.mark.parametrize("number", [-1, 4])
def test_a_number_that_was_never_given_is_refused(number: int) -> None:
    made = outbox("a", "b", "c")
    with pytest.raises(ValueError, match="never sent"):
        made.after(number)
    with pytest.raises(ValueError, match="never sent"):
        made.acknowledge(number)


@given(st.lists(st.one_of(st.integers(0, 9), st.text("x", max_size=6)), max_size=60))
def test_what_is_given_again_is_what_was_said_and_the_bounds_hold(steps: list[int | str]) -> None:
    made, said = Outbox(most_bytes=20, most_events=5), [""]
    for step in steps:
        if isinstance(step, str):
            made.add(step)
            said.append(step)
        else:
            made.acknowledge(max(0, made.last - step))
        assert made.waiting <= 20
        assert made.last + 1 - made.first <= 5
        assert made.after(made.first - 1) == said[made.first :]
