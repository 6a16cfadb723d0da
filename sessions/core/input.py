"""The input track: watermark, marked gaps, liveness."""

from __future__ import annotations

from dataclasses import dataclass

from .timeline import Span, Ticks


@dataclass(slots=True)
class InputTrack:
    """User audio received contiguously, and when something real last came.

    `watermark`: end of the contiguous track, in ticks; it only grows. `concealed`: ticks of it that were put in the
    place of audio that never came. `live_at`: session time of the last real media. `buffer_start`: where audio that
    belongs to no item yet begins.
    """

    watermark: Ticks = 0
    concealed: Ticks = 0
    live_at: Ticks = 0
    buffer_start: Ticks = 0
    late: int = 0

    def arrive(self, start: Ticks, end: Ticks, concealed: bool, now: Ticks) -> Span | None:
        """Take [start, end); returns the part that is new, or None for a late duplicate.

        A start beyond the watermark is a gap: it is marked as concealed, so that the watermark never lies about
        contiguity and never stops.
        """
        if end <= self.watermark or end <= start:
            self.late += 1
            return None
        if start > self.watermark:
            self.concealed += start - self.watermark
        new = Span(self.watermark, end)
        if concealed:
            self.concealed += end - max(start, self.watermark)
        else:
            self.live_at = now
        self.watermark = end
        return new
