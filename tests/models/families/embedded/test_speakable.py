"""`models.families.embedded.speakable`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.families.embedded.speakable import Speakable, SpokenWord


def words(text: str, size: int = 3) -> list[SpokenWord]:
    filter_ = Speakable()
    out = [word for at in range(0, len(text), size) for word in filter_.feed(text[at : at + size])]
    return out + filter_.finish()


def spoken(text: str) -> str:
    return " ".join(word.text for word in words(text))


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("Boil **the water** and *wait*.", "Boil the water and wait."),
        ("It is __really__ ~~bad~~ good.", "It is really bad good."),
        ("Use `print` here.", "Use print here."),
        ("See [the manual](https://x.org/a_b) now.", "See the manual now."),
        ("Go to https://www.example.com/a/b?c=1.", "Go to example.com."),
        ("Great 😀👍🏽! Yes ❤️.", "Great ! Yes ."),
        ("# Title\n\nText", "Title Text"),
        ("- one\n* two\n• three\n1. four\n2) five", "one two three 1: four 2: five"),
        ("> quoted\n\n---\n\nafter", "quoted after"),
        ("before\n```python\nx = 1\n```\nafter", "before after"),
        ("before ```x = 1``` after", "before after"),
        ("a<br>b", "a b"),
        ("It costs $3.50, 20% of 5°.", "It costs $3.50, 20% of 5°."),
        ("2 * 3 - 1", "2 * 3 - 1"),
        ("a\u200bb\ufeff c\u0007", "ab c"),
        ("naïve café", "naïve café"),
        ("snake_case stays", "snake_case stays"),
    ],
)
def test_markup_goes_and_words_stay(written: str, said: str) -> None:
    assert spoken(written) == said


def test_a_word_comes_out_when_the_next_one_begins() -> None:
    filter_ = Speakable()
    assert filter_.feed("Par") == []
    assert filter_.feed("is") == []
    assert filter_.feed(" is") == [SpokenWord("Paris")]
    assert filter_.finish() == [SpokenWord("is", ends_line=True)]


def test_a_line_break_after_a_blank_is_still_a_line_break() -> None:
    filter_ = Speakable()
    out = filter_.feed("one ") + filter_.feed("\n") + filter_.feed("- two") + filter_.finish()
    assert out == [SpokenWord("one", True), SpokenWord("two", True)]


@given(st.text(alphabet="ab `*_#-.1[](){}|>\n😀~", max_size=60), st.integers(1, 7))
def test_pieces_of_any_size_give_the_same_words(text: str, size: int) -> None:
    assert words(text, size) == words(text, 1000)


@given(st.text(max_size=60))
def test_what_comes_out_has_no_blanks_inside_and_is_never_empty(text: str) -> None:
    for word in words(text, 5):
        assert word.text
        assert not any(character.isspace() for character in word.text)
