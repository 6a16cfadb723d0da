"""Where sent audio lies on the session timeline, and how much of it was heard: from events and effects alone.

The same rules as the ledger's (`sessions.core.playback`): a hold on a carrier that paces moves what it had not
released; a cut ends what is heard at a content position. Where the peer reports what sounds, what is heard lies where
its reports have it, else where the model of the way does. Pieces come out once nothing can change them any more, which
depends on events alone and not on when they are asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ..core.effects import AdmitFrame, Effect, HoldCarrier, Notify, ResumeCarrier
from ..core.events import CarrierAttached, Event, PlaybackReported
from ..core.notices import PlaybackCleared, PlaybackStopped
from ..core.timeline import TICK_RATE, Ticks
from .way import Way

PATIENCE: Ticks = 60 * TICK_RATE
"""How long a piece waits for a peer's word on whether it was heard."""
REPORTED_WITHIN: Ticks = TICK_RATE // 2
"""How long a piece waits for reports on when it was heard."""
TOGETHER: Ticks = TICK_RATE // 2
"""Frames that follow each other are one piece up to this length."""


@dataclass(slots=True)
class Piece:
    """Content [start, start + length) of `response`, at `placed_at` on the session timeline.

    `source` and `source_start`: the engine's track that it was cut from and where. `pcm`: samples that it is cut from,
    where they are at hand; its own begin `skip` ticks into them. Pieces of the same frames share them. `way`: how long
    it was on its way to the ear, once that is known.
    """

    response: str
    start: Ticks
    length: Ticks
    placed_at: Ticks
    source: str
    source_start: Ticks
    skip: Ticks = 0
    pcm: bytearray = field(default_factory=bytearray)
    way: Ticks | None = None

    @property
    def end(self) -> Ticks:
        return self.placed_at + self.length

    def from_(self, offset: Ticks) -> Piece:
        """Without its first `offset` ticks, which stay where they are."""
        return replace(
            self,
            start=self.start + offset,
            length=self.length - offset,
            placed_at=self.placed_at + offset,
            source_start=self.source_start + offset,
            skip=self.skip + offset,
        )


