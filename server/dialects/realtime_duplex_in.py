"""Client events of the duplex extensions, and the older spelling of session and audio that comes with them.

The vocabulary is that of vLLM-Omni's duplex client (0.30): `session.update` without a `type` and with the flat fields
of the Realtime beta, `input_audio_buffer.append` that says its own format and rate, `playback.ack`, `session.resume`.
Each function raises `Rejected` with the path of the wrong field, as the client spelled it.
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from codec import g711
from codec.pcm import to_bytes
from sessions.core.timeline import TICK_RATE

from . import realtime_in
from . import realtime_session as schema
from .base import InputAudio
from .checks import (
    INVALID_VALUE,
    UNSUPPORTED,
    Json,
    Object,
    Rejected,
    a_bool,
    a_list,
    a_number,
    a_string,
    an_integer,
    an_object,
    one_of,
    parse,
    required,
)

FLOAT: Final = "pcm_f32le"
PCM: Final = ("pcm16", "pcm_s16le", "s16le")
_LAWS: Final[Mapping[str, str]] = {"g711_ulaw": "audio/pcmu", "g711_alaw": "audio/pcma"}
FORMATS: Final = (*PCM, FLOAT, *_LAWS)

RATES: Final = tuple(rate for rate in (8000, 12000, 16000, 24000, 48000) if TICK_RATE % rate == 0)
"""Hz of PCM input; each divides the rate of the timeline."""
RATE: Final = 24000
"""Hz of PCM where the client does not say."""

LONGEST_TOKEN: Final = 256
_LONGEST_RESUME: Final = 8192
MOST_MS: Final = realtime_in.LONGEST_AUDIO_MS


@dataclass(frozen=True, slots=True)
class Resume:
    """`session.resume`: the session, the token that came last with it, and the last event that was received."""

    session: str
    token: str
    after: int


@dataclass(frozen=True, slots=True)
class Ack:
    """`playback.ack`, in ms of one response's audio. Where neither response nor item is named, the newest is meant."""

    played: int
    response: str | None
    item: str | None


# --- the first message ---------------------------------------------------------------------------------------------


def resumption(message: str | bytes) -> Resume | None:
    """What the first message of a connection asks to resume, None where it is any other message.

    Raises Rejected for a `session.resume` that is not whole.
    """
    if isinstance(message, bytes) or len(message) > _LONGEST_RESUME:
        return None
    try:
        event = parse(message)
    except Rejected:
        return None
    if event.get("type") != "session.resume":
        return None
    try:
        after = event.get("last_received_server_event_seq", 0)
        return Resume(
            a_string(required(event, "session_id", "session_id"), "session_id", realtime_in.LONGEST_ID, 1),
            a_string(required(event, "resume_token", "resume_token"), "resume_token", LONGEST_TOKEN, 1),
            an_integer(after, "last_received_server_event_seq", 0, 1 << 53),
        )
    except Rejected as why:
        raise Rejected("invalid_session_resume", why.message, why.param) from None


def switch(value: str | None, name: str, default: bool) -> bool:
    """A query parameter that is on or off. Raises Rejected."""
    if value is None:
        return default
    text = value.strip().lower()
    if text in ("1", "true", "yes", "on"):
        return True
    if text in ("0", "false", "no", "off"):
        return False
    raise Rejected(INVALID_VALUE, f"{name!r} is {text[:40]!r}; give 1 or 0", name)


# --- audio ---------------------------------------------------------------------------------------------------------


def append(event: Object, encoding: str, rate: int) -> list[InputAudio]:
    """`input_audio_buffer.append`; `encoding` and `rate` are those of the session, which the event may override."""
    if event.get("video_frames"):
        raise Rejected(UNSUPPORTED, "pictures are not understood here; send audio alone", "video_frames")
    if event.get("format") is not None:
        encoding = one_of(event["format"], "format", FORMATS)
    if event.get("sample_rate_hz") is not None:
        rate = pcm_rate(event["sample_rate_hz"], "sample_rate_hz", encoding)
    return samples(required(event, "audio", "audio"), "audio", encoding, rate)


