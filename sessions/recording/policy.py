"""What is recorded, how much of it, and for how long it is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

DAY = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingPolicy:
    """Rules for the recordings of a server. Sizes in bytes; None: no limit.

    `consent`: "assumed" records every session whose client does not refuse; "required" records a session from its
    first event, but only once its client has said that the user agrees.
    """

    consent: Literal["assumed", "required"] = "assumed"
    session_bytes: int | None = None
    """How large one recording may become; then it stops, and what there is stays readable."""
    total_bytes: int | None = None
    """How much all of them may take; the oldest go first."""
    free_bytes: int = 256 << 20
    """How much must stay free on the disk."""
    keep_days: float | None = None
    """How long a recording is kept after its end."""
    tenant_days: Mapping[str, float] = field(default_factory=dict)
    """The same for single tenants."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Texts that must not be written, whatever they occur in."""

    @property
    def limited(self) -> bool:
        """Whether anything has ever to go."""
        return self.total_bytes is not None or self.keep_days is not None or bool(self.tenant_days)

    def days(self, tenant: str) -> float | None:
        """How long recordings of `tenant` are kept."""
        return self.tenant_days.get(tenant, self.keep_days)
