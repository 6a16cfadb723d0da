"""The messages of vLLM-Omni's duplex endpoint, as its client sees them: dataclasses in, JSON text out, no I/O.

Source: vLLM-Omni 0.30, `/v1/realtime?duplex=1`: OpenAI's Realtime events, some with further keys, and events of its own
(`protocol/realtime`, `protocol/duplex` and `entrypoints/duplex` of the published package). Its docs sort them into
three tiers; what a voice session does not need of them is read as `Other`.

What the server says is not to be trusted: anything that is not as published raises `Garbage`, which names the field.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import numpy as np

from codec import g711
from codec.pcm import to_bytes
from sessions.core.config import Tool
from sessions.core.context import ContextEntry

from ...remote.errors import RemoteError, shown

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Object: TypeAlias = Mapping[str, Json]

LONGEST_MESSAGE = 8 << 20
"""Bytes of one message; a second of float32 audio at 48 kHz is 256 kB in base64."""
LONGEST_ID = 256
RATES = (8000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
"""Hz of audio in either direction."""

InputFormat: TypeAlias = Literal["pcm16", "pcm_f32le"]
INPUT_FORMATS: tuple[InputFormat, ...] = ("pcm16", "pcm_f32le")


class Garbage(ValueError):
    """A message that is not of the protocol. `field` names what is wrong in it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


# --- what the server can do ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteCapabilities:
    """What the session object says that this model and deployment can do; what it does not say is not relied on."""

    turns_of_its_own: bool = False
    """The model itself decides when it speaks (`supports_model_native_turn_policy`)."""
    client_commit: bool = True
    """The client may say that a turn is over. A model with turns of its own that does not take that answers every
    stretch of input with one of output, silence too: one endless stream."""
    barge_in: bool = False
    playback_ack: bool = False
    resume: bool = False
    chunk_ms: int = 1000
    """Milliseconds of input that the model takes at once (`chunk_period_ms`)."""
    input_format: InputFormat = "pcm16"
    input_rate: int = 16_000

    @property
    def continuous(self) -> bool:
        """Whether its output is one endless stream in which silence is silence."""
        return self.turns_of_its_own and not self.client_commit


# --- what it says --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Opened:
    """A session began, or (`resumed`) goes on. `token`: for the next connection; empty where there is none."""

    session: str
    capabilities: RemoteCapabilities
    token: str
    resumed: bool


@dataclass(frozen=True, slots=True)
class Began:
    """A response began. `epoch`: the server's own interruption epoch, where it says one."""

    response: str
    epoch: int | None


@dataclass(frozen=True, slots=True)
class Audio:
    """`pcm`: mono int16 LE at `rate` Hz."""

    response: str
    epoch: int | None
    pcm: bytes
    rate: int


@dataclass(frozen=True, slots=True)
class Text:
    """`spoken`: the transcript of its audio, which comes behind the audio that it belongs to; else text alone."""

    response: str
    text: str
    spoken: bool


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The model calls a tool, in a response of its own; `arguments` is JSON text."""

    response: str
    call: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A response is over. `status`: "completed", "cancelled", "incomplete", "failed"; `epoch` as in `Began`."""

    response: str
    epoch: int | None
    status: str


@dataclass(frozen=True, slots=True)
class Cleared:
    """The server threw away what was not played of a response; empty: of all."""

    response: str


@dataclass(frozen=True, slots=True)
class Listens:
    """The model listens on. `response`: the response that it ends by that; empty: none."""

    response: str
    epoch: int | None


@dataclass(frozen=True, slots=True)
class EpochMoved:
    """Something was said under this epoch, for example a decision about overlapping speech."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Fault:
    """An `error` event; the connection goes on unless the server closes it."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Over:
    """The session is over for `reason`, which begins with "closed", "expired" or "replaced"."""

    reason: str


@dataclass(frozen=True, slots=True)
class ResyncRequired:
    """The session can not be resumed any more after this connection."""


@dataclass(frozen=True, slots=True)
class HeartbeatAcked:
    pass


@dataclass(frozen=True, slots=True)
class Other:
    """An event that a voice session does not need, or one that was not there when this was written."""

    type: str


ServerEvent: TypeAlias = (
    Opened
    | Began
    | Audio
    | Text
    | ToolCall
    | Ended
    | Cleared
    | Listens
    | EpochMoved
    | Fault
    | Over
    | ResyncRequired
    | HeartbeatAcked
    | Other
)


