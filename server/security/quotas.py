"""How much a tenant may use: the server's settings, and where a tenant's own entry says otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Final


class QuotaError(ValueError):
    """A limit that cannot be; names it and says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """Limits of one tenant; None: none, or for an entry of its own: as the server has it.

    `sessions` at a time; `requests` (responses), `tokens` and `http` (requests and handshakes) a minute; `audio_minute`
    and `audio_day`: seconds of user audio; `message_kb`: longest message of a client, in 1,000 characters.
    """

    sessions: int | None = None
    requests: int | None = None
    tokens: int | None = None
    http: int | None = None
    audio_minute: int | None = None
    audio_day: int | None = None
    message_kb: int | None = None

    @classmethod
    def parse(cls, told: object) -> Quota:
        """Limits by name. Raises QuotaError."""
        if not isinstance(told, dict):
            raise QuotaError("limits must be an object of numbers")
        known = set(NAMES)
        for name, value in told.items():
            if name not in known:
                raise QuotaError(f"there is no limit {str(name)[:40]!r}; there are {', '.join(NAMES)}")
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise QuotaError(f"limit {name} must be a whole number from 1 on; leave it out for the server's")
        return cls(**told)

    def plain(self) -> dict[str, int]:
        """Those that are set."""
        return {name: value for name in NAMES if (value := getattr(self, name)) is not None}

    def over(self, server: Quota) -> Quota:
        """This, and the server's where this says nothing."""
        return Quota(**(server.plain() | self.plain()))


NAMES: Final = tuple(one.name for one in fields(Quota))

QuotaOf = Callable[[str], Quota]
"""The limits of a tenant by its name."""
