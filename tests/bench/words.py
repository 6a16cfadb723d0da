"""Comparing what was said with what was understood."""

from __future__ import annotations

import re
from collections.abc import Sequence

import jiwer

_NUMBERS = {
    "0": "zero",
    "1": "one",
    "2": "two",
    "3": "three",
    "4": "four",
    "5": "five",
    "6": "six",
    "7": "seven",
    "8": "eight",
    "9": "nine",
    "10": "ten",
    "12": "twelve",
    "24": "twenty four",
}


def plain(text: str) -> str:
    """Lower case, letters and digits only, small numbers as words, American spelling of "colour"."""
    words = re.sub(r"[^a-z0-9 ]+", " ", text.lower().replace("'", "").replace("\u2019", "")).split()
    return " ".join(_NUMBERS.get(word, word).replace("colour", "color") for word in words)


def word_error_rate(said: Sequence[str], understood: Sequence[str]) -> float:
    """Word error rate over all pairs together; an empty transcript counts as every word lost."""
    pairs = [(plain(a), plain(b) or "-") for a, b in zip(said, understood, strict=True) if plain(a)]
    return float(jiwer.wer([a for a, _ in pairs], [b for _, b in pairs])) if pairs else 0.0
