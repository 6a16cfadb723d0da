"""What a client may send: each good event becomes its command, each bad one a rejection that names the field."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest

from codec import g711
from server.dialects.base import InputAudio, ItemAudio
from server.dialects.realtime import RealtimeDialect
from sessions.core.config import SessionConfig, Tool
from sessions.core.context import ContextEntry, ItemReference
from sessions.core.events import (
    CommandRejected,
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

PCM = np.arange(-240, 240, dtype="<i2").tobytes()
AUDIO = base64.b64encode(PCM).decode()
TOOL = Tool(name="add", description="sum", parameters="{}")


def dialect(**patch: Any) -> RealtimeDialect:
    made = RealtimeDialect("m", SessionConfig(tools=(TOOL,)), patch={"type": "realtime", **patch} if patch else None)
    made.open("sess_1")
    return made


def receive(event: Any, **patch: Any) -> Any:
    (received,) = dialect(**patch).receive(event if isinstance(event, str | bytes) else json.dumps(event))
    return received


def create(item: Any, **more: Any) -> dict[str, Any]:
    return {"type": "conversation.item.create", "event_id": "e", "item": item, **more}


def respond(**response: Any) -> dict[str, Any]:
    return {"type": "response.create", "event_id": "e", "response": response}


def message(role: str, *parts: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": list(parts)}


TEXT = {"type": "input_text", "text": "hi"}

GOOD: list[tuple[dict[str, Any], object]] = [
    ({"type": "input_audio_buffer.append", "audio": AUDIO}, InputAudio(PCM, 24000)),
    ({"type": "input_audio_buffer.commit"}, InputCommit()),
    ({"type": "input_audio_buffer.commit", "event_id": "e"}, InputCommit("e")),
    ({"type": "input_audio_buffer.clear", "event_id": "e"}, InputClear("e")),
    ({"type": "output_audio_buffer.clear", "event_id": "e"}, OutputClear("e")),
    ({"type": "conversation.item.delete", "item_id": "i", "event_id": "e"}, ItemDelete("i", "e")),
    ({"type": "conversation.item.retrieve", "item_id": "i"}, ItemRetrieve("i")),
    (
        {
            "type": "conversation.item.truncate",
            "item_id": "i",
            "content_index": 0,
            "audio_end_ms": 1500,
            "event_id": "e",
        },
        ItemTruncate("i", 72_000, 0, "e"),
    ),
    (
        {"type": "conversation.item.truncate", "item_id": "i", "content_index": 0, "audio_end_ms": 0},
        ItemTruncate("i", 0),
    ),
    ({"type": "response.cancel"}, ResponseCancel()),
    ({"type": "response.cancel", "response_id": "r", "event_id": "e"}, ResponseCancel("r", "e")),
    ({"type": "response.create"}, ResponseCreate()),
    ({"type": "response.create", "response": None, "event_id": "e"}, ResponseCreate(command="e")),
    (respond(), ResponseCreate(command="e")),
    (
        respond(
            conversation="auto",
            instructions="sing",
            output_modalities=["text"],
            tool_choice={"type": "function", "name": "add"},
            max_output_tokens=50,
            metadata={"client_event_id": "x", "b": "c"},
            audio={"output": {"format": {"type": "audio/pcm"}, "voice": "default"}},
            tools=[{"type": "function", "name": "add", "description": "sum"}],
        ),
        ResponseCreate(
            "sing",
            "text",
            "add",
            50,
            (("client_event_id", "x"), ("b", "c")),
            tools=(Tool(name="add", description="sum"),),
            voice="default",
            command="e",
        ),
    ),
    (
        respond(
            conversation="none",
            tools=[],
            audio={"output": {"voice": "ash"}},
            input=[
                {"type": "item_reference", "id": "item_1"},
                message("user", TEXT),
                {"type": "function_call_output", "call_id": "c", "output": "4"},
            ],
        ),
        ResponseCreate(
            tools=(),
            aside=True,
            input=(
                ItemReference("item_1"),
                ContextEntry("user", "message", TEXT["text"]),
                ContextEntry("user", "function_call_output", "4", "c"),
            ),
            command="e",
        ),
    ),
    (respond(input=[], audio={"output": {"voice": "other"}}), ResponseCreate(voice="other", input=(), command="e")),
    (
        respond(tools=[], tool_choice="none"),
        ResponseCreate(tool_choice="none", tools=(), command="e"),
    ),
    (
        respond(output_modalities=["audio"], max_output_tokens="inf", tool_choice="none"),
        ResponseCreate(None, "audio", "none", command="e"),
    ),
    (create(message("user", TEXT)), ItemCreate("user", text="hi", command="e")),
    (
        create(
            {"id": "mine", **message("system", TEXT, {"type": "input_text", "text": "there"})}, previous_item_id="root"
        ),
        ItemCreate("system", id="mine", text="hi\nthere", previous="root", command="e"),
    ),
    (
        create(message("assistant", {"type": "output_text", "text": "yo"})),
        ItemCreate("assistant", text="yo", command="e"),
    ),
    (create(message("assistant", {"type": "text", "text": "yo"})), ItemCreate("assistant", text="yo", command="e")),
    (
        create(message("assistant", {"type": "output_audio", "transcript": "yo"})),
        ItemCreate("assistant", text="yo", command="e"),
    ),
    (
        create(message("user", {"type": "input_audio", "audio": AUDIO, "transcript": "known"})),
        ItemCreate("user", text="known", command="e"),
    ),
    (
        create(message("user", {"type": "input_audio", "audio": AUDIO}), previous_item_id="p"),
        ItemAudio(ItemCreate("user", previous="p", command="e"), PCM, 24000),
    ),
    (
        create({"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"}),
        ItemCreate("assistant", "function_call", text="{}", call="c", name="add", command="e"),
    ),
    (
        create({"type": "function_call_output", "call_id": "c", "output": "4", "id": "o"}),
        ItemCreate("user", "function_call_output", id="o", text="4", call="c", command="e"),
    ),
]


@pytest.mark.parametrize(("event", "command"), GOOD)
def test_an_event_becomes_its_command(event: dict[str, Any], command: object) -> None:
    assert receive(event) == command


BAD: list[tuple[Any, str | None, str]] = [
    ("{", None, "invalid_json"),
    ("[1]", None, "invalid_json"),
    ("null", None, "invalid_json"),
    (b"\x00\x01", None, "invalid_message"),
    ({}, "type", "missing_required_parameter"),
    ({"type": None}, "type", "invalid_type"),
    ({"type": ["x"]}, "type", "invalid_type"),
    ({"type": "session.delete"}, "type", "invalid_value"),
    ({"type": "x" * 100_000}, "type", "invalid_value"),
    ({"type": "input_audio_buffer.commit", "event_id": 5}, "event_id", "invalid_type"),
    ({"type": "input_audio_buffer.commit", "event_id": "x" * 513}, "event_id", "invalid_value"),
    ({"type": "session.update"}, "session", "missing_required_parameter"),
    ({"type": "input_audio_buffer.append"}, "audio", "missing_required_parameter"),
    ({"type": "input_audio_buffer.append", "audio": None}, "audio", "invalid_type"),
    ({"type": "input_audio_buffer.append", "audio": [1, 2]}, "audio", "invalid_type"),
    ({"type": "input_audio_buffer.append", "audio": "not base64!"}, "audio", "invalid_audio"),
    ({"type": "input_audio_buffer.append", "audio": "AAAA\nAAAA"}, "audio", "invalid_audio"),
    ({"type": "input_audio_buffer.append", "audio": "AA-_"}, "audio", "invalid_audio"),
    ({"type": "input_audio_buffer.append", "audio": "AAA"}, "audio", "invalid_audio"),
    ({"type": "input_audio_buffer.append", "audio": "AAAA=AAA"}, "audio", "invalid_audio"),
    ({"type": "input_audio_buffer.append", "audio": "äöü="}, "audio", "invalid_audio"),
    ({"type": "input_audio_buffer.append", "audio": base64.b64encode(b"abc").decode()}, "audio", "invalid_audio"),
    ({"type": "conversation.item.delete"}, "item_id", "missing_required_parameter"),
    ({"type": "conversation.item.delete", "item_id": ""}, "item_id", "invalid_value"),
    ({"type": "conversation.item.retrieve", "item_id": 4}, "item_id", "invalid_type"),
    (
        {"type": "conversation.item.truncate", "content_index": 0, "audio_end_ms": 1},
        "item_id",
        "missing_required_parameter",
    ),
    (
        {"type": "conversation.item.truncate", "item_id": "i", "audio_end_ms": 1},
        "content_index",
        "missing_required_parameter",
    ),
    (
        {"type": "conversation.item.truncate", "item_id": "i", "content_index": 0},
        "audio_end_ms",
        "missing_required_parameter",
    ),
    (
        {"type": "conversation.item.truncate", "item_id": "i", "content_index": 0, "audio_end_ms": -1},
        "audio_end_ms",
        "invalid_value",
    ),
    (
        {"type": "conversation.item.truncate", "item_id": "i", "content_index": 0, "audio_end_ms": 1.5},
        "audio_end_ms",
        "invalid_type",
    ),
    (
        {"type": "conversation.item.truncate", "item_id": "i", "content_index": 0, "audio_end_ms": 10**12},
        "audio_end_ms",
        "invalid_value",
    ),
    ({"type": "response.cancel", "response_id": 1}, "response_id", "invalid_type"),
    ({"type": "response.create", "response": []}, "response", "invalid_type"),
    (respond(conversation="both"), "response.conversation", "invalid_value"),
    (respond(conversation=1), "response.conversation", "invalid_type"),
    (respond(input={}), "response.input", "invalid_type"),
    (respond(input=["hi"]), "response.input[0]", "invalid_type"),
    (respond(input=[{"type": "item_reference"}]), "response.input[0].id", "missing_required_parameter"),
    (respond(input=[message("robot", TEXT)]), "response.input[0].role", "invalid_value"),
    (respond(input=[message("user", {"type": "input_audio", "audio": AUDIO})]), "response.input[0]", "unsupported"),
    (respond(instructions=1), "response.instructions", "invalid_type"),
    (respond(output_modalities=["text", "audio"]), "response.output_modalities", "invalid_value"),
    (respond(tool_choice="some"), "response.tool_choice", "invalid_value"),
    (respond(tool_choice={"type": "function", "name": "nope"}), "response.tool_choice.name", "invalid_value"),
    (respond(tools=[{"type": "function"}]), "response.tools[0].name", "missing_required_parameter"),
    (respond(max_output_tokens=0), "response.max_output_tokens", "invalid_value"),
    (respond(metadata=[]), "response.metadata", "invalid_type"),
    (respond(metadata={"a": 1}), "response.metadata.a", "invalid_type"),
    (respond(metadata={"a": "x" * 513}), "response.metadata.a", "invalid_value"),
    (respond(metadata={"k" * 65: "x"}), "response.metadata", "invalid_value"),
    (respond(metadata={str(n): "" for n in range(17)}), "response.metadata", "invalid_value"),
    (respond(audio=1), "response.audio", "invalid_type"),
    (respond(audio={"output": {"voice": 7}}), "response.audio.output.voice", "invalid_type"),
    (respond(audio={"output": {"format": {"type": "audio/pcmu"}}}), "response.audio.output.format", "unsupported"),
    (respond(audio={"output": {"format": {"type": "mp3"}}}), "response.audio.output.format.type", "invalid_value"),
    ({"type": "conversation.item.create"}, "item", "missing_required_parameter"),
    (create("text"), "item", "invalid_type"),
    (create({}), "item.type", "missing_required_parameter"),
    (create({"type": "mcp_call"}), "item.type", "invalid_value"),
    (create({"type": "message"}), "item.role", "missing_required_parameter"),
    (create(message("robot", TEXT)), "item.role", "invalid_value"),
    (create({"type": "message", "role": "user"}), "item.content", "missing_required_parameter"),
    (create({"type": "message", "role": "user", "content": "hi"}), "item.content", "invalid_type"),
    (create(message("user")), "item.content", "invalid_value"),
    (create(message("user", "hi")), "item.content[0]", "invalid_type"),
    (create(message("user", {"text": "hi"})), "item.content[0].type", "missing_required_parameter"),
    (create(message("user", TEXT, {"type": "output_text", "text": "x"})), "item.content[1].type", "invalid_value"),
    (create(message("assistant", TEXT)), "item.content[0].type", "invalid_value"),
    (create(message("system", {"type": "input_audio", "audio": AUDIO})), "item.content[0].type", "invalid_value"),
    (
        create(message("user", {"type": "input_image", "image_url": "data:"})),
        "item.content[0].image_url",
        "invalid_image",
    ),
    (create(message("user", {"type": "input_text"})), "item.content[0].text", "missing_required_parameter"),
    (create(message("user", {"type": "input_text", "text": None})), "item.content[0].text", "invalid_type"),
    (create(message("user", {"type": "input_audio"})), "item.content[0].audio", "missing_required_parameter"),
    (create(message("user", {"type": "input_audio", "audio": "???"})), "item.content[0].audio", "invalid_audio"),
    (create(message("user", {"type": "input_audio", "audio": ""})), "item.content[0].audio", "invalid_audio"),
    (create(message("user", TEXT, {"type": "input_audio", "audio": AUDIO})), "item.content[1]", "unsupported"),
    (
        create(message("assistant", {"type": "output_audio", "audio": AUDIO})),
        "item.content[0].transcript",
        "missing_required_parameter",
    ),
    (create({"type": "function_call", "name": "f", "arguments": "{}"}), "item.call_id", "missing_required_parameter"),
    (create({"type": "function_call", "call_id": "c", "arguments": "{}"}), "item.name", "missing_required_parameter"),
    (create({"type": "function_call", "call_id": "c", "name": "f"}), "item.arguments", "missing_required_parameter"),
    (create({"type": "function_call_output", "output": "x"}), "item.call_id", "missing_required_parameter"),
    (create({"type": "function_call_output", "call_id": "c"}), "item.output", "missing_required_parameter"),
    (create({"type": "function_call_output", "call_id": "c", "output": {"a": 1}}), "item.output", "invalid_type"),
    (create({"id": 7, **message("user", TEXT)}), "item.id", "invalid_type"),
    (create({"id": "x" * 129, **message("user", TEXT)}), "item.id", "invalid_value"),
    (create(message("user", TEXT), previous_item_id=3), "previous_item_id", "invalid_type"),
]


@pytest.mark.parametrize(("event", "param", "code"), BAD)
def test_a_bad_event_is_rejected_by_the_name_of_its_field(event: Any, param: str | None, code: str) -> None:
    rejected = receive(event)
    assert isinstance(rejected, CommandRejected)
    assert (rejected.param, rejected.code) == (param, code)
    assert 0 < len(rejected.message) < 400
    expected = event.get("event_id") if isinstance(event, dict) else None
    assert rejected.command == (expected if isinstance(expected, str) and len(expected) < 513 else None)


@pytest.mark.parametrize(("media", "law"), [("audio/pcmu", "ulaw"), ("audio/pcma", "alaw")])
def test_g711_input_is_decoded_by_the_declared_law(media: str, law: g711.Law) -> None:
    codes = bytes(range(255))
    event = {"type": "input_audio_buffer.append", "audio": base64.b64encode(codes).decode()}
    received = receive(event, audio={"input": {"format": {"type": media}}})
    assert received == InputAudio(g711.decode(codes, law), 8000)


@pytest.mark.parametrize("size", [2, 480, 888, 960, 240_000])
def test_an_append_may_have_any_length(size: int) -> None:
    pcm = bytes(range(256)) * (size // 256) + bytes(size % 256)
    event = {"type": "input_audio_buffer.append", "audio": base64.b64encode(pcm).decode()}
    assert receive(event) == InputAudio(pcm, 24000)


def test_an_empty_append_is_nothing() -> None:
    assert dialect().receive('{"type":"input_audio_buffer.append","audio":""}') == []
