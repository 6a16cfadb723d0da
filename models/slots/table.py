"""Who sits in which slot, and in which generation.

A slot is let, left and let again; each time its generation grows. Whatever a slot gives carries the generation that it
was computed for, so that a session which took the slot over can never speak with its former tenant's voice.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from sessions.ports import Busy


@dataclass(frozen=True, slots=True)
class Lease:
    """A session's right to a slot. Compared by value: the generation makes it one of its kind."""

    slot: int
    generation: int


class SlotTable:
    """Leases of `capacity` slots. Not thread-safe: its owner holds a lock.

    `tick` in seconds: what a slot that was just left needs until it can be used again. `usual`: how long a session is
    taken to last before any has ended, in seconds.
    """

    def __init__(self, capacity: int, *, tick: float = 0.08, usual: float = 120.0) -> None:
        if capacity < 1:
            raise ValueError(f"capacity {capacity} must be at least 1")
        self.capacity = capacity
        self._tick = tick
        self._mean = usual
        self._generations = [0] * capacity
        self._since: dict[int, float] = {}
        # The one that was left first is let first, so that a late look at a slot finds it unlet for longest.
        self._free = deque(range(capacity))
        self._unclean: set[int] = set()

    @property
    def taken(self) -> int:
        """Slots that are let."""
        return self.capacity - len(self._free)

    def admit(self, now: float) -> Lease:
        """Let a slot, at once and never waiting. Raises Busy with a guess from how long sessions lasted so far."""
        if not self._free:
            raise Busy(f"all {self.capacity} slots of this engine are taken", self.retry_after(now))
        slot = self._free.popleft()
        self._generations[slot] += 1
        self._since[slot] = now
        self._unclean.add(slot)
        return Lease(slot, self._generations[slot])

    def release(self, lease: Lease, now: float) -> bool:
        """Give a slot back. It may be let again at once: the next tick cleans it before it runs. False: was not let."""
        if not self.holds(lease):
            return False
        lasted = now - self._since.pop(lease.slot)
        self._mean += 0.1 * (lasted - self._mean)
        # Grows here as well, so that nothing of a step in flight is taken for the next tenant's.
        self._generations[lease.slot] += 1
        self._free.append(lease.slot)
        self._unclean.add(lease.slot)
        return True

    def holds(self, lease: Lease) -> bool:
        """Whether `lease` is still the present one of its slot."""
        return lease.slot in self._since and self._generations[lease.slot] == lease.generation

    def soil(self, lease: Lease) -> None:
        """The slot must be zeroed although it stays let: its session begins anew."""
        if self.holds(lease):
            self._unclean.add(lease.slot)

    def clean(self) -> frozenset[int]:
        """Slots whose state must be zeroed before the next step; asked once, they count as zeroed."""
        unclean = frozenset(self._unclean)
        self._unclean.clear()
        return unclean

    def retry_after(self, now: float) -> float:
        """Seconds until a slot will probably be free: the least that a tenant has left of a usual session.

        A tenant that has outlasted the usual may leave at any time; what is then expected of it is a usual share.
        """
        left = (self._mean - (now - since) for since in self._since.values())
        share = self._mean / self.capacity
        return max(self._tick, min((rest if rest > 0 else share for rest in left), default=self._tick))
