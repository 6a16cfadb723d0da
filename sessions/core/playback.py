"""The playback ledger: where every generated sample of a response ended.

Content positions count inside one response's audio; placements lie on the session timeline. A hold moves placement,
never content.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .notices import HeardBy
from .timeline import Ticks, from_ms

STANDS: Ticks = from_ms(20)
"""A client that is at the same place so much later stands still; sooner it only said it twice."""


@dataclass(slots=True)
class Segment:
    """Content [start, start + length) placed at `placed_at`, without a pause inside."""

    start: Ticks
    length: Ticks
    placed_at: Ticks


@dataclass(slots=True)
class Track:
    """One response's audio.

    `delay`: from a sample's placement to the ear. `held_at`: since when a carrier that paces releases nothing.
    `standing`: the client said again, and later, that it is at the same place.
    generated >= admitted >= heard. After `settle` or `freeze` every generated tick is in exactly one of `played`,
    `cleared`, `stale`, `unknown`.
    """

    response: str
    acknowledged: bool
    delay: Ticks = 0
    held_at: Ticks | None = None
    generated: Ticks = 0
    admitted: Ticks = 0
    segments: list[Segment] = field(default_factory=list)
    reported: Ticks = 0
    reported_at: Ticks | None = None
    standing: bool = False
    closed: bool = False
    played: Ticks = 0
    cleared: Ticks = 0
    stale: Ticks = 0
    unknown: Ticks = 0

    def admit(self, length: Ticks, placed_at: Ticks) -> None:
        last = self.segments[-1] if self.segments else None
        if last is not None and last.placed_at + last.length == placed_at:
            last.length += length
        else:
            self.segments.append(Segment(self.admitted, length, placed_at))
        self.admitted += length

    def report(self, position: Ticks, now: Ticks) -> bool:
        """A client's word on what it has played; False when it cannot be true (beyond what was sent, or going back)."""
        if self.closed or position > self.admitted or position < self.reported:
            return False
        if self.reported_at is not None and position == self.reported:
            self.standing = self.standing or now - self.reported_at >= STANDS
        else:
            self.standing = False
            self.reported = position
            self.reported_at = now
        return True

    def hold(self, now: Ticks) -> None:
        """The carrier releases nothing from `now` on."""
        if self.held_at is None and not self.closed:
            self.held_at = now

    def resume(self, now: Ticks) -> None:
        """The carrier goes on: what it had not released at the hold lies so much later."""
        held_at, self.held_at = self.held_at, None
        if held_at is None:
            return
        if self.standing:
            self.standing = False
            self.reported_at = now
        moved: list[Segment] = []
        for segment in self.segments:
            released = min(max(held_at - segment.placed_at, 0), segment.length)
            if released:
                moved.append(Segment(segment.start, released, segment.placed_at))
            if released < segment.length:
                placed_at = segment.placed_at + released + now - held_at
                moved.append(Segment(segment.start + released, segment.length - released, placed_at))
        self.segments = moved

    def released(self, now: Ticks) -> Ticks:
        """Content whose time had come at `now`."""
        if self.held_at is not None:
            now = min(now, self.held_at)
        position = 0
        for segment in reversed(self.segments):
            if segment.placed_at < now:
                position = segment.start + min(segment.length, now - segment.placed_at)
                break
        return position

    def heard(self, now: Ticks) -> Ticks:
        """Playback position at `now`: the latest report carried on to now, else the model.

        The model: each sample is heard `delay` after its placement. A report is never carried beyond what has been
        released: what was placed behind a pause cannot be heard before it. Nor is the report of a client that stands
        still, which has less than the model says was released. On a carrier that acknowledges, nothing counts as heard
        before the first report.
        """
        if self.closed:
            return self.played
        if self.standing:
            return self.reported
        if self.reported_at is not None:
            return max(self.reported, min(self.reported + now - self.reported_at, self.released(now)))
        return 0 if self.acknowledged else self.released(now - self.delay)

    @property
    def heard_out(self) -> Ticks:
        """When `heard` reaches the end of what was admitted, unless a hold or a further report changes it."""
        last = self.segments[-1]
        released = last.placed_at + last.length
        if self.reported_at is None:
            return released + self.delay
        return max(released, self.reported_at + self.admitted - self.reported)

    @property
    def heard_by(self) -> HeardBy:
        """What `heard` rests on."""
        return "model" if self.reported_at is None and not self.acknowledged else "report"

    def freeze(self, now: Ticks, lost: bool = False) -> Ticks:
        """Cut at `now`: what was heard stays played, the rest of what was sent is cleared (`lost`: unknown)."""
        if self.closed:
            return self.played
        heard = self.reported if lost and self.acknowledged else self.heard(now)
        self.closed = True
        self.played = heard
        if lost:
            self.unknown = self.admitted - heard
        else:
            self.cleared = self.admitted - heard
        self.cleared += self.generated - self.admitted
        return heard

    def settle(self, now: Ticks) -> None:
        """Playback is over without a cut: what was sent was played, as far as the peer's word goes."""
        heard = self.heard(now)
        self.closed = True
        self.played = heard
        self.unknown = self.admitted - heard
        self.cleared = self.generated - self.admitted

    def drop_stale(self, length: Ticks) -> None:
        """Audio that arrived after the cut."""
        self.generated += length
        self.stale += length

    @property
    def balanced(self) -> bool:
        return self.generated == self.played + self.cleared + self.stale + self.unknown


