"""Client events of the Realtime API to commands of the session core, except `session.update`.

https://platform.openai.com/docs/api-reference/realtime-client-events. Each function takes the event object, the
client's own event id and, where it matters, the effective session; it raises `Rejected` with the path of the wrong
field.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Mapping
from typing import Final, Literal

from codec import g711
from sessions.core.context import ContextEntry, ItemReference
from sessions.core.events import (
    Event,
    InputClear,
    InputCommit,
    ItemCreate,
    ItemDelete,
    ItemRetrieve,
    ItemTruncate,
    OutputClear,
    ResponseCancel,
    ResponseCreate,
)
from sessions.core.timeline import from_ms

from . import realtime_session as schema
from .base import InputAudio, InputImage, ItemAudio, Received
from .checks import (
    INVALID_VALUE,
    UNSUPPORTED,
    Json,
    Object,
    Rejected,
    a_list,
    a_string,
    an_integer,
    an_object,
    one_of,
    required,
)
from .images import MOST as MOST_IMAGES
from .images import image

LONGEST_ID: Final = 128
LONGEST_AUDIO_MS: Final = 24 * 3600 * 1000
_LAWS: Final[Mapping[str, g711.Law]] = {"audio/pcmu": "ulaw", "audio/pcma": "alaw"}

Role = Literal["user", "assistant", "system"]


def audio(value: Json, path: str, media: str) -> tuple[bytes, int]:
    """Base64 audio in format `media` to (PCM16 bytes, rate).

    Decoding is strict: a decoder that skips what it does not know turns a corrupt message into noise.
    """
    if not isinstance(value, str):
        raise Rejected("invalid_type", f"{path!r} takes a string with base64 audio", path)
    try:
        raw = binascii.a2b_base64(value, strict_mode=True)
    except ValueError as error:
        raise Rejected("invalid_audio", f"{path!r} is not base64 ({error}); nothing of it was used", path) from None
    law = _LAWS.get(media)
    if law is not None:
        return g711.decode(raw, law), g711.RATE
    if len(raw) % 2:
        raise Rejected(
            "invalid_audio",
            f"{path!r} has {len(raw)} bytes, which is half a sample too much: audio/pcm is 16-bit little-endian mono; "
            "nothing of it was used",
            path,
        )
    return raw, 24000


def plain_audio(text: str, media: str) -> InputAudio | None:
    """What `append` makes of audio in order, by a shorter way; None for any other, which is to go the long one."""
    try:
        raw = binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        return None
    law = _LAWS.get(media)
    if law is not None and raw:
        return InputAudio(g711.decode(raw, law), g711.RATE)
    return InputAudio(raw, 24000) if raw and len(raw) % 2 == 0 else None


def append(event: Object, media: str) -> list[InputAudio]:
    """`input_audio_buffer.append`; `media` is the input format in force."""
    pcm, rate = audio(required(event, "audio", "audio"), "audio", media)
    return [InputAudio(pcm, rate)] if pcm else []


def item(event: Object, command: str | None, media: str) -> list[Received]:
    """`conversation.item.create`: the files of its images, and then the item."""
    images: list[InputImage] = []
    create = item_create(event, command, media, images)
    return [*images, create]


def item_create(
    event: Object, command: str | None, media: str, images: list[InputImage] | None = None
) -> ItemCreate | ItemAudio:
    """The item of a `conversation.item.create`. Its images are added to `images`; without that none are taken."""
    item = an_object(required(event, "item", "item"), "item")
    kind = one_of(required(item, "type", "item.type"), "item.type", _ITEM_KINDS)
    name = _optional_id(item, "id", "item.id")
    previous = _optional_id(event, "previous_item_id", "previous_item_id")
    if kind == "function_call":
        return ItemCreate(
            role="assistant",
            kind="function_call",
            id=name,
            call=_an_id(item, "call_id", "item.call_id"),
            name=a_string(required(item, "name", "item.name"), "item.name", longest=64, shortest=1),
            text=a_string(required(item, "arguments", "item.arguments"), "item.arguments"),
            previous=previous,
            command=command,
        )
    if kind == "function_call_output":
        return ItemCreate(
            role="user",
            kind="function_call_output",
            id=name,
            call=_an_id(item, "call_id", "item.call_id"),
            text=a_string(required(item, "output", "item.output"), "item.output"),
            previous=previous,
            command=command,
        )
    role = _role(item)
    text, sound = _content(item, role, media, images)
    seen = tuple(one.image for one in images or ())
    create = ItemCreate(role=role, id=name, text=text, previous=previous, images=seen, command=command)
    return create if sound is None else ItemAudio(create, *sound)


def item_truncate(event: Object, command: str | None) -> ItemTruncate:
    return ItemTruncate(
        item=_an_id(event, "item_id", "item_id"),
        position=from_ms(
            an_integer(required(event, "audio_end_ms", "audio_end_ms"), "audio_end_ms", 0, LONGEST_AUDIO_MS)
        ),
        content_index=an_integer(required(event, "content_index", "content_index"), "content_index", 0, 1024),
        command=command,
    )


def response_create(event: Object, command: str | None, session: Object) -> ResponseCreate:
    """`response.create`. A request that would silently get something else than it asked for is refused."""
    value = event.get("response")
    if value is None:
        return ResponseCreate(command=command)
    wanted = an_object(value, "response")
    instructions, modality, choice = (wanted.get(key) for key in ("instructions", "output_modalities", "tool_choice"))
    tools = wanted.get("tools")
    offered = session["tools"] if tools is None else schema.tools(tools, "response.tools")
    if choice is not None:
        choice = schema.tool_choice(choice, "response.tool_choice")
        if isinstance(choice, Mapping):
            schema.check_known_tool(str(choice["name"]), offered, "response.tool_choice.name")
    limit = schema.token_limit(wanted.get("max_output_tokens"), "response.max_output_tokens")
    return ResponseCreate(
        instructions=None if instructions is None else a_string(instructions, "response.instructions"),
        modality=None if modality is None else _modality(modality),
        tool_choice=None if choice is None else schema.to_tool_choice(choice),
        max_output_tokens=limit if isinstance(limit, int) else None,
        metadata=_metadata(wanted.get("metadata"), "response.metadata"),
        tools=None if tools is None else schema.to_tools(offered),
        voice=_voice(wanted, session),
        aside=_aside(wanted),
        input=_input(wanted),
        command=command,
    )


def _aside(wanted: Object) -> bool:
    conversation = wanted.get("conversation")
    return conversation is not None and one_of(conversation, "response.conversation", ("auto", "none")) == "none"


def _input(wanted: Object) -> tuple[ContextEntry | ItemReference, ...] | None:
    """`response.input`: items of the request's own, read in the place of the conversation."""
    if wanted.get("input") is None:
        return None
    entries: list[ContextEntry | ItemReference] = []
    for index, value in enumerate(a_list(wanted["input"], "response.input", longest=1024)):
        path = f"response.input[{index}]"
        item = an_object(value, path)
        if item.get("type") == "item_reference":
            entries.append(ItemReference(_an_id(item, "id", f"{path}.id")))
            continue
        try:
            create = item_create({"item": item}, None, "audio/pcm")
        except Rejected as why:
            raise Rejected(why.code, why.message, f"{path}{(why.param or 'item').removeprefix('item')}") from None
        if isinstance(create, ItemAudio):
            remedy = "audio is not taken in response.input; put it into the conversation and refer to its item"
            raise Rejected(UNSUPPORTED, remedy, path)
        entries.append(ContextEntry(create.role, create.kind, create.text, create.call, create.name))
    return tuple(entries)


