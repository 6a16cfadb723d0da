"""`models.families.embedded.word_times`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from models.families.embedded.word_times import Stretch, align


def test_words_that_match_take_their_own_time() -> None:
    heard = [Stretch("Hello", 2, 10), Stretch("there.", 12, 20)]
    assert align(["Hello", "there."], heard) == [(2, 10), (12, 20)]


def test_a_word_read_as_several_takes_the_time_of_all() -> None:
    heard = [Stretch("It", 0, 2), Stretch("costs", 3, 6), *(Stretch(word, 7, 19) for word in ["five"])]
    heard += [Stretch("dollars", 20, 30), Stretch("now.", 31, 40)]
    assert align(["It", "costs", "$5", "now."], heard)[2] == (7, 30)


def test_several_words_read_as_one_share_its_time_by_letters() -> None:
    heard = [Stretch("one", 0, 4), Stretch("January", 10, 40)]
    assert align(["one", "ab", "abcd"], heard) == [(0, 4), (10, 20), (20, 40)]


def test_a_word_without_sound_gets_no_time_where_it_stands() -> None:
    heard = [Stretch("Well", 0, 5), Stretch("yes.", 8, 14)]
    assert align(["Well", "—", "yes."], heard)[1] == (5, 5)


def test_nothing_pronounced_leaves_every_word_without_time() -> None:
    assert align(["—", "!"], []) == [(0, 0), (0, 0)]


_WORDS = st.lists(st.sampled_from(["a", "bb", "ccc", "—", "5", "five"]), max_size=12)


@given(_WORDS, _WORDS)
def test_times_never_run_backwards_or_overlap(written: list[str], pronounced: list[str]) -> None:
    heard = [Stretch(word, 10 * at, 10 * at + 7) for at, word in enumerate(pronounced)]
    clock = 0
    for start, end in align(written, heard):
        assert clock <= start <= end
        clock = end
