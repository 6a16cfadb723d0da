"""The vendor's published models as the judge of every server event."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter

_ADAPTER: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)
_SESSIONS = {
    "realtime": "RealtimeSessionCreateRequest",
    "transcription": "RealtimeTranscriptionSessionCreateRequest",
}
_ITEMS = {
    ("message", "user"): "RealtimeConversationItemUserMessage",
    ("message", "assistant"): "RealtimeConversationItemAssistantMessage",
    ("message", "system"): "RealtimeConversationItemSystemMessage",
    ("function_call", None): "RealtimeConversationItemFunctionCall",
    ("function_call_output", None): "RealtimeConversationItemFunctionCallOutput",
}

Validate = Callable[[list[str]], list[dict[str, Any]]]


def check(text: str) -> dict[str, Any]:
    """The event, if it is exactly one of the vendor's models; the union must not have settled for a similar one."""
    event: dict[str, Any] = json.loads(text)
    model = _ADAPTER.validate_json(text, strict=True)
    assert model.type == event["type"]
    assert model.event_id == event["event_id"]
    if "item" in event:
        assert type(model.item).__name__ == _ITEMS[event["item"]["type"], event["item"].get("role")]
    if "session" in event:
        assert type(model.session).__name__ == _SESSIONS[event["session"]["type"]]
    return event


@pytest.fixture
def valid() -> Validate:
    return lambda texts: [check(text) for text in texts]
