"""Transcription sessions of the Realtime API: the session object of those that listen and never answer.

https://platform.openai.com/docs/guides/realtime-transcription (GA). The dialect keeps one form of session object for
both kinds; here is what differs: which fields a client may set, what its turn detection means, and what it is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .checks import INVALID_VALUE, UNSUPPORTED, Json, Object, Rejected, an_object, one_of, required

KINDS: Final = ("realtime", "transcription")

_OF_RESPONSES: Final = (
    "instructions",
    "output_modalities",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "max_output_tokens",
    "truncation",
    "prompt",
    "reasoning",
)
_DETECTION: Final[Mapping[str, tuple[str, ...]]] = {
    "server_vad": ("type", "threshold", "prefix_padding_ms", "silence_duration_ms"),
    "semantic_vad": ("type", "eagerness"),
}


def kind_of(intent: str | None, patch: Object | None) -> str:
    """The kind of a session from the query parameter `intent` of its address and the session that its key is bound to.

    Raises Rejected where the two contradict each other.
    """
    bound: str | None = None
    if patch is not None:
        bound = one_of(required(patch, "type", "session.type"), "session.type", KINDS)
    if intent is None:
        return bound or "realtime"
    if intent not in ("conversation", *KINDS):
        raise Rejected(INVALID_VALUE, "'intent' takes 'transcription', or leave it out for a conversation", "intent")
    wanted = "transcription" if intent == "transcription" else "realtime"
    if bound is not None and bound != wanted:
        raise Rejected(
            INVALID_VALUE, f"intent {intent!r} contradicts the key, which is bound to a {bound} session", "intent"
        )
    return wanted


def check_kind(changes: Object, kind: str, path: str) -> None:
    """Whether `changes` are of the kind of session that they are for. Raises Rejected."""
    given = one_of(required(changes, "type", f"{path}.type"), f"{path}.type", KINDS)
    if given == kind:
        return
    remedy = (
        "connect with ?intent=transcription, or with a client secret of a transcription session"
        if given == "transcription"
        else "connect without intent=transcription"
    )
    message = f"this is a {kind} session, which cannot become a {given} session; {remedy}"
    raise Rejected("cannot_update_session_type", message, f"{path}.type")


def check(changes: Object, path: str) -> None:
    """Refuses what only means something where responses are made. Raises Rejected."""
    for field in _OF_RESPONSES:
        if changes.get(field) is not None:
            raise _no_responses(f"{path}.{field}")
    audio = _held(changes.get("audio"))
    if audio.get("output") is not None:
        raise _no_responses(f"{path}.audio.output")
    detection = _held(_held(audio.get("input")).get("turn_detection"))
    if detection.get("idle_timeout_ms") is not None:
        raise _no_responses(f"{path}.audio.input.turn_detection.idle_timeout_ms")


def _no_responses(path: str) -> Rejected:
    return Rejected(UNSUPPORTED, f"{path!r} is about responses, and a transcription session makes none; leave it", path)


def _held(value: Json) -> Object:
    return value if isinstance(value, Mapping) else {}


def without_responses(session: Object) -> Object:
    """The session object with a turn detection that starts and interrupts nothing."""
    audio = an_object(session["audio"], "session.audio")
    hears = an_object(audio["input"], "session.audio.input")
    detection = hears["turn_detection"]
    if not isinstance(detection, Mapping):
        return session
    silent: Object = {**detection, "create_response": False, "interrupt_response": False}
    if "idle_timeout_ms" in silent:
        silent = {**silent, "idle_timeout_ms": None}
    return {**session, "audio": {**audio, "input": {**hears, "turn_detection": silent}}}


def shown(session: Object) -> Object:
    """What a client sees of the session object."""
    if session["type"] != "transcription":
        return session
    hears = an_object(an_object(session["audio"], "session.audio")["input"], "session.audio.input")
    detection = hears["turn_detection"]
    if isinstance(detection, Mapping):
        detection = {key: detection[key] for key in _DETECTION[str(detection["type"])]}
    view = {key: session[key] for key in ("id", "object", "type", "include", "x_talkover") if key in session}
    return {**view, "audio": {"input": {**hears, "turn_detection": detection}}}