def _voice(wanted: Object, session: Object) -> str | None:
    """The voice of this response alone, where it has one; its format is always that of the session."""
    if wanted.get("audio") is None:
        return None
    asked = an_object(wanted["audio"], "response.audio").get("output")
    if asked is None:
        return None
    output = an_object(asked, "response.audio.output")
    path = "response.audio.output.format"
    if output.get("format") is not None and (
        schema.audio_format(output["format"], path) != schema.output_of(session)["format"]
    ):
        raise Rejected(UNSUPPORTED, "a response has the format of its session; set it by session.update", path)
    if output.get("voice") is None:
        return None
    name = schema.voice_name(schema.voice(output["voice"], "response.audio.output.voice", None))
    return None if name in schema.VENDOR_VOICES else name


def _commit(event: Object, command: str | None) -> Event:
    return InputCommit(command)


def _clear(event: Object, command: str | None) -> Event:
    return InputClear(command)


def _output_clear(event: Object, command: str | None) -> Event:
    return OutputClear(command)


def _delete(event: Object, command: str | None) -> Event:
    return ItemDelete(_an_id(event, "item_id", "item_id"), command)


def _retrieve(event: Object, command: str | None) -> Event:
    return ItemRetrieve(_an_id(event, "item_id", "item_id"), command)