@dataclass(frozen=True, slots=True)
class Incoming:
    """An event with its number (`server_event_seq`), where it has one."""

    number: int | None
    event: ServerEvent


def read(message: str | bytes) -> Incoming:
    """One message of the server. Raises Garbage."""
    if isinstance(message, bytes):
        raise Garbage("message", "is binary; this protocol is JSON text")
    if len(message) > LONGEST_MESSAGE:
        raise Garbage("message", f"has {len(message)} characters; at most {LONGEST_MESSAGE} are read")
    try:
        given = cast(Json, json.loads(message))
    except (ValueError, RecursionError) as error:
        raise Garbage("message", f"is not JSON ({type(error).__name__})") from None
    if not isinstance(given, dict):
        raise Garbage("message", "is no JSON object")
    kind = given.get("type")
    if not isinstance(kind, str):
        raise Garbage("type", "is missing")
    number = _whole(given, "server_event_seq", "server_event_seq")
    reader = _READERS.get(kind)
    return Incoming(number, Other(kind[:LONGEST_ID]) if reader is None else reader(given))


def _opened(given: Object) -> Opened:
    return _session_event(given, resumed=False)


def _resumed(given: Object) -> Opened:
    return _session_event(given, resumed=True)


def _session_event(given: Object, *, resumed: bool) -> Opened:
    session = _object(given, "session")
    name = session.get("id") or session.get("session_id") or given.get("session_id")
    if not isinstance(name, str) or not name or len(name) > LONGEST_ID:
        raise Garbage("session.id", "is missing; a session has an id")
    token = given.get("resume_token")
    return Opened(name, _capabilities(session), token if isinstance(token, str) else "", resumed)


def _capabilities(session: Object) -> RemoteCapabilities:
    said = session.get("capabilities")
    can = said if isinstance(said, dict) else {}
    chunk = can.get("chunk_period_ms")
    audio = session.get("audio")
    side = audio.get("input") if isinstance(audio, dict) else None
    hears = side if isinstance(side, dict) else {}
    form = hears.get("format")
    form_rate = form.get("rate") if isinstance(form, dict) else None
    encoding = session.get("input_audio_format") or "pcm16"
    if encoding not in INPUT_FORMATS:
        raise Garbage("session.input_audio_format", f"is {shown(str(encoding))}; pcm16 or pcm_f32le is sent")
    rate = session.get("sample_rate_hz") or hears.get("sample_rate_hz") or form_rate or 16_000
    return RemoteCapabilities(
        turns_of_its_own=can.get("supports_model_native_turn_policy") is True,
        client_commit=can.get("supports_client_commit") is not False,
        barge_in=can.get("supports_barge_in") is True,
        playback_ack=can.get("supports_playback_ack") is True,
        resume=can.get("supports_session_resume") is True,
        chunk_ms=chunk if isinstance(chunk, int) and not isinstance(chunk, bool) and 0 < chunk <= 60_000 else 1000,
        input_format=encoding,
        input_rate=_rate(rate, "session.sample_rate_hz"),
    )


def _began(given: Object) -> Began:
    response = given.get("response")
    meta = response.get("metadata") if isinstance(response, dict) else None
    inner = meta.get("duplex_event") if isinstance(meta, dict) else None
    epoch = _epoch(inner if isinstance(inner, dict) else None, meta if isinstance(meta, dict) else None, given)
    return Began(_response(given), epoch)


def _audio(given: Object) -> Audio:
    response = _response(given)
    delta = given.get("delta")
    if not isinstance(delta, str):
        raise Garbage("delta", "is missing; audio is base64 text")
    try:
        raw = binascii.a2b_base64(delta, strict_mode=True) if delta else b""
    except ValueError as error:
        raise Garbage("delta", f"is not base64 ({error})") from None
    rate = _rate(given.get("sample_rate_hz") or 24_000, "sample_rate_hz")
    pcm = _decoded(raw, str(given.get("format") or "pcm16"))
    meta = given.get("metadata")
    return Audio(response, _epoch(meta if isinstance(meta, dict) else None, given), pcm, rate)


