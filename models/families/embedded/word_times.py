"""Where each written word lies in the synthesis, from the model's own phoneme durations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher


@dataclass(frozen=True, slots=True)
class Stretch:
    """A pronounced word of the normalized text and how many duration units it takes, from `start` to `end`."""

    text: str
    start: int
    end: int


def align(written: Sequence[str], pronounced: Sequence[Stretch]) -> list[tuple[int, int]]:
    """(start, end) for each written word, in the units of `pronounced`; they never overlap or run backwards.

    Reading aloud may turn one word into several ("$5.20") or the other way round; what does not match word for word
    shares the time of its passage by number of letters. A word that makes no sound gets no time.
    """
    spans: list[tuple[int, int]] = [(0, 0)] * len(written)
    matcher = SequenceMatcher(None, [_key(word) for word in written], [_key(word.text) for word in pronounced], False)
    clock = pronounced[0].start if pronounced else 0
    for tag, first, last, from_, to in matcher.get_opcodes():
        if tag == "equal":
            for index, stretch in zip(range(first, last), pronounced[from_:to], strict=True):
                spans[index] = (stretch.start, stretch.end)
            clock = pronounced[to - 1].end
            continue
        begin, end = (pronounced[from_].start, pronounced[to - 1].end) if to > from_ else (clock, clock)
        weights = [sum(map(str.isalnum, word)) for word in written[first:last]]
        total = sum(weights) or 1
        passed = 0
        for index, weight in zip(range(first, last), weights, strict=True):
            left = begin + (end - begin) * passed // total
            passed += weight
            spans[index] = (left, begin + (end - begin) * passed // total)
        clock = end
    return spans


def _key(word: str) -> str:
    return "".join(character for character in word.lower() if character.isalnum())
