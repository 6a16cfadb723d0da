"""Notices of the session core to server events of the Realtime API.

https://platform.openai.com/docs/api-reference/realtime-server-events. The core gives few, structural notices; here each
becomes the events that a client expects, in the order that the clients in use accept. A content *part* is named "audio"
or "text", the same content in an *item* "output_audio" or "output_text": that is the protocol's own usage.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Final

from sessions.core.notices import (
    CommandFailed,
    DigitHeard,
    EpochBegan,
    Held,
    InputCleared,
    InputCommitted,
    InputTimedOut,
    InputTranscriptDone,
    InputTranscriptFailed,
    InputTranscriptHypothesis,
    ItemAdded,
    ItemDeleted,
    ItemRetrieved,
    ItemTruncated,
    ItemView,
    Notice,
    OutputClosed,
    OutputDraft,
    OutputOpened,
    OutputText,
    PlaybackCleared,
    PlaybackStarted,
    PlaybackStopped,
    ResponseClosed,
    ResponseOpened,
    ResponseView,
    Resumed,
    SpeechStarted,
    SpeechStopped,
    StageReached,
    TurnEnded,
)
from sessions.core.timeline import Token, to_ms, to_seconds

from . import realtime_session as schema
from .base import Meter
from .checks import Json, Object

Message = dict[str, Json]
"""One server event without its `event_id`."""

OWN_NOTICES: Final = (
    Held,
    Resumed,
    EpochBegan,
    TurnEnded,
    StageReached,
    PlaybackCleared,
    InputTranscriptHypothesis,
    DigitHeard,
    OutputDraft,
)
"""Notices that have no event in the protocol; sent as "x_talkover.…" to a client that asked for them."""

PLAYBACK_NOTICES: Final = (PlaybackStarted, PlaybackStopped, PlaybackCleared)
"""Notices of `output_audio_buffer.*`, which exists only where audio goes by a media track."""

_BY_USER: Final = ("barge_in", "key_pressed", "withdrawn", "turn_detected")
_LIMITS: Final = ("max_output_tokens", "content_filter")


def item(view: ItemView) -> Object:
    """An item as the protocol shows it."""
    shown: Message = {"id": view.id, "object": "realtime.item", "type": view.kind, "status": view.status}
    if view.kind == "function_call":
        return shown | {"call_id": view.call, "name": view.name, "arguments": view.text}
    if view.kind == "function_call_output":
        return shown | {"call_id": view.call, "output": view.text}
    # The file of an image is not sent back: the client has it, and knows it by its digest.
    images: list[Json] = [{"type": "input_image", "x_sha256": one.digest} for one in view.images]
    return shown | {"role": view.role, "content": images if images and _wordless(view) else [*images, _content(view)]}


def _wordless(view: ItemView) -> bool:
    return not view.text and not view.spoken


def _content(view: ItemView) -> Object:
    if view.role == "assistant":
        if view.spoken:
            return {"type": "output_audio", "transcript": view.text}
        return {"type": "output_text", "text": view.text}
    if view.spoken and view.role == "user":
        return {"type": "input_audio", "transcript": view.text or None}
    return {"type": "input_text", "text": view.text}


def _begun(view: ItemView) -> Object:
    shown = dict(item(view))
    if view.kind == "message":
        shown["content"] = []
    elif view.kind == "function_call":
        shown["arguments"] = ""
    return shown | {"status": "in_progress"}


def response(view: ResponseView, session: Object, conversation: str) -> Object:
    """A response as the protocol shows it; `session` is the effective session object.

    `x_heard_by`, where it was cut: whether its heard position is the client's own report or the server's model.
    """
    shown: Object = {
        "object": "realtime.response",
        "id": view.id,
        "status": view.status,
        "status_details": _details(view),
        "output": [item(entry) for entry in view.items],
        "conversation_id": None if view.aside else conversation,
        "output_modalities": [view.modality],
        "max_output_tokens": "inf" if view.max_output_tokens is None else view.max_output_tokens,
        "audio": {"output": {"format": schema.output_of(session)["format"], "voice": schema.voice_of(session)}},
        "usage": None if view.status == "in_progress" else _usage(view),
        "metadata": dict(view.metadata) or None,
    }
    return shown if view.heard_by is None else {**shown, "x_heard_by": view.heard_by}


def _details(view: ResponseView) -> Json:
    if view.status == "cancelled":
        reason = "turn_detected" if view.detail in _BY_USER else "client_cancelled"
        return {"type": "cancelled", "reason": reason}
    if view.status == "incomplete":
        return {"type": "incomplete", "reason": view.detail if view.detail in _LIMITS else "max_output_tokens"}
    if view.status == "failed":
        error: Object = {"type": "server_error", "code": view.detail or "engine_failed", "message": view.message}
        return {"type": "failed", "error": error}
    return None


def _usage(view: ResponseView) -> Object:
    return {
        "total_tokens": view.input_tokens + view.output_tokens,
        "input_tokens": view.input_tokens,
        "output_tokens": view.output_tokens,
        "input_token_details": {
            "text_tokens": view.input_tokens,
            "audio_tokens": 0,
            "image_tokens": 0,
            "cached_tokens": 0,
            "cached_tokens_details": {"text_tokens": 0, "audio_tokens": 0, "image_tokens": 0},
        },
        "output_token_details": {"text_tokens": view.output_tokens, "audio_tokens": 0},
    }


def error(notice: CommandFailed) -> Message:
    """`error`; the session lives on."""
    return {
        "type": "error",
        "error": {
            "type": notice.kind,
            "code": notice.code,
            "message": notice.message,
            "param": notice.param,
            "event_id": notice.command,
        },
    }


# --- input and conversation ----------------------------------------------------------------------------------------


def _speech_started(n: SpeechStarted) -> Iterator[Message]:
    yield {"type": "input_audio_buffer.speech_started", "audio_start_ms": to_ms(n.at), "item_id": n.item}


def _speech_stopped(n: SpeechStopped) -> Iterator[Message]:
    yield {"type": "input_audio_buffer.speech_stopped", "audio_end_ms": to_ms(n.at), "item_id": n.item}


def _committed(n: InputCommitted) -> Iterator[Message]:
    yield {"type": "input_audio_buffer.committed", "item_id": n.item, "previous_item_id": n.previous}


def _cleared(_: InputCleared) -> Iterator[Message]:
    yield {"type": "input_audio_buffer.cleared"}


def _timed_out(n: InputTimedOut) -> Iterator[Message]:
    yield {
        "type": "input_audio_buffer.timeout_triggered",
        "audio_start_ms": to_ms(n.start),
        "audio_end_ms": to_ms(n.end),
        "item_id": n.item,
    }


_TRANSCRIPTION = "conversation.item.input_audio_transcription"


def _transcript_done(n: InputTranscriptDone) -> Iterator[Message]:
    # A delta can only add, a hypothesis may be revised: so the one delta is the whole, and whoever adds up is right.
    told = _logprobs(n.tokens)
    if n.text:
        yield {"type": f"{_TRANSCRIPTION}.delta", "item_id": n.item, "content_index": 0, "delta": n.text, **told}
    yield {
        "type": f"{_TRANSCRIPTION}.completed",
        "item_id": n.item,
        "content_index": 0,
        "transcript": n.text,
        "usage": {"type": "duration", "seconds": to_seconds(n.length)},
        **told,
    }


def _logprobs(tokens: Sequence[Token]) -> Message:
    """Left out where nobody asked: some clients refuse a null there."""
    told: list[Json] = [{"token": token.text, "bytes": list(token.raw), "logprob": token.logprob} for token in tokens]
    return {"logprobs": told} if told else {}


def _transcript_failed(n: InputTranscriptFailed) -> Iterator[Message]:
    yield {
        "type": f"{_TRANSCRIPTION}.failed",
        "item_id": n.item,
        "content_index": 0,
        # No `param`: some clients refuse a null there and then do not hear of the failure.
        "error": {"type": "server_error", "code": n.code, "message": n.message},
    }


def _item_added(n: ItemAdded) -> Iterator[Message]:
    view = n.item
    if view.role == "user" and view.spoken:
        # Its words follow as transcription events, even where they are known already: some clients append them.
        view = replace(view, text="")
    shown = item(view)
    yield {"type": "conversation.item.added", "previous_item_id": n.previous, "item": shown}
    yield {"type": "conversation.item.done", "previous_item_id": n.previous, "item": shown}


def _item_deleted(n: ItemDeleted) -> Iterator[Message]:
    yield {"type": "conversation.item.deleted", "item_id": n.item}


def _item_retrieved(n: ItemRetrieved) -> Iterator[Message]:
    yield {"type": "conversation.item.retrieved", "item": item(n.item)}


def _item_truncated(n: ItemTruncated) -> Iterator[Message]:
    yield {
        "type": "conversation.item.truncated",
        "item_id": n.item,
        "content_index": n.content_index,
        "audio_end_ms": to_ms(n.position),
    }


# --- response ------------------------------------------------------------------------------------------------------


def _part(view: ItemView, text: str) -> Object:
    return {"type": "audio", "transcript": text} if view.spoken else {"type": "text", "text": text}


def _output_opened(n: OutputOpened) -> Iterator[Message]:
    shown = _begun(n.item)
    place: Message = {"response_id": n.response, "output_index": n.index}
    yield {"type": "response.output_item.added", **place, "item": shown}
    if not n.aside:
        yield {"type": "conversation.item.added", "previous_item_id": n.previous, "item": shown}
    if n.item.kind == "message":
        part = _part(n.item, "")
        yield {
            "type": "response.content_part.added",
            **place,
            "item_id": n.item.id,
            "content_index": 0,
            "part": part,
        }


def _output_text(n: OutputText) -> Iterator[Message]:
    yield {
        "type": "response.output_audio_transcript.delta" if n.spoken else "response.output_text.delta",
        "response_id": n.response,
        "item_id": n.item,
        "output_index": n.index,
        "content_index": 0,
        "delta": n.text,
    }


def _output_closed(n: OutputClosed) -> Iterator[Message]:
    view = n.item
    place: Message = {"response_id": n.response, "output_index": n.index}
    content: Message = {**place, "item_id": view.id, "content_index": 0}
    if view.kind == "function_call":
        call: Message = {**place, "item_id": view.id, "call_id": view.call}
        yield {"type": "response.function_call_arguments.delta", **call, "delta": view.text}
        yield {
            "type": "response.function_call_arguments.done",
            **call,
            "name": view.name,
            "arguments": view.text,
        }
    elif view.kind == "message":
        if view.spoken:
            yield {"type": "response.output_audio.done", **content}
            yield {"type": "response.output_audio_transcript.done", **content, "transcript": view.text}
        else:
            yield {"type": "response.output_text.done", **content, "text": view.text}
        yield {"type": "response.content_part.done", **content, "part": _part(view, view.text)}
    shown = item(view)
    if not n.aside:
        yield {"type": "conversation.item.done", "previous_item_id": n.previous, "item": shown}
    yield {"type": "response.output_item.done", **place, "item": shown}


# --- by type -------------------------------------------------------------------------------------------------------

_EXPAND: Final[Mapping[type, Callable[..., Iterator[Message]]]] = {
    SpeechStarted: _speech_started,
    SpeechStopped: _speech_stopped,
    InputCommitted: _committed,
    InputCleared: _cleared,
    InputTimedOut: _timed_out,
    InputTranscriptDone: _transcript_done,
    InputTranscriptFailed: _transcript_failed,
    ItemAdded: _item_added,
    ItemDeleted: _item_deleted,
    ItemRetrieved: _item_retrieved,
    ItemTruncated: _item_truncated,
    OutputOpened: _output_opened,
    OutputText: _output_text,
    OutputClosed: _output_closed,
}


def events(notice: Notice, session: Object, conversation: str, track: bool, own: bool) -> Sequence[Message]:
    """The events for any notice but `SessionConfigured`, whose answer is the dialect's own state.

    `track`: audio goes by a media track, so its buffer is reported. `own`: the client asked for our own notices.
    """
    if isinstance(notice, CommandFailed):
        return [error(notice)]
    if isinstance(notice, ResponseOpened):
        return [{"type": "response.created", "response": response(notice.response, session, conversation)}]
    if isinstance(notice, ResponseClosed):
        return [{"type": "response.done", "response": response(notice.response, session, conversation)}]
    expand = _EXPAND.get(type(notice))
    if expand is not None:
        return list(expand(notice))
    messages: list[Message] = []
    if track and isinstance(notice, PLAYBACK_NOTICES):
        messages.append(_buffer(notice))
    if own and isinstance(notice, OWN_NOTICES):
        messages.append(_own(notice))
    return messages


def rate_limits(view: ResponseView, meter: Meter | None) -> Sequence[Message]:
    """What follows the end of a response.

    Without limits it lists none. There are clients that take the event after a completed response for the sign that
    they may speak again.
    """
    if meter is None:
        return [{"type": "rate_limits.updated", "rate_limits": []}] if view.status == "completed" else []
    left: list[Json] = [
        {"name": one.name, "limit": one.limit, "remaining": one.remaining, "reset_seconds": one.reset_seconds}
        for one in meter.allowances()
    ]
    return [{"type": "rate_limits.updated", "rate_limits": left}]


def _buffer(notice: PlaybackStarted | PlaybackStopped | PlaybackCleared) -> Message:
    word = {PlaybackStarted: "started", PlaybackStopped: "stopped", PlaybackCleared: "cleared"}[type(notice)]
    return {"type": f"output_audio_buffer.{word}", "response_id": notice.response}


def _own(
    notice: Held
    | Resumed
    | EpochBegan
    | TurnEnded
    | StageReached
    | PlaybackCleared
    | InputTranscriptHypothesis
    | DigitHeard
    | OutputDraft,
) -> Message:
    name = re.sub(r"(?<!^)([A-Z])", r"_\1", type(notice).__name__).lower()
    values: Message = {field.name: getattr(notice, field.name) for field in fields(notice)}
    if isinstance(notice, StageReached):
        del values["elapsed"]
        if notice.elapsed is not None:
            values["elapsed_ms"] = to_ms(notice.elapsed)
    return {"type": f"x_talkover.{name}", **values}