def _decoded(raw: bytes, form: str) -> bytes:
    if form in ("pcm16", "pcm_s16le", "s16le"):
        if len(raw) % 2:
            raise Garbage("delta", f"has {len(raw)} bytes; 16-bit samples need an even number")
        return raw
    if form == "pcm_f32le":
        if len(raw) % 4:
            raise Garbage("delta", f"has {len(raw)} bytes; float samples have four each")
        floats = np.frombuffer(raw, "<f4")
        if not np.isfinite(floats).all():
            raise Garbage("delta", "holds samples that are no numbers")
        return to_bytes(np.rint(np.clip(floats, -1.0, 1.0) * 32767).astype(np.int16))
    if form == "g711_ulaw":
        return g711.decode(raw, "ulaw")
    if form == "g711_alaw":
        return g711.decode(raw, "alaw")
    raise Garbage("format", f"is {shown(form)}; pcm16 was asked for")


def _transcript(given: Object) -> Text:
    return Text(_response(given), _string(given, "delta"), spoken=True)


def _text(given: Object) -> Text:
    return Text(_response(given), _string(given, "delta"), spoken=False)


def _item_done(given: Object) -> ToolCall | Other:
    item = given.get("item")
    if not isinstance(item, dict) or item.get("type") != "function_call":
        return Other("response.output_item.done")
    call, name = _string(item, "call_id"), _string(item, "name")
    for field, value in (("item.call_id", call), ("item.name", name)):
        if not value or len(value) > LONGEST_ID:
            raise Garbage(field, "is empty or too long")
    return ToolCall(_response(given), call, name, _string(item, "arguments"))


def _ended(given: Object) -> Ended:
    response = given.get("response")
    inner = response if isinstance(response, dict) else {}
    meta = inner.get("metadata")
    status = inner.get("status")
    return Ended(
        _response(given),
        _epoch(meta if isinstance(meta, dict) else None, given),
        status if isinstance(status, str) else "completed",
    )


def _cleared(given: Object) -> Cleared:
    response = given.get("response_id")
    return Cleared(response if isinstance(response, str) else "")


def _listens(given: Object) -> Listens:
    response = given.get("response_id")
    return Listens(response if isinstance(response, str) else "", _epoch(given))


def _moved(given: Object) -> EpochMoved | Other:
    epoch = _epoch(given)
    return Other(str(given.get("type"))) if epoch is None else EpochMoved(epoch)


def _fault(given: Object) -> Fault:
    error = given.get("error")
    inner = error if isinstance(error, dict) else {"message": error}
    code, message = inner.get("code"), inner.get("message")
    return Fault(code if isinstance(code, str) else "unknown", shown(str(message or "no reason given")))


def _over(given: Object) -> Over:
    kind = str(given.get("type")).partition(".")[2]
    reason = given.get("reason")
    return Over(f"{kind}: {shown(reason)}" if isinstance(reason, str) and reason else kind)


_READERS: Mapping[str, Callable[[Object], ServerEvent]] = {
    "session.created": _opened,
    "session.resumed": _resumed,
    "session.closed": _over,
    "session.expired": _over,
    "session.replaced": _over,
    "session.resync_required": lambda given: ResyncRequired(),
    "session.heartbeat_ack": lambda given: HeartbeatAcked(),
    "response.created": _began,
    "response.output_audio.delta": _audio,
    "response.output_audio_transcript.delta": _transcript,
    "response.output_text.delta": _text,
    "response.text.delta": _text,
    "response.output_item.done": _item_done,
    "response.done": _ended,
    "response.listen": _listens,
    "output_audio_buffer.cleared": _cleared,
    "overlap.decision": _moved,
    "turn.event": _moved,
    "error": _fault,
}


def _response(given: Object) -> str:
    inner = given.get("response")
    name = given.get("response_id") or (inner.get("id") if isinstance(inner, dict) else None)
    if not isinstance(name, str) or not name or len(name) > LONGEST_ID:
        raise Garbage("response_id", "is missing; this event belongs to a response")
    return name


def _epoch(*places: Object | None) -> int | None:
    for place in places:
        if place is not None and (epoch := _whole(place, "epoch", "epoch")) is not None:
            return epoch
    return None


def _whole(given: Object, name: str, field: str) -> int | None:
    value = given.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 53:
        raise Garbage(field, f"is {shown(str(value))}; it counts from 0")
    return value


def _string(given: Object, name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str):
        raise Garbage(name, "is missing; it is text")
    return value


def _object(given: Object, name: str) -> Object:
    value = given.get(name)
    if not isinstance(value, dict):
        raise Garbage(name, "is missing; it is an object")
    return value


