"""The Realtime dialect with its opt-in extensions: playback reports, numbered events, and a session to come back to.

The vocabulary is that of vLLM-Omni's duplex client (0.30), which asks for it with `?duplex=1`; strict clients of the
plain protocol refuse event types that they do not know, so nobody else gets any of it. docs/extension.md describes it.

One dialect serves all connections of a session, one after the other: the numbers, the session object and what is kept
for a client that lost its connection go on.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from sessions.core.config import SessionConfig
from sessions.core.events import Close, InputCommit, PlaybackReported, ResponseCreate
from sessions.core.notices import (
    Notice,
    OutputOpened,
    PlaybackAcknowledged,
    PlaybackCleared,
    PlaybackStopped,
)
from sessions.core.timeline import Ticks, from_ms, to_ms
from sessions.ports import OutputFrame

from . import realtime_duplex_in as duplex_in
from . import realtime_session as schema
from .base import ItemAudio, Received, Reply
from .checks import UNSUPPORTED, Json, Object, Rejected, an_integer, an_object, parse, required
from .realtime import RealtimeDialect
from .realtime_duplex_outbox import Gap, Outbox

CLIENT_CLOSE: Final = "client_close"
REPLACED: Final = "replaced"
SESSION_OVER: Final = "session_over"
"""The reason that a carrier is given which came back to a session that ended in the same moment."""

_FOLLOWED: Final = 64
"""Responses whose playback can still be reported on."""


@dataclass(slots=True)
class _Heard:
    """What is known here of one response's playback, in ticks of its audio. `settled`: nothing changes any more."""

    item: str
    sent: Ticks = 0
    heard: Ticks = 0
    settled: bool = False


