"""What is sent: queue, last gate, and packets of 20 ms, encoded when they are due and not before.

A flush therefore leaves nothing behind it: what was queued was never encoded, the encoder forgets what it knew, and one
packet of digital silence, which resets the peer's decoder too, stands between two epochs. No fade reaches over the cut.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from codec import pcm
from codec.opus import OpusEncoder
from sessions.core.fence import OUT_OF_BAND, Fence
from sessions.core.notices import Notice, OutputText
from sessions.core.timeline import TICK_RATE, Ticks
from sessions.ports import OutputFrame

PACKET: Final[Ticks] = TICK_RATE // 50
"""Ticks of a packet: 20 ms."""
SILENCE: Final = b"\xd8\xff\xfe"
"""20 ms of digital silence as the encoder makes it: wide band, and a frame that holds the silence flag alone."""
RISE_MS: Final = 5
"""Length of the rise of a sound that begins, or goes on after a hold."""


class Piece(NamedTuple):
    """Content [start, start + length) of `response` that a packet carries from its tick `offset` on."""

    response: str
    start: Ticks
    length: Ticks
    offset: Ticks


@dataclass(slots=True)
class Release:
    """What is due: the packet's payload, the content in it, and the notices that stood before what comes next."""

    payload: bytes
    pieces: list[Piece] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)


class _Lane:
    """Frames and the notices between them; the head frame may have been taken in part."""

    __slots__ = ("entries", "offset")

    def __init__(self) -> None:
        self.entries: deque[OutputFrame | Notice] = deque()
        self.offset = 0
        """Bytes of the head frame that are gone."""

    def head(self) -> OutputFrame | None:
        entry = self.entries[0] if self.entries else None
        return entry if isinstance(entry, OutputFrame) else None

    def drop(self) -> None:
        self.entries.popleft()
        self.offset = 0

    def keep(self, wanted: Callable[[OutputFrame | Notice], bool]) -> None:
        head = self.head()
        self.entries = deque(entry for entry in self.entries if wanted(entry))
        if self.head() is not head:
            self.offset = 0

    def waiting(self) -> int:
        """Bytes of PCM."""
        return sum(len(entry.pcm) for entry in self.entries if isinstance(entry, OutputFrame)) - self.offset

    def notices(self) -> Iterator[Notice]:
        """Take the notices that no audio stands before."""
        while self.entries and not isinstance(entry := self.entries[0], OutputFrame):
            self.entries.popleft()
            yield entry


class Downlink:
    """One session's way out. `stale` is called with the number of frames that the gate refused."""

    def __init__(self, encoder: OpusEncoder, stale: Callable[[int], None]) -> None:
        """`encoder` has the rate of the frames to come."""
        self._encoder = encoder
        self._stale = stale
        self._rate = encoder.rate
        self._bytes = 2 * self._rate // 50
        self._sample = TICK_RATE // self._rate
        self._said = _Lane()
        self._beside = _Lane()
        """Responses outside the conversation: they sound when nothing else is queued."""
        self._gate: Fence | None = None
        self._held = False
        self._edge = True
        self._rising = True
        self._tail = 0

    def __bool__(self) -> bool:
        """Whether anything is queued."""
        return bool(self._said.entries or self._beside.entries)

    @property
    def waiting(self) -> int:
        """Bytes of PCM queued."""
        return self._said.waiting() + self._beside.waiting()

    # --- in ----------------------------------------------------------------------------------------------------------

    def admit(self, frame: OutputFrame) -> None:
        """Queue a frame. The first one of the conversation sets the gate where no flush did."""
        aside = frame.fence.epoch == OUT_OF_BAND
        if self._gate is None and not aside:
            self._gate = frame.fence
        (self._beside if aside else self._said).entries.append(frame)

    def follow(self, notice: Notice) -> bool:
        """Queue a notice behind the audio of its response, or what is queued; False where it need not wait."""
        response = _response_of(notice)
        if any(isinstance(entry, OutputFrame) and entry.response == response for entry in self._beside.entries):
            self._beside.entries.append(notice)
        elif self._said.entries:
            self._said.entries.append(notice)
        else:
            return False
        return True

    def hold(self) -> None:
        self._held = True

    def resume(self) -> None:
        self._held = False
        self._rising = True

    def flush(self, fence: Fence) -> int:
        """Move the gate, drop all older audio and the captions behind it; returns the number of frames dropped."""
        self._gate = fence
        self._held = False
        silenced: list[str] = []

        def wanted(entry: OutputFrame | Notice) -> bool:
            if isinstance(entry, OutputFrame) and not fence.admits(entry.fence):
                silenced.append(entry.response)
                return False
            return not (isinstance(entry, OutputText) and entry.spoken and entry.response in silenced)

        self._said.keep(wanted)
        self._encoder.reset()
        self._edge = True
        self._tail = 0
        return len(silenced)

    def release_held(self) -> None:
        """The session ends: what is held is not waited for."""
        if self._held:
            self._held = False
            self._said.keep(lambda entry: not isinstance(entry, OutputFrame))
            self._beside.keep(lambda entry: not isinstance(entry, OutputFrame))

    # --- out ---------------------------------------------------------------------------------------------------------

    def next(self) -> Release:
        """The packet that is due now."""
        release = Release(SILENCE)
        if self._edge:
            # After a cut the peer's decoder still holds the old sound; this packet is what makes it forget.
            self._edge = False
            self._rising = True
            self._pass_notices(release)
            return release
        sound = self._take(release)
        if sound:
            if self._rising:
                sound = pcm.to_bytes(pcm.fade_in(pcm.to_samples(sound), self._rate * RISE_MS // 1000))
                self._rising = False
            release.payload = self._encoder.encode(sound + bytes(self._bytes - len(sound)))
            self._tail = 1
        elif self._tail:
            # The encoder still holds the last samples, its lookahead.
            release.payload = self._encoder.encode(bytes(self._bytes))
            self._tail -= 1
            if not self._tail:
                self._encoder.reset()
                self._rising = True
        return release

    def _take(self, release: Release) -> bytes:
        """Up to 20 ms of sound, with the notices on the way."""
        sound = bytearray()
        self._pass_notices(release)
        while not self._held and len(sound) < self._bytes:
            lane = self._said if self._said.entries else self._beside
            frame = lane.head()
            if frame is None:
                break
            if not self._passes(frame.fence):
                self._stale(1)
                lane.drop()
                self._pass_notices(release)
                continue
            first = lane.offset
            part = frame.pcm[first : first + self._bytes - len(sound)]
            if frame.fence.epoch != OUT_OF_BAND:
                start = frame.start + first // 2 * self._sample
                length = len(part) // 2 * self._sample
                release.pieces.append(Piece(frame.response, start, length, len(sound) // 2 * self._sample))
            sound += part
            lane.offset += len(part)
            if lane.offset >= len(frame.pcm):
                lane.drop()
                self._pass_notices(release)
        return bytes(sound)

    def _passes(self, fence: Fence) -> bool:
        # Out-of-band audio may come first: it sets no gate, or nothing of the conversation would pass after it.
        return fence.epoch == OUT_OF_BAND if self._gate is None else self._gate.admits(fence)

    def _pass_notices(self, release: Release) -> None:
        """Hand over the notices that no audio stands before any more."""
        release.notices.extend(self._said.notices())
        release.notices.extend(self._beside.notices())


def _response_of(notice: Notice) -> str:
    response = getattr(notice, "response", "")
    return response if isinstance(response, str) else str(getattr(response, "id", ""))