def _rate(value: Json, field: str) -> int:
    whole = int(value) if isinstance(value, int | float) and math.isfinite(value) else 0
    if whole not in RATES:
        raise Garbage(field, f"is {shown(str(value))}; a rate in Hz is one of {', '.join(map(str, RATES))}")
    return whole


# --- what is said to it --------------------------------------------------------------------------------------------


def address(url: str, model: str) -> str:
    """Where to connect: `url` with the path and the query that the endpoint wants. Raises RemoteError.

    `autostart=0`: else the server would begin a session of its own before it has read ours.
    """
    try:
        parts = urlsplit(url)
        possible = parts.hostname is not None and parts.port != 0
    except ValueError:
        raise RemoteError(
            "remote_unreachable", f"engine-url {shown(url)!r} is no address; give ws://HOST:PORT"
        ) from None
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    if scheme not in ("ws", "wss") or not possible:
        raise RemoteError("remote_unreachable", f"engine-url {shown(url)!r} must begin with ws:// or wss://")
    path = parts.path if parts.path not in ("", "/") else "/v1/realtime"
    query = {**dict(parse_qsl(parts.query)), "duplex": "1", "model": model, "autostart": "0"}
    return urlunsplit((scheme, parts.netloc, path, urlencode(query), ""))


def update(session: Object) -> str:
    """`session.update`, which as the first message begins the session."""
    return _dump({"type": "session.update", "session": dict(session)})


def append(pcm: bytes, encoding: InputFormat, rate: int, end_ms: int) -> str:
    """`pcm`: mono int16 LE at `rate` Hz. `end_ms`: how much was sent with it since the session began."""
    raw = pcm
    if encoding == "pcm_f32le":
        raw = (np.frombuffer(pcm, "<i2").astype("<f4") / np.float32(32768.0)).tobytes()
    return _dump(
        {
            "type": "input_audio_buffer.append",
            "audio": base64.b64encode(raw).decode("ascii"),
            "format": encoding,
            "sample_rate_hz": rate,
            "duration_ms": round(len(pcm) / 2 * 1000 / rate),
            "audio_end_ms": end_ms,
        }
    )


def acknowledge_playback(response: str, played_ms: int) -> str:
    """All of `response` before `played_ms` was heard and belongs to the history."""
    ack: Object = {"played_ms": played_ms, "committed_ms": played_ms, "response_id": response}
    return _dump({"type": "playback.ack", **ack})


def cancel(response: str) -> str:
    """Stop making `response`."""
    return _dump({"type": "response.cancel", "response_id": response})


def clear_output(response: str) -> str:
    """`response`, which is made already, is not played any further."""
    return _dump({"type": "output_audio_buffer.clear", "response_id": response})


def tools(offered: Sequence[Tool]) -> list[Json]:
    """As the session object has them. Raises ValueError for parameters that are no JSON."""
    return [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": cast(Json, json.loads(tool.parameters)),
        }
        for tool in offered
    ]


def item(entry: ContextEntry, *, anew: bool) -> str:
    """`conversation.item.create`: what did not come by the input track.

    `anew`: of a session that is over. The server takes answers of tools only to calls that it made itself, so both are
    told as text then.
    """
    if entry.kind == "function_call_output" and not anew:
        body: Object = {"type": "function_call_output", "call_id": entry.call, "output": entry.text}
    else:
        kind = "output_text" if entry.role == "assistant" and entry.kind != "function_call_output" else "input_text"
        role = "system" if entry.kind == "function_call_output" else entry.role
        text = f"{entry.name}({entry.text})" if entry.kind == "function_call" else entry.text
        body = {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
    return _dump({"type": "conversation.item.create", "item": dict(body)})


def resume(session: str, token: str, after: int) -> str:
    """Take up `session` again, after the event with the number `after`; must be the first message."""
    return _dump(
        {
            "type": "session.resume",
            "session_id": session,
            "resume_token": token,
            "last_received_server_event_seq": after,
        }
    )


def acknowledge_events(number: int) -> str:
    """Every event up to `number` has come."""
    return _dump({"type": "session.event_ack", "server_event_seq": number})


def heartbeat() -> str:
    return _dump({"type": "session.heartbeat"})


def close() -> str:
    return _dump({"type": "session.close"})


def _dump(event: Object) -> str:
    return json.dumps(event, separators=(",", ":"))