class RealtimeDuplexDialect(RealtimeDialect):
    """The translator of one session's clients; see `EnduringDialect`."""

    def __init__(
        self,
        model: str,
        defaults: SessionConfig | None = None,
        *,
        patch: Object | None = None,
        intent: str | None = None,
        outbox: Outbox | None = None,
    ) -> None:
        """As `RealtimeDialect`. `outbox`: where what was said is kept. Raises Rejected for a wrong `patch` or
        `intent`."""
        super().__init__(model, defaults, patch=patch, intent=intent)
        self._outbox = outbox or Outbox()
        self._token = ""
        self._attachment = 0
        self._elsewhere = 0
        """Connections that the session had in other processes."""
        self._spoken_to = False
        self._after: int | None = None
        self._replies: list[Reply] = []
        self._played: OrderedDict[str, _Heard] = OrderedDict()
        self._own: Mapping[str, Callable[[Object, str | None], list[Received]]] = {
            "input_audio_buffer.append": self._append,
            "input_audio_buffer.commit": self._commit,
            "playback.ack": self._acknowledge_playback,
            "session.event_ack": self._acknowledge_events,
            "session.heartbeat": self._heartbeat,
            "session.close": self._close,
            "session.resume": self._resume_too_late,
        }

    def begin_with(self, message: str | bytes, possible: Callable[[SessionConfig], None]) -> None:
        """What the client says first, before its session begins, where that is `session.update`.

        It holds from the beginning and stands in `session.created`: this client takes the session from there, whatever
        comes after it. `possible` raises Rejected for a configuration that cannot be; then nothing is changed here. The
        message is still to be received, and is answered as any update.
        """
        if isinstance(message, bytes):
            return
        try:
            event = parse(message)
            if event.get("type") != "session.update":
                return
            merged = self._merged(self._session, required(event, "session", "session"))
            config = schema.to_config(merged, self._defaults)
            possible(config)
        except Rejected:
            return
        self._begin_as(merged, config)

    def note(self) -> Object:
        return {**super().note(), "attachments": self._attachment}

    def recall(self, note: Json) -> None:
        super().recall(note)
        self._elsewhere = an_integer(an_object(note, "note").get("attachments"), "note.attachments", 0, 1 << 31)

    # --- connections -----------------------------------------------------------------------------------------------

    @property
    def outbox(self) -> Outbox:
        """What was said, by number."""
        return self._outbox

    @property
    def resumable(self) -> bool:
        """Whether the session waits for a client that lost its connection."""
        return self._config.grace > 0

    @property
    def spoken_to(self) -> bool:
        """Whether anything came over the newest connection, so that its client has its token."""
        return self._spoken_to

    def attach(self, session: str, token: str, attachment: int, after: int | None = None) -> None:
        """A connection begins, number `attachment` of `session`; `token` is for the next one.

        `after`: it comes back and has got every event up to that number. To be called before anything is received.
        """
        if after is None:
            self._begin(session)
        self._token = token
        self._attachment = self._elsewhere + attachment
        self._after = after
        self._spoken_to = False

    def open(self, session: str) -> list[str]:
        """`session.created`, or to a client that came back `session.resumed` and what it missed.

        Neither has a number: they belong to the connection and are not said again to the next one.
        """
        if self._after is None:
            return [self._unnumbered({"type": "session.created", **self._credentials()})]
        resumed: Object = {"type": "session.resumed", "session_id": session, **self._credentials()}
        if self._elsewhere:
            resumed = {**resumed, "x_talkover": {"owner_changed": True}}
        try:
            return [self._unnumbered(resumed), *self._outbox.after(self._after)]
        except Gap:
            lost = {"type": "session.resync_required", "session_id": session, "reason": "journal_gap"}
            return [self._unnumbered(resumed), self._unnumbered(lost), *self._outbox.after(self._outbox.first - 1)]

    def _credentials(self) -> Object:
        shown: Object = {"session": self._shown(), "attachment_generation": self._attachment}
        return {**shown, "resume_token": self._token} if self.resumable else shown

    def keep(self, entry: Notice | Reply) -> None:
        """It could not be sent; it is kept under its number for a client that comes back."""
        if isinstance(entry, Reply):
            self.reply(entry)
        else:
            self.send(entry)

    def farewell(self, reason: str) -> list[str]:
        """The last words on a connection: the session ended for `reason`, or goes on with another connection."""
        session = str(self._session.get("id", ""))
        if reason == REPLACED:
            place: Object = {"session_id": session, "attachment_generation": self._attachment}
            return [self._unnumbered({"type": "session.replaced", **place})]
        if reason == SESSION_OVER:
            message = "the session ended before it could be resumed; begin a new one"
            return [self._unnumbered(refusal("session_resume_expired", message))]
        event: Object = {"type": "session.closed", "session_id": session, "reason": reason}
        return [self._dump({"type": "session.closed", "session_id": session, "reason": reason, "event": event})]

    # --- in ----------------------------------------------------------------------------------------------------------

    def replies(self) -> list[Reply]:
        """The answers to what was received last that need no session."""
        replies, self._replies = self._replies, []
        return replies

    def _received(self, event: Object, command: str | None) -> list[Received]:
        self._spoken_to = True
        kind = required(event, "type", "type")
        own = self._own.get(kind) if isinstance(kind, str) else None
        if own is not None:
            return own(event, command)
        received = super()._received(event, command)
        return [self._at_its_rate(entry) if isinstance(entry, ItemAudio) else entry for entry in received]

    def _merged(self, current: Object, patch: Json) -> Object:
        return duplex_in.merge(current, patch)

    @property
    def _encoding(self) -> str:
        return duplex_in.encoding_of(self._latest)

    @property
    def _rate(self) -> int:
        rate = self._latest.get("sample_rate_hz")
        return rate if isinstance(rate, int) else duplex_in.RATE

    def _append(self, event: Object, command: str | None) -> list[Received]:
        return list(duplex_in.append(event, self._encoding, self._rate))

    def _at_its_rate(self, item: ItemAudio) -> ItemAudio:
        """Audio inside an item is in the format of the session, like all other input."""
        if self._encoding == duplex_in.FLOAT:
            raise Rejected(UNSUPPORTED, "audio inside an item is 16-bit here; append it instead", "item.content")
        return item if self._hears != "audio/pcm" else ItemAudio(item.create, item.pcm, self._rate)

    def _commit(self, event: Object, command: str | None) -> list[Received]:
        """Without turn detection this client's commit is also its question, unless it says otherwise."""
        latest = self._latest
        answers = latest["type"] == "realtime" and schema.input_of(latest)["turn_detection"] is None
        commit = InputCommit(command)
        if duplex_in.wants_response(event, answers and latest.get("auto_response", True) is True):
            return [commit, ResponseCreate(command=command)]
        return [commit]

    def _acknowledge_playback(self, event: Object, command: str | None) -> list[Received]:
        ack = duplex_in.ack(event)
        response = self._meant(ack)
        heard = self._played[response]
        if heard.settled:
            # The ledger is closed: the answer can only be what stands in it.
            self._replies.append(Reply(self._acknowledged(response, heard.sent, heard.sent, heard.heard, True)))
            return []
        return [PlaybackReported(response, min(from_ms(ack.played), heard.sent))]

    def _meant(self, ack: duplex_in.Ack) -> str:
        """The response that a report is about. Raises Rejected."""
        if ack.item is None and ack.response is None:
            if not self._played:
                raise Rejected("playback_item_not_found", "nothing was said yet that could have been played")
            return next(reversed(self._played))
        response = ack.response
        if ack.item is not None:
            response = next((name for name, heard in self._played.items() if heard.item == ack.item), None)
            if response is None:
                raise Rejected("playback_item_not_found", f"no item {ack.item!r} was said lately", "item_id")
            if ack.response not in (None, response):
                message = f"item {ack.item!r} is of response {response!r}; name that one, or leave one of the two out"
                raise Rejected("playback_item_mismatch", message, "item_id")
        if response is None or response not in self._played:
            raise Rejected("playback_item_not_found", f"no response {ack.response!r} was said lately", "response_id")
        return response

    def _acknowledge_events(self, event: Object, command: str | None) -> list[Received]:
        try:
            self._outbox.acknowledge(duplex_in.event_ack(event))
        except ValueError as error:
            raise Rejected("invalid_event_ack", str(error), "server_event_seq") from None
        return []

    def _heartbeat(self, event: Object, command: str | None) -> list[Received]:
        self._replies.append(Reply({"type": "session.heartbeat_ack", "session_id": self._session["id"]}))
        return []

    def _close(self, event: Object, command: str | None) -> list[Received]:
        return [Close(CLIENT_CLOSE)]

    def _resume_too_late(self, event: Object, command: str | None) -> list[Received]:
        message = "session.resume must be the first message of a connection; connect anew with autostart=0"
        raise Rejected("unsupported_session_resume", message, "type")

    # --- out ---------------------------------------------------------------------------------------------------------

    def send(self, notice: Notice) -> list[str]:
        if isinstance(notice, OutputOpened) and notice.item.spoken and not notice.aside:
            self._follow(notice.response, notice.item.id)
        elif isinstance(notice, PlaybackStopped):
            self._settle(notice.response, None)
        elif isinstance(notice, PlaybackCleared):
            self._settle(notice.response, notice.heard)
        elif isinstance(notice, PlaybackAcknowledged):
            n = notice
            return [self._dump(self._acknowledged(n.response, n.generated, n.sent, n.heard, n.accepted))]
        return super().send(notice)

    def send_frame(self, frame: OutputFrame) -> list[str]:
        heard = self._played.get(frame.response)
        if heard is not None:
            heard.sent = frame.end
        return super().send_frame(frame)

    def reply(self, reply: Reply) -> list[str]:
        """The message for one of `replies`."""
        return [self._dump(reply.message)]

    def _follow(self, response: str, item: str) -> None:
        self._played[response] = _Heard(item)
        while len(self._played) > _FOLLOWED:
            self._played.popitem(last=False)

    def _settle(self, response: str, heard: Ticks | None) -> None:
        known = self._played.get(response)
        if known is not None:
            known.settled = True
            known.heard = known.sent if heard is None else heard

    def _acknowledged(self, response: str, generated: Ticks, sent: Ticks, heard: Ticks, stands: bool) -> Object:
        """`stands`: the position is that of the report, or final."""
        known = self._played.get(response)
        details: Object = {
            "type": "playback.acknowledged",
            "session_id": self._session["id"],
            "response_id": response,
            "item_id": None if known is None else known.item,
            "playback": {
                "generated_ms": to_ms(generated),
                "sent_ms": to_ms(sent),
                "played_ms": to_ms(heard),
                "committed_ms": to_ms(heard),
            },
            "history_committed": stands,
        }
        return {"type": "playback.acknowledged", "event": details}

    def _shown(self) -> Object:
        """The session object with the rate that is heard and what this server can do of the extensions."""
        shown = dict(super()._shown())
        if duplex_in.encoding_of(self._session) in duplex_in.PCM:
            rate = self._session.get("sample_rate_hz", duplex_in.RATE)
            hears: Object = {**schema.input_of(shown), "format": {"type": "audio/pcm", "rate": rate}}
            shown["audio"] = {**an_object(shown["audio"], "session.audio"), "input": hears}
        shown["capabilities"] = {
            "chunk_period_ms": to_ms(self._config.frame),
            "supports_playback_ack": True,
            "supports_session_resume": self.resumable,
            "supports_barge_in": True,
            "supports_client_commit": True,
        }
        return shown

    def _dump(self, event: Mapping[str, object]) -> str:
        text = super()._dump({**event, "server_event_seq": self._outbox.last + 1})
        self._outbox.add(text)
        return text

    def _unnumbered(self, event: Mapping[str, object]) -> str:
        return super()._dump(event)


def refusal(code: str, message: str, param: str | None = None) -> Object:
    """`error` where there is no session to be told of it. "server_error" where the client did nothing wrong."""
    kind = "server_error" if code in ("server_busy", "not_ready") else "invalid_request_error"
    return {
        "type": "error",
        "error": {"type": kind, "code": code, "message": message, "param": param, "event_id": None},
    }
