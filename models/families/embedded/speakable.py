"""Written text into words that can be read aloud: markup, code and pictures go, the words stay."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

_FENCE = "```"
_GAP = re.compile(r"\s*\n\s*|\s+(?=\S)")
"""The end of a word. Blanks at the end of what has come may still be joined by a line break."""
_LINK = re.compile(r"\]\([^()\s]*\)")
_URL = re.compile(r"^(?:https?://)(?:www\.)?([^/\s?#]+)\S*?([.,;:!?)]*)$")
_BREAK = re.compile(r"<br/?>", re.IGNORECASE)
_BULLETS = frozenset({"-", "*", "+", "•", "–", "—", "·"})
_NUMBERED = re.compile(r"^(\d{1,3})[.)]$")
_HEADING = re.compile(r"^#{1,6}$")
_RULE = re.compile(r"^[-*_=|:]{3,}$")
_EDGES = re.compile(r"^[*_~]+|[*_~]+(?=[.,;:!?)\"'’”]*$)")
"""Emphasis; it stands at a word's edges, so that `snake_case` is left alone."""
_KEEP = frozenset("°%&+@#$€£¥₹=/")


@dataclass(frozen=True, slots=True)
class SpokenWord:
    """One word with its punctuation. `ends_line`: a line break follows, which a reader hears as a pause."""

    text: str
    ends_line: bool = False


class Speakable:
    """A streaming filter from pieces of Markdown to words.

    A word comes out once the white space after it has arrived. Lists become sentences, code blocks are left out,
    links keep their label, emoji and control characters vanish. What comes out is both spoken and transcript.
    """

    def __init__(self) -> None:
        self._rest = ""
        self._line_start = True
        self._in_code = False

    def feed(self, text: str) -> list[SpokenWord]:
        self._rest = _BREAK.sub("\n", self._rest + text)
        out: list[SpokenWord] = []
        while match := _GAP.search(self._rest):
            word, gap = self._rest[: match.start()], match.group()
            self._rest = self._rest[match.end() :]
            out += self._take(word, "\n" in gap)
        return out

    def finish(self) -> list[SpokenWord]:
        """What is left once no more text comes."""
        rest, self._rest = self._rest.strip(), ""
        return self._take(rest, True)

    def _take(self, raw: str, ends_line: bool) -> list[SpokenWord]:
        word = self._clean(self._without_code(raw))
        self._line_start = ends_line or (self._line_start and not word)
        return [SpokenWord(word, ends_line)] if word else []

    def _without_code(self, word: str) -> str:
        if _FENCE not in word:
            return "" if self._in_code else word
        kept = []
        for number, part in enumerate(word.split(_FENCE)):
            if number:
                self._in_code = not self._in_code
                if self._in_code:
                    continue  # the fence's language tag
            if not self._in_code:
                kept.append(part)
        return "".join(kept)

    def _clean(self, word: str) -> str:
        if self._line_start:
            if word in _BULLETS or word == ">" or _HEADING.match(word):
                return ""
            if numbered := _NUMBERED.match(word):
                return numbered.group(1) + ":"
            if _RULE.match(word):
                return ""
        if word in _BULLETS:
            return word  # a dash, or an operator
        if url := _URL.match(word):
            word = url.group(1) + url.group(2)
        word = _LINK.sub("", word).replace("`", "")
        word = word.translate({ord(mark): None for mark in "[]{}"}).replace("|", ",")
        word = _EDGES.sub("", word)
        word = _EDGES.sub("", word)
        return "".join(character for character in word if _is_readable(character))


def _is_readable(character: str) -> bool:
    if character in _KEEP:
        return True
    # So, Sk: emoji and their skin tones; Cf, Co, Cs, Cn, Cc: joiners, private, unassigned and control characters; Mn
    # is kept for accents except for the variation selectors.
    if 0xFE00 <= ord(character) <= 0xFE0F:
        return False
    return unicodedata.category(character) not in ("So", "Sk", "Cf", "Co", "Cs", "Cn", "Cc")