def samples(value: Json, path: str, encoding: str, rate: int) -> list[InputAudio]:
    """Base64 audio in `encoding` at `rate`; nothing where it is empty."""
    if encoding == FLOAT:
        pcm = _from_float(value, path)
    else:
        pcm, own = realtime_in.audio(value, path, _LAWS.get(encoding, "audio/pcm"))
        rate = own if encoding in _LAWS else rate
    return [InputAudio(pcm, rate)] if pcm else []


def _from_float(value: Json, path: str) -> bytes:
    if not isinstance(value, str):
        raise Rejected("invalid_type", f"{path!r} takes a string with base64 audio", path)
    try:
        raw = binascii.a2b_base64(value, strict_mode=True)
    except ValueError as error:
        raise Rejected("invalid_audio", f"{path!r} is not base64 ({error}); nothing of it was used", path) from None
    if len(raw) % 4:
        message = f"{path!r} has {len(raw)} bytes; {FLOAT} has four a sample, little-endian; nothing of it was used"
        raise Rejected("invalid_audio", message, path)
    floats = np.frombuffer(raw, "<f4")
    if not np.isfinite(floats).all():
        raise Rejected("invalid_audio", f"{path!r} holds samples that are no numbers; nothing of it was used", path)
    return to_bytes(np.rint(np.clip(floats, -1.0, 1.0) * 32767).astype(np.int16))


def pcm_rate(value: Json, path: str, encoding: str) -> int:
    """A sample rate for `encoding`. Raises Rejected."""
    rate = an_integer(value, path, 1, 1 << 30)
    taken = (g711.RATE,) if encoding in _LAWS else RATES
    if rate not in taken:
        listed = ", ".join(str(entry) for entry in taken)
        raise Rejected(INVALID_VALUE, f"{path!r} is {rate}; {encoding} is taken at {listed} Hz: resample it", path)
    return rate


# --- playback and turns ---------------------------------------------------------------------------------------------


def ack(event: Object) -> Ack:
    """`playback.ack`. What the client has played but does not commit to counts as not played."""
    played = an_integer(required(event, "played_ms", "played_ms"), "played_ms", 0, MOST_MS)
    if event.get("committed_ms") is not None:
        played = min(played, an_integer(event["committed_ms"], "committed_ms", 0, MOST_MS))
    return Ack(played, _an_id(event, "response_id"), _an_id(event, "item_id"))


def event_ack(event: Object) -> int:
    """`session.event_ack`: the number up to which the client has got every event."""
    return an_integer(required(event, "server_event_seq", "server_event_seq"), "server_event_seq", 0, 1 << 53)


def wants_response(event: Object, otherwise: bool) -> bool:
    """Whether an `input_audio_buffer.commit` asks for a response; `otherwise`: where it does not say."""
    if event.get("final") is not None and not a_bool(event["final"], "final"):
        raise Rejected(UNSUPPORTED, "a commit here always ends the turn; leave 'final' true", "final")
    for name in ("response_create", "create_response"):
        if event.get(name) is not None:
            return a_bool(event[name], name)
    return otherwise


def _an_id(event: Object, name: str) -> str | None:
    return None if event.get(name) is None else a_string(event[name], name, realtime_in.LONGEST_ID, 1)


# --- the session object ---------------------------------------------------------------------------------------------


