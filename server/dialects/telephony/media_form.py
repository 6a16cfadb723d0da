"""Media events without reading their JSON again and again.

Fifty times a second a vendor writes the same event with other numbers and other audio in it. How it is written is
learned from one that was read in full: a message that is the same but for the digits of its numbers and for what stands
in the place of its audio can only be the same event. Whatever is not like it is read in full.
"""

from __future__ import annotations

import re
from typing import Final

_SHORTEST: Final = 8
"""Characters of audio that an event must have to be learned from: shorter ones may stand elsewhere in it as well."""
_LESSONS: Final = 8
"""Events that are looked at; a vendor that never writes the same twice is not worth more."""
_NUMBER: Final = "(0|[1-9][0-9]{0,14})"


class MediaForm:
    """How one vendor writes the event in one call."""

    def __init__(self, counted: tuple[str, ...], ignored: tuple[str, ...] = ()) -> None:
        """`counted`: the names of fields whose numbers are wanted; `ignored`: of those whose numbers are not."""
        self._counted = counted
        self._field = re.compile(f'"({"|".join(map(re.escape, (*counted, *ignored)))})"\\s*:\\s*"?(?={_NUMBER}\\b)')
        self._pattern: re.Pattern[str] | None = None
        self._order: tuple[int, ...] = ()
        self._lessons = _LESSONS

    def read(self, message: str) -> tuple[str, list[int | None]] | None:
        """What stands in the place of the audio, base64 or not, and the numbers, None for each that the event does not
        have; None where the message is not of the known form."""
        if self._pattern is None or (found := self._pattern.fullmatch(message)) is None:
            return None
        parts = found.groups()
        return parts[self._order[0]], [None if at < 0 else int(parts[at]) for at in self._order[1:]]

    def learn(self, message: str, payload: str) -> None:
        """`message` was an event in order, whose audio is `payload`."""
        if not self._lessons:
            return
        self._lessons -= 1
        # Without an escape the audio stands in the message as it is; where it stands once, that is its place.
        if len(payload) < _SHORTEST or "\\" in message or message.count(payload) != 1:
            return
        audio = message.index(payload)
        if message[audio - 1] != '"' or message[audio + len(payload)] != '"':
            return
        places = {audio: len(payload)}
        names: dict[int, str] = {audio: ""}
        for field in self._field.finditer(message):
            if field[1] in names.values():
                return  # which of the two counts is for the parser to say
            places[field.end()] = len(field[2])
            names[field.end()] = field[1]
        pattern, at = [], 0
        for begin in sorted(places):
            pattern += [re.escape(message[at:begin]), _NUMBER if names[begin] else "([A-Za-z0-9+/=]*)"]
            at = begin + places[begin]
        pattern.append(re.escape(message[at:]))
        order = [names[begin] for begin in sorted(places)]
        self._order = (order.index(""), *(order.index(name) if name in order else -1 for name in self._counted))
        self._pattern = re.compile("".join(pattern))
