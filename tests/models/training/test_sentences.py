from __future__ import annotations

import re
from itertools import islice

from models.training.sentences import HELD_OUT, sentences


def test_the_same_seed_gives_the_same_sentences() -> None:
    first, again, other = (list(islice(sentences(seed), 300)) for seed in (1, 1, 2))
    assert first == again
    assert len(set(first) & set(other)) < 100


def test_sentences_are_many_and_can_be_spoken() -> None:
    made = list(islice(sentences(3), 2000))
    assert len(set(made)) > 1400
    for sentence in made:
        assert re.fullmatch(r"[A-Z0-9][A-Za-z0-9 ,;:'!?.-]*[.!?]", sentence), sentence
        assert "{" not in sentence


def test_held_out_sentences_are_never_given_for_training() -> None:
    held = {re.sub(r"\W", "", sentence.lower()) for sentence in HELD_OUT}
    assert len(held) == 40
    assert not held & {re.sub(r"\W", "", sentence.lower()) for sentence in islice(sentences(1), 5000)}


def test_held_out_sentences_are_plain_words() -> None:
    for sentence in HELD_OUT:
        assert re.fullmatch(r"[A-Z][A-Za-z ,]+[.?]", sentence), sentence
