"""What the browser tests conclude from a recording."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from models.perception.asr import TimedWord
from tests.browser.listening import sounded, words_beyond

RATE = 16_000


def sound(seconds: float) -> NDArray[np.int16]:
    """Sound, then silence."""
    return np.concatenate([np.full(round(seconds * RATE), 4000, np.int16), np.zeros(RATE, np.int16)])


def test_a_sentence_that_was_cut_off_is_not_completed_by_who_writes_it_down() -> None:
    words = [
        TimedWord("It", 5.54, 5.56),
        TimedWord(" was", 5.56, 5.68),
        TimedWord(" built", 5.68, 5.84),
        TimedWord(" in", 5.84, 6.07),
        TimedWord(" 1930.", 6.07, 6.07),
    ]
    assert sounded(words, sound(5.82), RATE) == "It was built"
    assert sounded(words, sound(6.4), RATE) == "It was built in 1930."
    assert sounded(words, sound(0), RATE) == ""


def test_words_are_counted_at_the_end_and_not_where_the_spelling_differs() -> None:
    assert words_beyond("The Golden Hind is a ship", "The Golden Heine is a ship that sails") == (0, 2)
    assert words_beyond("The Golden Hind is a ship", "The Golden Heine is") == (2, 0)
