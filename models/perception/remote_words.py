"""From what recognizers elsewhere tell to what ours tells: text with words that join to it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..families.embedded.word_times import Stretch, align
from .asr import LanguageUnsupported, Recognition, TimedWord
from .mel import SAMPLE_RATE

SHORTEST = SAMPLE_RATE // 20
"""Samples below which nobody is asked; nothing can be said in 50 ms."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A word as it was told, in seconds; `end` is NaN where that was not told."""

    text: str
    start: float
    end: float


def language_code(language: str, known: Sequence[str]) -> str:
    """The code of `language` ("en-US": "en"). Raises LanguageUnsupported."""
    code = re.split(r"[-_]", language.strip().lower())[0]
    if code not in known:
        raise LanguageUnsupported(
            f"language {language!r} is not one that this recognizer is said to know: {', '.join(known)}; if it does, "
            f"say so by --asr-language {code}"
        )
    return code


def recognition(text: str, heard: Sequence[Heard], seconds: float, *, times: bool) -> Recognition:
    """`text`, and where `times` are wanted its words; where none were told they share its time by their letters."""
    written = text.split()
    if not times or not written:
        return Recognition(" ".join(written))
    clock, stretches = 0, []
    last = round(seconds * 1000)
    for place, word in enumerate(heard):
        follows = heard[place + 1].start if place + 1 < len(heard) else seconds
        begin = min(max(round(word.start * 1000), clock), last)
        clock = min(max(round((follows if math.isnan(word.end) else word.end) * 1000), begin), last)
        stretches.append(Stretch(word.text, begin, clock))
    spans = align(written, stretches or [Stretch("", 0, last)])
    words = tuple(
        TimedWord(word if not place else f" {word}", begin / 1000, end / 1000)
        for place, (word, (begin, end)) in enumerate(zip(written, spans, strict=True))
    )
    return Recognition(" ".join(written), words)