class Placement:
    """Follows one session. `sent` and `heard` give the pieces that are settled; `end` settles all."""

    def __init__(self) -> None:
        self._sent: deque[Piece] = deque()
        self._heard: deque[Piece] = deque()
        self._settled: deque[Piece] = deque()
        """Of what was heard, what nothing can change any more, at its place."""
        self._growing: tuple[Piece, Piece] | None = None
        """The last of both, while the next frame may be added to them: nothing was taken from them."""
        self._reported: dict[str, Ticks] = {}
        self._over: set[str] = set()
        self._acknowledged = False
        self._paced = False
        self._way = Way(0)
        self._sent_until: Ticks = 0
        """Where the last piece that was settled ended, as it was sent."""
        self._heard_until: Ticks = 0
        """Where it ended, as it was heard."""
        self._held_at: Ticks | None = None
        self._now: Ticks = 0
        self._waits_until: Ticks = 0
        """Before then nothing more can be known of the first piece of `_heard`."""
        self._ended = False

    def event(self, event: Event, now: Ticks) -> None:
        self._now = now
        if type(event) is PlaybackReported:
            self._report(event, now)
        if now >= self._waits_until:
            while self._heard and self._known(self._heard[0]):
                self._settle(self._taken(self._heard))
            self._waits_until = self._heard[0].end + self._way.latest + REPORTED_WITHIN if self._heard else 0
        if type(event) is CarrierAttached:
            self._waits_until = 0
            # What the carrier before had, and is still to be cut, came by the way before.
            for piece in self._heard:
                piece.way = self._way.of(piece.placed_at, piece.length)
            self._acknowledged = event.acknowledged
            self._paced = event.paced
            self._way = Way(event.delay)

    def _report(self, event: PlaybackReported, now: Ticks) -> None:
        """A position is believed where the ledger believes it: it is not beyond what was sent, nor goes back."""
        before = self._reported.get(event.response, 0)
        if event.position <= before:
            return
        for piece in reversed(self._heard):
            if piece.response == event.response and piece.start < event.position:
                into = event.position - piece.start
                if into <= piece.length:
                    self._reported[event.response] = event.position
                    placed_at = piece.placed_at + into
                    self._way.report(placed_at, now - placed_at)
                return

    def effects(self, effects: Sequence[Effect]) -> None:
        """What the core made of the event before; frames among them are admitted by `admit`."""
        for effect in effects:
            kind = type(effect)
            if kind is HoldCarrier:
                if self._paced and self._held_at is None:
                    self._held_at = self._now
            elif kind is ResumeCarrier:
                self._resume()
            elif isinstance(effect, Notify):
                notice = effect.notice
                if isinstance(notice, PlaybackCleared):
                    self._cut(notice.response, notice.heard)
                elif isinstance(notice, PlaybackStopped):
                    self._over.add(notice.response)

    def admit(self, frame: AdmitFrame, pcm: bytes = b"") -> None:
        """A frame was sent."""
        length = frame.end - frame.start
        if self._growing is not None and _follows(self._growing[0], frame):
            sent, heard = self._growing
            sent.length += length
            heard.length += length
            sent.pcm += pcm  # which is also the other's
            return
        sent = Piece(
            frame.response,
            frame.start,
            length,
            frame.placed_at,
            frame.source,
            frame.source_start,
            pcm=bytearray(pcm),
        )
        heard = replace(sent)
        self._waits_until = 0
        for pieces, piece in ((self._sent, sent), (self._heard, heard)):
            _give_way(pieces, frame.placed_at)
            pieces.append(piece)
        self._growing = sent, heard

    def _resume(self) -> None:
        held_at, self._held_at = self._held_at, None
        if held_at is None:
            return
        self._growing = None
        self._waits_until = 0
        for pieces in (self._sent, self._heard):
            moved: list[Piece] = []
            for piece in pieces:
                released = min(max(held_at - piece.placed_at, 0), piece.length)
                if released:
                    moved.append(replace(piece, length=released))
                if released < piece.length:
                    rest = piece.from_(released)
                    rest.placed_at += self._now - held_at
                    moved.append(rest)
            pieces.clear()
            pieces.extend(moved)

    def _cut(self, response: str, heard: Ticks) -> None:
        """Of `response` nothing was heard from content position `heard` on; what was not released never left."""
        self._over.add(response)
        self._growing = None
        self._waits_until = 0
        kept = [_until(piece, heard) if piece.response == response else piece for piece in self._heard]
        self._heard = deque(piece for piece in kept if piece.length > 0)
        if self._paced:
            released = self._now if self._held_at is None else self._held_at
            _give_way(self._sent, released)
        self._held_at = None

    def end(self) -> None:
        """The session is over: nothing changes any more."""
        self._ended = True
        while self._heard:
            self._settle(self._taken(self._heard))

    def sent(self) -> Iterator[Piece]:
        """Pieces of what was sent that are settled now, in order of place."""
        limit = self._now if self._held_at is None else self._held_at
        while self._sent and (self._ended or self._sent[0].end <= limit):
            yield self._taken(self._sent)

    def heard(self) -> Iterator[Piece]:
        """Pieces of what was heard that are settled now, at the place where they reached the ear, in order of place."""
        while self._settled:
            yield self._settled.popleft()

    def _taken(self, pieces: deque[Piece]) -> Piece:
        piece = pieces.popleft()
        if not pieces:
            self._growing = None
        return piece

    def _known(self, piece: Piece) -> bool:
        """Whether nothing can change any more whether, and where, a piece was heard."""
        limit = self._now if self._held_at is None else self._held_at
        if piece.end + self._way.latest + REPORTED_WITHIN > limit:
            return False
        reported = self._reported.get(piece.response)
        if piece.response in self._over or (reported is None and not self._acknowledged):
            return True
        return (reported or 0) >= piece.start + piece.length or piece.end + PATIENCE <= self._now

    def _settle(self, piece: Piece) -> None:
        """Place a piece where it was heard."""
        if piece.way is None:
            piece.way = self._way.of(piece.placed_at, piece.length, goes_on=piece.placed_at == self._sent_until)
        self._sent_until = piece.end
        piece.placed_at += piece.way
        # Where the way has become shorter, so has what was heard.
        lost = self._heard_until - piece.placed_at
        if lost > 0:
            piece = piece.from_(lost)
        if piece.length > 0:
            self._heard_until = piece.end
            self._settled.append(piece)


def _follows(piece: Piece, frame: AdmitFrame) -> bool:
    """Whether `frame` goes on where `piece` ends, and the two are not too long to be one."""
    length = piece.length
    return (
        piece.placed_at + length == frame.placed_at
        and piece.start + length == frame.start
        and piece.source_start + length == frame.source_start
        and piece.response == frame.response
        and piece.source == frame.source
        and length < TOGETHER
    )


def _until(piece: Piece, content: Ticks) -> Piece:
    return replace(piece, length=max(0, min(piece.length, content - piece.start)))


def _give_way(pieces: deque[Piece], place: Ticks) -> None:
    """Of what lies from `place` on nothing is left."""
    while pieces and pieces[-1].end > place:
        if pieces[-1].placed_at < place:
            pieces[-1].length = place - pieces[-1].placed_at
            return
        pieces.pop()


class Sources:
    """Where on `agent_generated` the audio of each engine track lies."""

    def __init__(self) -> None:
        self._spans: dict[str, list[tuple[Ticks, Ticks, Ticks]]] = {}

    def made(self, source: str, start: Ticks, end: Ticks, at: Ticks) -> None:
        """[start, end) of `source` was written at `at`. What does not follow is passed over, as the shell does;
        only an endless track ("duplex") begins anew."""
        spans = self._spans.setdefault(source, [])
        if spans and spans[-1][1] != start:
            if source != "duplex":
                return
            spans.clear()
        if spans and spans[-1][2] + spans[-1][1] - spans[-1][0] == at:
            first, _, place = spans[-1]
            spans[-1] = (first, end, place)
        else:
            spans.append((start, end, at))

    def places(self, source: str, start: Ticks, length: Ticks) -> Iterator[tuple[Ticks, Ticks]]:
        """Where [start, start + length) of `source` lies on `agent_generated`: positions and lengths, in order."""
        end = start + length
        for first, last, at in self._spans.get(source, []):
            begin, stop = max(first, start), min(last, end)
            if begin < stop:
                yield at + begin - first, stop - begin
