"""When each word is spoken, as far as that can be known.

The talker is given the text ahead of the sound and says nowhere which frame speaks which word. So a word is placed by
how long the characters before it take at a usual pace, and never before the frames that have heard of it; what is left
when the speech is over lies at its end. A cut history thereby keeps too little rather than too much.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from sessions.core.timeline import TICK_RATE, Ticks, Word

CHARACTER: Ticks = TICK_RATE // 15
"""About how long a character sounds."""


@dataclass(slots=True)
class WordTimes:
    """Places the words of one response in its sound."""

    _waiting: deque[tuple[str, Ticks, Ticks]] = field(default_factory=deque)
    _open: str = ""
    _known: Ticks = 0
    _characters: int = 0

    def text(self, text: str, now: Ticks) -> None:
        """More text, known when the sound was `now` long. A word ends where the next one begins with a space."""
        for character in text:
            if character.isspace() and self._open.strip():
                self._close()
            if not self._open:
                self._known = now
            self._open += character

    def _close(self) -> None:
        begin = max(self._known, self._characters * CHARACTER)
        self._characters += len(self._open)
        self._waiting.append((self._open, begin, max(begin, self._characters * CHARACTER)))
        self._open = ""

    def due(self, begin: Ticks, end: Ticks) -> list[Word]:
        """Words whose sound begins before `end`, relative to `begin`, in order."""
        words: list[Word] = []
        while self._waiting and self._waiting[0][1] < end:
            text, start, stop = self._waiting.popleft()
            words.append(Word(text, max(0, start - begin), max(0, stop - begin)))
        return words

    def rest(self, begin: Ticks, end: Ticks) -> list[Word]:
        """All that is left, for the last sound [begin, end): whatever has no sound of its own lies at its end."""
        if self._open:
            self._close()
        words = [
            Word(text, min(max(0, start - begin), end - begin), min(max(0, stop - begin), end - begin))
            for text, start, stop in self._waiting
        ]
        self._waiting.clear()
        return words
