"""The fence that travels with every command, tensor, frame and packet."""

from __future__ import annotations

from dataclasses import dataclass

from .quick import quicken

OUT_OF_BAND: int = 2**53 - 1
"""Epoch of responses outside the conversation: no interruption of it concerns them. The largest integer that every
JSON reader keeps exact."""


@dataclass(frozen=True, slots=True)
class Fence:
    """Who may still speak: session, owner incarnation, interruption epoch.

    `incarnation` is the fencing token of the session's owner (it grows when another process takes over);
    `epoch` grows at each committed interruption, client cancel and detach. Data is stamped where it is made
    and never re-labelled.
    """

    session: str
    incarnation: int
    epoch: int

    @property
    def order(self) -> tuple[int, int]:
        """Sort key within one session: (incarnation, epoch)."""
        return (self.incarnation, self.epoch)

    def admits(self, other: Fence) -> bool:
        """Whether data stamped `other` may pass a gate that stands at this fence.

        Exactly the current epoch of the current incarnation of the same session passes, and what is out of band of
        that incarnation. Older is stale; newer is impossible for data that was made under a command of ours, so it is
        refused as well.
        """
        return (
            (other.epoch == self.epoch or other.epoch == OUT_OF_BAND)
            and other.incarnation == self.incarnation
            and other.session == self.session
        )


quicken((Fence,))
