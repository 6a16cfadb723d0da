"""Frames of a reply that leave one after the other, in one step instead of one each.

Between two events a reply goes out by the clock: the timer "pump" is due once a frame, one frame is placed behind the
one before, and the timer is set again. Nothing is decided there, so a whole stretch of it is a sum. This is the one
place outside the core that moves its state; `tests/loadtest/test_coalesce.py` compares each frame with the core's own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sessions.core.effects import AdmitFrame
from sessions.core.state import State
from sessions.core.timeline import Ticks


@dataclass(frozen=True, slots=True)
class FrameRun:
    """`count` frames of one length without a gap, of which `first` is the first."""

    first: AdmitFrame
    count: int

    def frames(self) -> list[AdmitFrame]:
        """The effects that the core would have had."""
        first = self.first
        length = first.end - first.start
        return [
            replace(
                first,
                sequence=first.sequence + number,
                start=first.start + number * length,
                end=first.end + number * length,
                placed_at=first.placed_at + number * length,
                source_start=first.source_start + number * length,
            )
            for number in range(self.count)
        ]


def let_out(state: State, until: Ticks) -> FrameRun | None:
    """What the timer "pump" would let out, each time that it is due up to `until`; None where it is the core's to say.

    The core's are the first frame and the last, what waits for its sound (words, texts, calls), and the frame that asks
    the engine for more.
    """
    due, response, ledger, config = state.pump_due, state.active, state.ledger, state.config
    turns = config.turns
    if due is None or response is None or due < state.now or state.held or state.blocked or not state.attached:
        return None
    if not response.outputs or response.words or response.texts or response.calls:
        return None
    if state.idle_due is not None or (turns is not None and turns.idle_timeout_ms is not None):
        return None
    track, frame = ledger.tracks[response.id], config.frame
    last = track.segments[-1] if track.segments else None
    if last is None or last.placed_at + last.length != ledger.clock:
        return None
    if ledger.clock + frame - max(config.lead, frame) != due:
        return None
    count = min((until - due) // frame + 1, (track.generated - track.admitted) // frame - 1)
    if not response.done:
        count = min(count, (response.credit - config.credit // 2 - track.admitted) // frame)
    item = state.conversation.find(response.item)
    if count < 2 or item is None:
        return None
    start, placed_at, moved = track.admitted, ledger.clock, count * frame
    base = response.base + start
    first = AdmitFrame(
        state.fence, state.sequence, response.id, item.id, start, start + frame, placed_at, response.source, base
    )
    last.length += moved
    ledger.clock += moved
    track.admitted = item.sent = start + moved
    state.sequence += count
    state.pump_due = due + moved
    state.now = due + moved - frame
    return FrameRun(first, count)