def _cancel(event: Object, command: str | None) -> Event:
    return ResponseCancel(_optional_id(event, "response_id", "response_id"), command)


PLAIN: Final[Mapping[str, Callable[[Object, str | None], Event]]] = {
    "input_audio_buffer.commit": _commit,
    "input_audio_buffer.clear": _clear,
    "output_audio_buffer.clear": _output_clear,
    "conversation.item.truncate": item_truncate,
    "conversation.item.delete": _delete,
    "conversation.item.retrieve": _retrieve,
    "response.cancel": _cancel,
}
"""Client events that need nothing but themselves."""

_ITEM_KINDS: Final = ("message", "function_call", "function_call_output")
_PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "user": ("input_text", "input_audio", "input_image"),
    "assistant": ("output_text", "output_audio"),
    "system": ("input_text",),
}


def _role(item: Object) -> Role:
    match one_of(required(item, "role", "item.role"), "item.role", ("user", "assistant", "system")):
        case "user":
            return "user"
        case "assistant":
            return "assistant"
        case _:
            return "system"


def _content(
    item: Object, role: Role, media: str, images: list[InputImage] | None
) -> tuple[str, tuple[bytes, int] | None]:
    """Text of all parts, a line each, and the audio of the one part that may have some; images go to `images`."""
    parts = a_list(required(item, "content", "item.content"), "item.content", longest=64)
    if not parts:
        raise Rejected(INVALID_VALUE, "'item.content' is empty; give at least one part", "item.content")
    texts: list[str] = []
    sound: tuple[bytes, int] | None = None
    for index, value in enumerate(parts):
        path = f"item.content[{index}]"
        part = an_object(value, path)
        kind = a_string(required(part, "type", f"{path}.type"), f"{path}.type", longest=64)
        # "text" is the name of before the general release; some clients still send it.
        one_of("output_text" if kind == "text" and role == "assistant" else _modern(kind), f"{path}.type", _PARTS[role])
        if kind == "input_image":
            _add_image(part, path, images)
        elif not kind.endswith("audio"):
            texts.append(a_string(required(part, "text", f"{path}.text"), f"{path}.text"))
        elif part.get("transcript") is not None:
            texts.append(a_string(part["transcript"], f"{path}.transcript"))
        elif role == "assistant":
            raise Rejected(
                "missing_required_parameter",
                f"{path!r} needs its transcript: what an assistant said is read, not heard",
                f"{path}.transcript",
            )
        elif sound is not None or any(_kind_of(other) not in ("input_audio", "input_image") for other in parts):
            remedy = "audio without a transcript must be the only part of its item, beside images"
            raise Rejected(UNSUPPORTED, remedy, path)
        else:
            sound = audio(required(part, "audio", f"{path}.audio"), f"{path}.audio", media)
            if not sound[0]:
                raise Rejected("invalid_audio", f"{path + '.audio'!r} is empty", f"{path}.audio")
    return "\n".join(texts), sound


def _kind_of(part: Json) -> Json:
    return part.get("type") if isinstance(part, Mapping) else None


def _add_image(part: Object, path: str, images: list[InputImage] | None) -> None:
    if images is None:
        remedy = "images are not taken in response.input; put one into the conversation and refer to its item"
        raise Rejected(UNSUPPORTED, remedy, f"{path}.type")
    if len(images) == MOST_IMAGES:
        raise Rejected(INVALID_VALUE, f"an item takes at most {MOST_IMAGES} images; make another item", path)
    images.append(image(part, path))


def _modern(kind: str) -> str:
    return "input_text" if kind == "text" else kind


def _an_id(holder: Object, key: str, path: str) -> str:
    return a_string(required(holder, key, path), path, longest=LONGEST_ID, shortest=1)


def _optional_id(holder: Object, key: str, path: str) -> str | None:
    return None if holder.get(key) is None else _an_id(holder, key, path)


def _modality(value: Json) -> Literal["audio", "text"]:
    return "text" if schema.modalities(value, "response.output_modalities") == ["text"] else "audio"


def _metadata(value: Json, path: str) -> tuple[tuple[str, str], ...]:
    if value is None:
        return ()
    pairs = an_object(value, path)
    if len(pairs) > 16:
        raise Rejected(INVALID_VALUE, f"{path!r} has {len(pairs)} pairs; at most 16 are taken", path)
    return tuple((a_string(key, path, longest=64), a_string(pairs[key], f"{path}.{key}", longest=512)) for key in pairs)
