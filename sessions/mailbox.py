"""The mailbox of a session: one order for everything, bounded for audio."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from .core.events import AudioArrived, Event
from .ports import CarrierPort


@dataclass(slots=True)
class Mail:
    """An event with the samples that it stands for (None: no audio, or audio dropped by overflow)."""

    event: Event
    pcm: bytes | None = None
    rate: int = 0
    carrier: CarrierPort | None = None
    """Of a `CarrierAttached` for a session that lives already: the carrier that joins it."""


class Mailbox:
    """First in, first out. Control is never dropped; of audio the newest is kept.

    When more than `audio_limit` bytes of input wait, the oldest waiting audio loses its samples: its event stays, in
    its place, as a concealed gap, so that the input track goes on without a hole.
    """

    def __init__(self, audio_limit: int) -> None:
        self._mail: deque[Mail] = deque()
        self._waiting: deque[Mail] = deque()
        self._audio_limit = audio_limit
        self._audio = 0

    def __len__(self) -> int:
        return len(self._mail)

    @property
    def audio_bytes(self) -> int:
        return self._audio

    def put(self, mail: Mail) -> int:
        """Add; returns how many waiting audio events lost their samples."""
        self._mail.append(mail)
        if not isinstance(mail.event, AudioArrived) or mail.pcm is None:
            return 0
        self._waiting.append(mail)
        self._audio += len(mail.pcm)
        lost = 0
        while self._audio > self._audio_limit and len(self._waiting) > 1:
            oldest = self._waiting.popleft()
            self._audio -= len(oldest.pcm or b"")
            oldest.event = AudioArrived(oldest.event.start, oldest.event.end, True)  # type: ignore[union-attr]
            oldest.pcm = None
            lost += 1
        return lost

    def take(self) -> Mail | None:
        """The oldest mail, or None when there is none."""
        if not self._mail:
            return None
        mail = self._mail.popleft()
        if self._waiting and self._waiting[0] is mail:
            self._waiting.popleft()
            self._audio -= len(mail.pcm or b"")
        return mail
