"""Cutting a stream of words into clauses that are spoken one by one: the first as soon as it can be said."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .speakable import SpokenWord

_CLOSERS = "\"'’”)»"
_ABBREVIATIONS = frozenset(
    [
        "dr",
        "mr",
        "mrs",
        "ms",
        "prof",
        "sr",
        "jr",
        "st",
        "mt",
        "vs",
        "etc",
        "approx",
        "inc",
        "ltd",
        "co",
        "dept",
        "fig",
        "no",
        "nos",
        "vol",
        "pp",
        "ed",
        "eds",
        "gen",
        "col",
        "sgt",
        "capt",
        "lt",
        "rev",
        "hon",
        "gov",
        "sen",
        "rep",
        "jan",
        "feb",
        "mar",
        "apr",
        "jun",
        "jul",
        "aug",
        "sep",
        "sept",
        "oct",
        "nov",
        "dec",
        "mon",
        "tue",
        "wed",
        "thu",
        "fri",
        "sat",
        "sun",
        "ave",
        "blvd",
        "rd",
        "a.m",
        "p.m",
        "e.g",
        "i.e",
        "cf",
        "al",
        "u.s",
        "u.k",
        "ph.d",
        "b.c",
        "a.d",
    ]
)
_INITIALS = re.compile(r"^(?:[A-Za-z]\.)*[A-Za-z]\.$")
_CONNECTIVES = frozenset(
    [
        "and",
        "but",
        "or",
        "nor",
        "so",
        "yet",
        "because",
        "although",
        "though",
        "while",
        "whereas",
        "if",
        "unless",
        "until",
        "when",
        "where",
        "which",
        "who",
        "that",
        "since",
        "as",
        "after",
        "before",
        "than",
        "then",
        "with",
        "without",
        "from",
        "for",
        "into",
        "about",
        "through",
        "during",
        "between",
    ]
)
_LEANS_FORWARD = frozenset(
    [
        "a",
        "an",
        "the",
        "this",
        "these",
        "those",
        "my",
        "your",
        "his",
        "her",
        "its",
        "our",
        "their",
        "of",
        "to",
        "in",
        "on",
        "at",
        "by",
        "for",
        "from",
        "with",
        "as",
        "and",
        "or",
        "but",
        "nor",
        "is",
        "are",
        "was",
        "were",
        "be",
        "been",
        "being",
        "am",
        "not",
        "no",
        "very",
        "more",
        "most",
        "so",
        "such",
        "will",
        "would",
        "can",
        "could",
        "should",
        "may",
        "might",
        "must",
        "do",
        "does",
        "did",
        "has",
        "have",
        "had",
        "i",
        "you",
        "he",
        "she",
        "it",
        "we",
        "they",
        "that",
        "which",
        "who",
        "if",
        "because",
        "into",
        "about",
        "than",
    ]
)
"""Words that want their successor in the same breath."""


@dataclass(frozen=True, slots=True)
class ClauseLengths:
    """Sizes in words.

    `soft`: from here a comma ends the clause. `joint`: from here it may end before a connective. `hard`: it ends here
    at the latest, at the best joint seen.
    """

    soft: int
    joint: int
    hard: int


FIRST = ClauseLengths(soft=2, joint=5, hard=8)
"""About what a small model thinks in a quarter of a second."""
LATER = ClauseLengths(soft=8, joint=14, hard=24)
"""Longer clauses sound better, and there is time while the first is heard."""


def ends_sentence(word: str) -> bool:
    """Whether `word`, with its punctuation, closes a sentence ("Paris.", "no?") and not only itself ("Dr.", "e.g.")."""
    bare = word.rstrip(_CLOSERS)
    if bare.endswith(("!", "?", "…", "...")):
        return True
    if not bare.endswith("."):
        return False
    stem = bare[:-1].lstrip("(\"'‘“").lower()
    if not stem or stem in _ABBREVIATIONS:
        return False
    return not (_INITIALS.match(bare) and bare != "I.")


class ClauseCutter:
    """Collects words and gives back clauses. Numbers and abbreviations are whole words here, so they are never cut."""

    def __init__(self, first: ClauseLengths = FIRST, later: ClauseLengths = LATER) -> None:
        self._words: list[str] = []
        self._lengths = first
        self._later = later

    def feed(self, word: SpokenWord) -> str | None:
        """The clause that `word` completes, if it does."""
        text = word.text
        if self._words and not any(character.isalnum() for character in text):
            # A dash or a stray comma belongs to the word before it.
            self._words[-1] += " " + text
        else:
            self._words.append(text)
        count = len(self._words)
        if word.ends_line:
            if self._words[-1][-1].isalnum():
                self._words[-1] += "."
            return self._cut(count)
        last = self._words[-1]
        if ends_sentence(last):
            return self._cut(count)
        if last.rstrip(_CLOSERS).endswith((",", ";", ":", "—", "–")) and count >= self._lengths.soft:
            return self._cut(count)
        if count > self._lengths.joint and text.lower() in _CONNECTIVES:
            return self._cut(count - 1)
        if count >= self._lengths.hard:
            return self._cut(self._best_joint())
        return None

    def finish(self) -> str | None:
        """What is left once no more words come."""
        return self._cut(len(self._words)) if self._words else None

    def _best_joint(self) -> int:
        """Words to speak now so that none of them hangs on the next one; at least half of what there is."""
        count = len(self._words)
        for size in range(count, count // 2, -1):
            if self._words[size - 1].lower() not in _LEANS_FORWARD:
                return size
        return count

    def _cut(self, size: int) -> str:
        clause, self._words = self._words[:size], self._words[size:]
        self._lengths = self._later
        return " ".join(clause)
