"""What engines that own their turns have in common."""

from __future__ import annotations

from sessions.core.effects import StartResponse
from sessions.core.events import EngineFailed


def refused(request: StartResponse) -> EngineFailed:
    """The answer to whoever asks such an engine for a response."""
    message = "this engine decides by itself when it speaks; send it audio instead of asking for a response"
    return EngineFailed(request.fence, request.response, "engine_owns_turns", message)