def merge(current: Object, value: Json) -> Object:
    """`current` with the `session` of an update put in, in either spelling; see `schema.merge`.

    What only this spelling has is kept beside the rest: `input_audio_format`, `sample_rate_hz`, `temperature`,
    `auto_response`.
    """
    given = an_object(value, "session")
    own: Object = {}
    if given.get("type") is not None:
        merged = schema.merge(current, given)
    else:
        own = _own_fields(given, current)
        try:
            merged = schema.merge(current, _modern(given, current, own))
        except Rejected as why:
            raise _as_spelled(why, given) from None
    if _format_given(given) and "input_audio_format" not in own:
        encoding = encoding_of({**merged, "input_audio_format": None})
        own = {"input_audio_format": encoding, "sample_rate_hz": _rate_of(encoding), **own}
    return {**merged, **own}


def encoding_of(session: Object) -> str:
    """The encoding of input audio, by this spelling's name, for a session object of either."""
    given = session.get("input_audio_format")
    if given is not None:
        return str(given)
    media = schema.format_of(schema.input_of(session))
    return next((name for name, kind in _LAWS.items() if kind == media), "pcm16")


def _own_fields(given: Object, current: Object) -> Object:
    own: dict[str, Json] = {}
    encoding = encoding_of(current)
    if given.get("input_audio_format") is not None:
        encoding = one_of(given["input_audio_format"], "session.input_audio_format", FORMATS)
        own["input_audio_format"] = encoding
        own["sample_rate_hz"] = _rate_of(encoding)
    for path, rate in _rates(given):
        own["sample_rate_hz"] = pcm_rate(rate, path, encoding)
    if given.get("temperature") is not None:
        own["temperature"] = a_number(given["temperature"], "session.temperature", 0, 2)
    body = given.get("extra_body")
    if body is not None:
        auto = an_object(body, "session.extra_body").get("auto_response")
        if auto is not None:
            own["auto_response"] = a_bool(auto, "session.extra_body.auto_response")
    return own


def _rates(given: Object) -> list[tuple[str, Json]]:
    audio = given.get("audio")
    side = audio.get("input") if isinstance(audio, Mapping) else None
    deep = side.get("sample_rate_hz") if isinstance(side, Mapping) else None
    places = (("session.audio.input.sample_rate_hz", deep), ("session.sample_rate_hz", given.get("sample_rate_hz")))
    return [(path, rate) for path, rate in places if rate is not None]


_RENAMED: Final[Mapping[str, str]] = {
    "modalities": "session.output_modalities",
    "voice": "session.audio.output.voice",
    "turn_detection": "session.audio.input.turn_detection",
    "input_audio_transcription": "session.audio.input.transcription",
    "input_audio_noise_reduction": "session.audio.input.noise_reduction",
    "max_response_output_tokens": "session.max_output_tokens",
}
"""Flat fields, and where the GA session object has them."""

_INPUTS: Final[Mapping[str, str]] = {
    "input_audio_transcription": "transcription",
    "input_audio_noise_reduction": "noise_reduction",
}
_REFUSED: Final[Mapping[str, str]] = {
    "ref_audio": "voices are not cloned here; choose one of the server's by 'voice'",
    "idle_timeout_s": "a connection may be silent as long as it answers pings; leave it out",
}


def _modern(given: Object, current: Object, own: Object) -> Object:
    """The GA session object of a flat one."""
    for name, remedy in _REFUSED.items():
        if given.get(name) is not None:
            raise Rejected(UNSUPPORTED, remedy, f"session.{name}")
    nested = given.get("audio")
    audio = {} if nested is None else an_object(nested, "session.audio")
    hears, speaks = _side(audio, "input"), _side(audio, "output")
    hears.pop("sample_rate_hz", None)
    hears |= _detection(given, own, current)
    for flat, name in _INPUTS.items():
        if flat in given:
            hears[name] = given[flat]
    if "input_audio_format" in own:
        hears["format"] = {"type": _LAWS.get(str(own["input_audio_format"]), "audio/pcm")}
    if given.get("voice") is not None:
        speaks["voice"] = given["voice"]
    if given.get("output_audio_format") is not None:
        encoding = one_of(given["output_audio_format"], "session.output_audio_format", (*PCM, *_LAWS))
        speaks["format"] = {"type": _LAWS.get(encoding, "audio/pcm")}
    _check_output_rate(speaks)
    _check_commit_policy(given)
    patch: dict[str, Json] = {key: value for key, value in given.items() if key not in _RENAMED and key != "audio"}
    patch["type"] = current["type"]
    if given.get("modalities") is not None:
        patch["output_modalities"] = _modalities(given["modalities"])
    if given.get("max_response_output_tokens") is not None:
        patch["max_output_tokens"] = given["max_response_output_tokens"]
    sides: dict[str, Json] = {name: side for name, side in (("input", hears), ("output", speaks)) if side}
    return {**patch, "audio": sides} if sides else patch


