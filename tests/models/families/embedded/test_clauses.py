"""`models.families.embedded.clauses`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.families.embedded.clauses import FIRST, LATER, ClauseCutter, ends_sentence
from models.families.embedded.speakable import Speakable, SpokenWord


def cut(text: str) -> list[str]:
    filter_, cutter = Speakable(), ClauseCutter()
    clauses = [cutter.feed(word) for word in [*filter_.feed(text), *filter_.finish()]]
    return [clause for clause in [*clauses, cutter.finish()] if clause is not None]


@pytest.mark.parametrize(
    "word", ["Paris.", "no?", "Stop!", 'said."', "well...", "end.)", "1999.", "yes!”", "I.", "really?!", "it…"]
)
def test_these_end_a_sentence(word: str) -> None:
    assert ends_sentence(word)


@pytest.mark.parametrize("word", ["Dr.", "e.g.", "3.5", "J.", "U.S.", "p.m.", "(vs.", "Paris,", "Mr.", "a.b", "."])
def test_these_do_not_end_a_sentence(word: str) -> None:
    assert not ends_sentence(word)


@pytest.mark.parametrize(
    ("text", "clauses"),
    [
        ("The capital of France is Paris.", ["The capital of France is Paris."]),
        ("Yes. It is.", ["Yes.", "It is."]),
        ("Well, that depends, I think.", ["Well, that depends,", "I think."]),
        ("Dr. Smith paid $3.50 today.", ["Dr. Smith paid $3.50 today."]),
        ("We met at 5 p.m. in the U.S. office.", ["We met at 5 p.m. in the U.S.", "office."]),
        (
            "Trees drop all their old leaves because water is scarce.",
            ["Trees drop all their old leaves", "because water is scarce."],
        ),
        (
            "One very tall old tree stood at the end of our long street.",
            ["One very tall old tree stood", "at the end of our long street."],
        ),
        ("Sure thing — here it is.", ["Sure thing —", "here it is."]),
        ("- milk\n- bread and butter\n", ["milk.", "bread and butter."]),
        ("First:\n\nthen", ["First:", "then."]),
    ],
)
def test_clauses_end_where_a_speaker_would_pause(text: str, clauses: list[str]) -> None:
    assert cut(text) == clauses


def test_the_first_clause_is_short_and_later_ones_are_longer() -> None:
    first, second, *_ = cut("word " * 100)
    assert len(first.split()) == FIRST.hard
    assert len(second.split()) == LATER.hard


def test_a_comma_ends_a_later_clause_only_once_it_is_long() -> None:
    text = "Yes. Red, green, blue, black and white are all colours, and there are more."
    assert cut(text)[1] == "Red, green, blue, black and white are all colours,"


@given(st.lists(st.text(alphabet="abc.,;:!?-'\"1", min_size=1, max_size=6), max_size=80))
def test_no_word_is_lost_added_or_moved(words: list[str]) -> None:
    cutter = ClauseCutter()
    clauses = [cutter.feed(SpokenWord(word)) for word in words] + [cutter.finish()]
    assert " ".join(clause for clause in clauses if clause) == " ".join(words)


@given(st.lists(st.sampled_from(["the", "and", "tree", "of", "runs", "is", "because"]), min_size=1, max_size=120))
def test_no_clause_is_longer_than_the_hard_limit(words: list[str]) -> None:
    cutter = ClauseCutter()
    clauses = [cutter.feed(SpokenWord(word)) for word in words]
    lengths = [len(clause.split()) for clause in clauses if clause]
    assert all(length <= LATER.hard for length in lengths)
    assert all(length <= FIRST.hard for length in lengths[:1])
