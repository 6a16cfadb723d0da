"""The Realtime dialect (general availability): the protocol of /v1/realtime, over a WebSocket or a data channel.

Two things here are our own and harmless to others: audio deltas carry `x_epoch`, `x_seq` and `x_ticks`, and a client
that sets `session.x_talkover.notices` also gets our notices as events named "x_talkover.…", whose positions are ticks
of 1/48000 s. They are off by default because strict clients refuse event types that they do not know.
"""

from __future__ import annotations

import binascii
import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from sessions.core.config import SessionConfig
from sessions.core.events import CommandRejected, ConfigUpdate
from sessions.core.fence import OUT_OF_BAND, Fence
from sessions.core.notices import (
    CommandFailed,
    Notice,
    OutputClosed,
    OutputOpened,
    ResponseClosed,
    ResponseOpened,
    SessionConfigured,
)
from sessions.core.timeline import Ticks
from sessions.ports import OutputFrame

from . import realtime_in, realtime_out
from . import realtime_session as schema
from . import realtime_transcription as kinds
from .base import InputAudio, Meter, Received
from .checks import INVALID_VALUE, Json, Object, Rejected, a_string, an_object, parse, required
from .realtime_append import AppendForm
from .realtime_audio import OutputLane

_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))
_UPDATE: Final = "session.update/"
_CONFIG_PARAMS: Final = {
    "voice": "session.audio.output.voice",
    "speed": "session.audio.output.speed",
    "denoise": "session.audio.input.noise_reduction",
    "transcript_logprobs": "session.include",
}
"""Fields that the core can refuse in an update, by its own names."""


@dataclass(frozen=True, slots=True)
class _Pending:
    """A session.update that the core has not answered yet. `client` is the client's id of it."""

    key: str
    session: Object
    config: SessionConfig
    client: str | None