def _side(audio: Mapping[str, Json], name: str) -> dict[str, Json]:
    side = audio.get(name)
    return {} if side is None else dict(an_object(side, f"session.audio.{name}"))


def _modalities(value: Json) -> list[Json]:
    """["audio", "text"] is what this spelling calls audio with its transcript."""
    path = "session.modalities"
    entries = [one_of(entry, path, ("audio", "text")) for entry in a_list(value, path, longest=2)]
    if not entries:
        raise Rejected(INVALID_VALUE, f"{path!r} is empty; give ['audio', 'text'] or ['text']", path)
    return ["audio"] if "audio" in entries else ["text"]


def _detection(given: Object, own: Object, current: Object) -> dict[str, Json]:
    """Turn detection, where the update says something about it: also by `auto_response` and `overlap_policy`."""
    implied: dict[str, Json] = {}
    if "auto_response" in own:
        implied["create_response"] = own["auto_response"]
    if given.get("overlap_policy") is not None:
        policy = one_of(given["overlap_policy"], "session.overlap_policy", ("listen_only", "barge_in_on_speech"))
        implied["interrupt_response"] = policy == "barge_in_on_speech"
    held = schema.input_of(current)["turn_detection"]
    if "turn_detection" in given:
        value = given["turn_detection"]
        return {"turn_detection": {**implied, **value} if isinstance(value, Mapping) else value}
    if implied and isinstance(held, Mapping):
        return {"turn_detection": {"type": held["type"], **implied}}
    return {}


def _check_output_rate(speaks: dict[str, Json]) -> None:
    rate = speaks.pop("sample_rate_hz", None)
    if rate is None:
        return
    path = "session.audio.output.sample_rate_hz"
    form = speaks.get("format")
    law = isinstance(form, Mapping) and form.get("type") in _LAWS.values()
    only = g711.RATE if law else RATE
    if an_integer(rate, path, 1, 1 << 30) != only:
        raise Rejected(INVALID_VALUE, f"{path!r} is {rate}; audio of this format is sent at {only} Hz", path)


def _check_commit_policy(given: Object) -> None:
    if given.get("playback_commit_policy") is not None:
        path = "session.playback_commit_policy"
        if one_of(given["playback_commit_policy"], path, ("ack_only", "commit_all_on_done")) != "ack_only":
            remedy = "the history holds what was heard, never all that was said; leave it out or give 'ack_only'"
            raise Rejected(UNSUPPORTED, remedy, path)


def _as_spelled(why: Rejected, given: Object) -> Rejected:
    """The same refusal under the name that the client used."""
    param, message = why.param, why.message
    for flat, modern in _RENAMED.items():
        if flat in given and param is not None and param.startswith(modern):
            spelled = f"session.{flat}{param.removeprefix(modern)}"
            return Rejected(why.code, message.replace(repr(param), repr(spelled)), spelled)
    return why


def _format_given(given: Object) -> bool:
    audio = given.get("audio")
    side = audio.get("input") if isinstance(audio, Mapping) else None
    return isinstance(side, Mapping) and side.get("format") is not None


def _rate_of(encoding: str) -> int:
    return g711.RATE if encoding in _LAWS else RATE
