"""The two edges between a session's process and a worker: what the user said goes in, what the agent says comes out.

Both carry session state: never shared, never from a cache, of one tenant. Frames may be missing where somebody was too
slow, but none comes twice, late or out of order.
"""

from __future__ import annotations

from dataclasses import replace

from sessions.core.fence import Fence
from sessions.core.timeline import Ticks

from ..envelope import Border, EdgeContract, SessionTerms, TransferEnvelope, TransferRefused, Versions
from ..graph.shapes import Shape
from ..graph.states import Placement, StateKind

DTYPE = "int16"


def heard(hop: int, versions: Versions, placement: Placement = Placement.SAME_HOST) -> EdgeContract:
    """One frame of the user."""
    return _contract("session.heard -> worker.heard", hop, versions, placement)


def said(hop: int, versions: Versions, placement: Placement = Placement.SAME_HOST) -> EdgeContract:
    """One frame of the agent."""
    return _contract("worker.said -> session.said", hop, versions, placement)


def _contract(name: str, hop: int, versions: Versions, placement: Placement) -> EdgeContract:
    return EdgeContract(
        name,
        StateKind.SESSION,
        Shape.parse("B,S"),
        frozenset({DTYPE}),
        placement,
        versions,
        {"B": 1, "S": hop},
        contiguous=False,
    )


def envelope(contract: EdgeContract, fence: Fence, tenant: str, start: Ticks, end: Ticks) -> TransferEnvelope:
    """For one frame under `contract`. It gets its number when it leaves, so what is dropped before leaves no gap."""
    return TransferEnvelope(
        request=fence.session,
        tenant=tenant,
        fence=fence,
        kind=contract.kind,
        shape=(contract.sizes["B"], contract.sizes["S"]),
        dtype=DTYPE,
        start=start,
        end=end,
        sequence=UNNUMBERED,
        owner=contract.name.partition(".")[0],
        versions=contract.versions,
        session=SessionTerms("", 0, fence.epoch),
    )


UNNUMBERED = -1


class Numbering:
    """Gives the frames of many sessions their numbers; each fence counts from 0."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[Fence, int]] = {}

    def number(self, given: TransferEnvelope) -> TransferEnvelope:
        fence, last = self._last.get(given.request, (given.fence, -1))
        sequence = last + 1 if fence == given.fence else 0
        self._last[given.request] = (given.fence, sequence)
        return replace(given, sequence=sequence)

    def forget(self, session: str) -> None:
        self._last.pop(session, None)


class Gate:
    """The receiving end of an edge for one session, as its fence moves on."""

    def __init__(self, contract: EdgeContract, tenant: str, fence: Fence) -> None:
        self._contract = contract
        self._tenant = tenant
        self.fence = fence
        self.end: Ticks = 0
        """Where the last frame that was admitted ended; never later frames before it."""
        self._border = self._fresh()

    def advance(self, fence: Fence) -> None:
        """From here on only frames of `fence` pass."""
        self.fence = fence
        self._border = self._fresh()

    def admit(self, given: TransferEnvelope, pcm: bytes) -> None:
        """Raises TransferRefused."""
        self._border.admit(given, pcm)
        self.end = given.end

    def _fresh(self) -> Border:
        fence = self.fence
        return Border(
            self._contract,
            fence.session,
            self._tenant,
            lambda: fence,
            start=self.end,
            generation=lambda: fence.epoch,
        )


__all__ = ["UNNUMBERED", "Gate", "Numbering", "TransferRefused", "envelope", "heard", "said"]
