"""`input_audio_buffer.append` without reading its JSON again and again.

Fifty times a second a client writes the same event with other audio in it. What stands before and behind the audio is
learned from one that was read in full; a message that begins and ends the same way, with nothing but strict base64 in
between, can only be the same event. Whatever is not like it is read in full, so it gets the same answers as ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .checks import Json

_SHORTEST: Final = 8
"""Characters of audio that an event must have to be learned from: shorter ones may stand elsewhere in it as well."""
_LESSONS: Final = 8
"""Events that are looked at; a client that never writes the same twice is not worth more."""


class AppendForm:
    """How one client writes the event."""

    def __init__(self) -> None:
        self._head = ""
        self._tail = ""
        self._lessons = _LESSONS

    def audio_of(self, message: str) -> str | None:
        """What stands in the place of the audio, base64 or not; None where the message is not of the known form."""
        head, tail = self._head, self._tail
        if not head or not message.startswith(head) or not message.endswith(tail):
            return None
        return message[len(head) : len(message) - len(tail)]

    def learn(self, message: str, event: Mapping[str, Json]) -> None:
        """`event` is what `message` was read as, and it was in order."""
        audio = event.get("audio")
        if not self._lessons or not isinstance(audio, str):
            return
        self._lessons -= 1
        # Without an escape the audio stands in the message as it is; where it stands once, that is its place.
        if len(audio) < _SHORTEST or "\\" in message or message.count(audio) != 1:
            return
        head, _, tail = message.partition(audio)
        if head.endswith('"') and tail.startswith('"'):
            self._head, self._tail = head, tail
