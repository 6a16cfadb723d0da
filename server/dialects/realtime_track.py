"""The Realtime dialect where audio goes by a media track, and what only we say there."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from sessions.core.config import SessionConfig
from sessions.core.notices import Notice

from . import realtime_session as schema
from .checks import Json, Object, a_list, a_string, an_object
from .realtime import RealtimeDialect

MISSED_MOST: Final = 256
"""Events that are kept for a client that comes back; the newest stay."""


class TrackDialect(RealtimeDialect):
    """One call's translator. It serves all connections of its session, one after the other."""

    def __init__(self, model: str, defaults: SessionConfig | None = None, *, patches: Sequence[Object] = ()) -> None:
        """See `RealtimeDialect`. `patches`: session objects to begin with, the later ones over the earlier: what a key
        was made for, and what the call itself says. Raises Rejected for a wrong one."""
        super().__init__(model, defaults, patch=patches[0] if patches else None, track=True)
        for patch in patches[1:]:
            self._session = self._merged(self._session, patch)
        self._config = schema.to_config(self._session, self._defaults)
        self._hears = schema.format_of(schema.input_of(self._session))
        self._missed: deque[str] = deque(maxlen=MISSED_MOST)
        self.resumable = False
        """Whether the client said that it may come back."""
        self.resume_token = ""
        """What the next connection must show to join the session; stands in `session.x_talkover.resume_token`."""

    def _shown(self) -> Object:
        shown = super()._shown()
        if not self.resumable:
            return shown
        own = shown.get("x_talkover")
        ours: Object = own if isinstance(own, Mapping) else {}
        return {**shown, "x_talkover": {**ours, "resume_token": self.resume_token}}

    def note(self) -> Object:
        return {**super().note(), "missed": list(self._missed)}

    def recall(self, note: Json) -> None:
        super().recall(note)
        missed = a_list(an_object(note, "note").get("missed"), "note.missed")
        self._missed.extend(a_string(text, "note.missed") for text in missed)

    def miss(self, notice: Notice) -> None:
        """`notice` finds no connection. A client that comes back is told of it then."""
        messages = self.send(notice)
        if self.resumable:
            self._missed.extend(messages)

    def missed(self) -> list[str]:
        """What was said while no connection was there, each once."""
        messages = list(self._missed)
        self._missed.clear()
        return messages

    def own(self, name: str, values: Mapping[str, Json]) -> list[str]:
        """The event "x_talkover.`name`" for a client that asked for our notices, else none."""
        if not schema.wants_notices(self._session):
            return []
        return [self._dump({"type": f"x_talkover.{name}", **values})]

    def too_large(self, kind: str, most: int) -> str:
        """The error in the place of an event `kind` that is longer than the `most` bytes that the client takes."""
        return self._dump(
            {
                "type": "error",
                "error": {
                    "type": "server_error",
                    "code": "message_too_large",
                    "message": f"an event {kind[:80]!r} has more than the {most} bytes that this data channel takes "
                    "and was not sent; open a sideband WebSocket (?call_id=) for events of that size",
                    "param": None,
                    "event_id": None,
                },
            }
        )