@dataclass(slots=True)
class Ledger:
    """All tracks of a session. Closed tracks are folded into totals, so a long session stays small."""

    tracks: dict[str, Track] = field(default_factory=dict)
    clock: Ticks = 0
    """Where the last admitted sample ends on the session timeline."""
    paced: bool = False
    """Whether the carrier releases samples when their time has come (see `CarrierAttached`)."""
    delay: Ticks = 0
    """From a sample's placement to the ear."""
    held_at: Ticks | None = None
    """Since when a carrier that paces releases nothing."""
    folded: int = 0
    generated: Ticks = 0
    played: Ticks = 0
    cleared: Ticks = 0
    stale: Ticks = 0
    unknown: Ticks = 0

    def open(self, response: str, acknowledged: bool) -> Track:
        track = Track(response, acknowledged, self.delay)
        self.tracks[response] = track
        return track

    def place(self, track: Track, length: Ticks, now: Ticks) -> Ticks:
        """Admit `length` ticks of `track`; returns where they lie on the session timeline."""
        placed_at = max(now, self.clock)
        track.admit(length, placed_at)
        self.clock = placed_at + length
        return placed_at

    def hold(self, now: Ticks) -> None:
        """The carrier was told to hold. One that does not pace has sent everything: nothing changes."""
        if self.paced:
            self.held_at = now
            for track in self.tracks.values():
                track.hold(now)

    def resume(self, now: Ticks) -> None:
        """The carrier was told to go on."""
        if self.held_at is None:
            return
        self.clock += now - self.held_at if self.clock > self.held_at else 0
        self.held_at = None
        for track in self.tracks.values():
            track.resume(now)

    def cut(self, now: Ticks) -> None:
        """After a flush nothing is ahead of playback any more, and no hold holds anything."""
        self.clock = min(self.clock, now)
        self.held_at = None

    @property
    def silent_from(self) -> Ticks:
        """When the last admitted sample will have been heard, as the model has it."""
        return self.clock + self.delay

    def sounding(self, now: Ticks) -> list[Track]:
        """Tracks with sent audio that has not been played to its end."""
        return [track for track in self.tracks.values() if not track.closed and track.admitted > track.heard(now)]

    def fold(self, response: str) -> None:
        """Forget a closed track, keeping its sums."""
        track = self.tracks.pop(response)
        self.folded += 1
        self.generated += track.generated
        self.played += track.played
        self.cleared += track.cleared
        self.stale += track.stale
        self.unknown += track.unknown

    def drop_stale(self, length: Ticks) -> None:
        """Audio of a response whose track is already folded."""
        self.generated += length
        self.stale += length

    @property
    def balanced(self) -> bool:
        return self.generated == self.played + self.cleared + self.stale + self.unknown and all(
            track.balanced for track in self.tracks.values() if track.closed
        )