class RealtimeDialect:
    """One client's translator; see `Dialect`."""

    def __init__(
        self,
        model: str,
        defaults: SessionConfig | None = None,
        *,
        patch: Object | None = None,
        track: bool = False,
        intent: str | None = None,
    ) -> None:
        """`model`: the name that the client asked for. `defaults`: what holds where the client says nothing. `patch`:
        a session object to begin with, as by session.update. `track`: audio goes by a media track, so no audio deltas
        are sent and the output buffer is reported instead. `intent`: as in the address of the session; "transcription"
        for one that only listens (so does a `patch` of that type).

        Raises Rejected for a wrong `patch` or `intent`.
        """
        self._defaults = defaults or SessionConfig()
        session = schema.initial(model, self._defaults, kinds.kind_of(intent, patch))
        if patch is not None:
            session = schema.merge(session, patch)
        self._begin_as(session, schema.to_config(session, self._defaults))
        self._conversation = ""
        self._track = track
        self._pending: deque[_Pending] = deque()
        self._updates = 0
        self._events = 0
        self._appends = AppendForm()
        self._beside: dict[str, OutputLane] = {}
        self._places: dict[str, int] = {}
        self.meter: Meter | None = None
        """What counts this client's responses, where there are limits."""
        self.recorded = False
        """Whether the server records; stands in `session.x_talkover.recording`."""
        self.sees = False
        """Whether the engine takes images; stands in `session.x_talkover.images`."""
        self.changed: Callable[[], None] = lambda: None
        """Called when another session object is in force."""
        self._head: tuple[str, str] = ("", "")
        self._head_text = ""

    def _begin_as(self, session: Object, config: SessionConfig) -> None:
        """`session` is in force, and means `config`."""
        self._session = session
        self._config = config
        self._lane = OutputLane(schema.format_of(schema.output_of(session)))
        self._hears = schema.format_of(schema.input_of(session))

    @property
    def config(self) -> SessionConfig:
        """The configuration in force, or to open the session with."""
        return self._config

    def open(self, session: str) -> list[str]:
        """`session.created`, which every client waits for first."""
        self._begin(session)
        return [self._dump({"type": "session.created", "session": self._shown()})]

    def _begin(self, session: str) -> None:
        self._session = {**self._session, "id": session}
        self._conversation = f"conv_{session.removeprefix('sess_')}"

    def _shown(self) -> Object:
        """What the client sees of its session."""
        shown = kinds.shown(self._session)
        said = {"recording": self.recorded and self._config.recording_consent != "refused", "images": self.sees}
        true: Object = {name: True for name, value in said.items() if value}
        own = shown.get("x_talkover")
        return {**shown, "x_talkover": {**(own if isinstance(own, Mapping) else {}), **true}} if true else shown

    # --- a session that goes on in another process -------------------------------------------------------------------

    def note(self) -> Object:
        """What a dialect in another process needs to go on with this one's session."""
        return {"session": self._session}

    def recall(self, note: Json) -> None:
        """Go on with the session of which another process's dialect left `note`. Raises Rejected for a damaged one."""
        session = an_object(an_object(note, "note").get("session"), "note.session")
        self._begin_as(session, schema.to_config(session, self._defaults))

    # --- in ------------------------------------------------------------------------------------------------------

    def receive(self, message: str | bytes) -> list[Received]:
        """One message from the client; a bad one becomes a `CommandRejected` that names the field and the remedy."""
        command: str | None = None
        try:
            if isinstance(message, bytes):
                raise Rejected(
                    "invalid_message",
                    "binary messages are not understood; send JSON text, audio as base64 in input_audio_buffer.append",
                )
            if (audio := self._appends.audio_of(message)) is not None:
                heard = realtime_in.plain_audio(audio, self._hears)
                if heard is not None:
                    return [heard]
            event = parse(message)
            if event.get("event_id") is not None:
                command = a_string(event["event_id"], "event_id", longest=512)
            received = self._received(event, command)
            if received and type(received[0]) is InputAudio:
                self._appends.learn(message, event)
            return received
        except Rejected as why:
            return [CommandRejected(why.code, why.message, why.param, command)]

    def _received(self, event: Object, command: str | None) -> list[Received]:
        kind = required(event, "type", "type")
        if kind == "input_audio_buffer.append":
            return list(realtime_in.append(event, self._hears))
        plain = realtime_in.PLAIN.get(kind) if isinstance(kind, str) else None
        if plain is not None:
            return [plain(event, command)]
        if kind == "conversation.item.create":
            return realtime_in.item(event, command, self._hears)
        if kind == "response.create":
            return [realtime_in.response_create(event, command, self._latest)]
        if kind == "session.update":
            return [self._update(event, command)]
        name = a_string(kind, "type", longest=1 << 24)
        raise Rejected(INVALID_VALUE, f"{name[:80]!r} is not a client event of this protocol", "type")

    @property
    def _latest(self) -> Object:
        """The session as it will be when every update on its way is accepted."""
        return self._pending[-1].session if self._pending else self._session

    def _merged(self, current: Object, patch: Json) -> Object:
        """`current` with the `session` of an update put in. Raises Rejected."""
        return schema.merge(current, patch)

    def _update(self, event: Object, command: str | None) -> ConfigUpdate:
        merged = self._merged(self._latest, required(event, "session", "session"))
        config = schema.to_config(merged, self._defaults)
        # A key of our own: the client's id may be missing or used twice, and the answer must find its update.
        self._updates += 1
        key = f"{_UPDATE}{self._updates}"
        self._pending.append(_Pending(key, merged, config, command))
        # What the client sends from here on is in the new format; the answer comes later.
        self._hears = schema.format_of(schema.input_of(merged))
        return ConfigUpdate(config, key)

    # --- out -----------------------------------------------------------------------------------------------------

    def send(self, notice: Notice) -> list[str]:
        """The server events for a notice, none for one that this client does not get."""
        if isinstance(notice, SessionConfigured):
            return self._configured(notice.config)
        messages: list[str] = []
        if isinstance(notice, OutputOpened):
            self._places[notice.item.id] = notice.index
        elif isinstance(notice, OutputClosed):
            messages = self._tail(notice.item.id, self._beside.get(notice.response, self._lane))
            self._places.pop(notice.item.id, None)
        elif isinstance(notice, CommandFailed):
            notice = self._failed(notice)
        elif isinstance(notice, ResponseOpened) and self.meter is not None:
            self.meter.opened()
        elif isinstance(notice, ResponseClosed):
            self._beside.pop(notice.response.id, None)
            self._head = ("", "")
            if self.meter is not None:
                self.meter.closed(notice.response)
        own = schema.wants_notices(self._session)
        for event in realtime_out.events(notice, self._session, self._conversation, self._track, own):
            messages.append(self._dump(event))
        if isinstance(notice, ResponseClosed):
            messages += [self._dump(event) for event in realtime_out.rate_limits(notice.response, self.meter)]
        return messages

    def send_frame(self, frame: OutputFrame) -> list[str]:
        """`response.output_audio.delta` in the client's format; none while the resampler fills.

        `x_epoch` is the epoch of every sample in it, `x_seq` the sequence number of the frame that completed it,
        `x_ticks` the session time of its first sample.
        """
        if self._track:
            return []
        lane = self._lane if frame.fence.epoch != OUT_OF_BAND else self._lane_beside(frame.response)
        audio, starts = lane.push(frame)
        return [self._delta(frame, audio, starts)] if audio else []

    def _lane_beside(self, response: str) -> OutputLane:
        """The lane of a response outside the conversation: its samples must not mix with those of what is said."""
        lane = self._beside.get(response)
        if lane is None:
            lane = self._beside[response] = OutputLane(schema.format_of(schema.output_of(self._session)))
        return lane

    def flush(self, fence: Fence) -> None:
        """From here on audio belongs to `fence`; what the resampler still held is forgotten."""
        self._lane.reset()

    def _configured(self, config: SessionConfig) -> list[str]:
        messages: list[str] = []
        if any(update.config == config for update in self._pending):
            while self._pending[0].config != config:
                self._pending.popleft()
            self._session = self._pending.popleft().session
            media = schema.format_of(schema.output_of(self._session))
            if media != self._lane.media:
                messages = self._tail(None, self._lane)
                self._lane = OutputLane(media)
        self._config = config
        self.changed()
        messages.append(self._dump({"type": "session.updated", "session": self._shown()}))
        return messages

    def _failed(self, notice: CommandFailed) -> CommandFailed:
        """The failure under the client's own id; a refused update leaves nothing behind."""
        if notice.command is None or not notice.command.startswith(_UPDATE):
            return notice
        refused = next((update for update in self._pending if update.key == notice.command), None)
        if refused is None:
            return notice
        self._pending.remove(refused)
        self._hears = schema.format_of(schema.input_of(self._latest))
        param = _CONFIG_PARAMS.get(notice.param or "", notice.param)
        return CommandFailed(notice.code, notice.message, param, refused.client, notice.kind)

    def _tail(self, item: str | None, lane: OutputLane) -> list[str]:
        """The samples of `item` (None: of any) that the resampler of `lane` still holds, as a last delta."""
        last = lane.last
        if last is None or (item is not None and last.item != item):
            return []
        audio, starts = lane.tail()
        return [self._delta(last, audio, starts)] if audio else []

    def _delta(self, frame: OutputFrame, audio: bytes, starts: Ticks) -> str:
        # 50 times a second and session: no dict, no encoder, only what changes is formatted.
        if self._head != (frame.response, frame.item):
            self._head = (frame.response, frame.item)
            self._head_text = (
                f'{{"type":"response.output_audio.delta","response_id":{json.dumps(frame.response)},'
                f'"item_id":{json.dumps(frame.item)},"output_index":{self._places.get(frame.item, 0)},'
                '"content_index":0,"event_id":"event_'
            )
        self._events += 1
        return (
            f'{self._head_text}{self._events}","x_epoch":{frame.fence.epoch},"x_seq":{frame.sequence},'
            f'"x_ticks":{starts},"delta":"{binascii.b2a_base64(audio, newline=False).decode("ascii")}"}}'
        )

    def _dump(self, event: Mapping[str, object]) -> str:
        self._events += 1
        return _ENCODER.encode({"event_id": f"event_{self._events}", **event})
