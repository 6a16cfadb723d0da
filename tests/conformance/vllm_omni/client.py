"""vLLM-Omni's duplex client alone: its package's `__init__` loads torch and vLLM, which the client does not need."""

from __future__ import annotations

import sys
import types
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def _package_alone() -> None:
    """Put an empty package of that name in the place of the real one, so that its modules are found but not run."""
    spec = find_spec("vllm_omni")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("vllm_omni is not installed; see requirements-bare.txt")
    package = types.ModuleType("vllm_omni")
    package.__path__ = [str(Path(spec.origin).parent)]
    sys.modules["vllm_omni"] = package


_package_alone()

from microphone import Microphone  # noqa: E402
from scenario import Log, typed  # noqa: E402
from vllm_omni.clients.duplex import AudioFormat, DuplexClient, DuplexProtocolError, SessionConfig  # noqa: E402

__all__ = ["RATE", "AudioFormat", "DuplexProtocolError", "Observed", "SessionConfig"]

RATE = 24_000


class Observed(DuplexClient):
    """The client as it is; it also keeps what it sent and what came."""

    def __init__(self, url: str, config: SessionConfig, **options: Any) -> None:
        super().__init__(url.partition("?")[0], model="talkover", config=config, **options)
        self.raw: Log[dict[str, Any]] = Log()
        self.sent: list[dict[str, Any]] = []
        self.microphone = Microphone(self.append_audio, RATE)

    async def _send_command(self, payload: dict[str, Any]) -> None:
        self.sent.append(payload)
        await super()._send_command(payload)

    async def _dispatch(self, data: dict[str, Any]) -> None:
        self.raw.add(data)
        await super()._dispatch(data)

    async def seen(self, kind: str, after: int = 0, within: float = 45.0) -> dict[str, Any]:
        return await self.raw.wait(typed(kind), after, within, kind)

    async def configure(self, session: dict[str, Any]) -> None:
        """A `session.update` in the GA spelling, which the client's own lacks."""
        await self.send({"type": "session.update", "session": {"type": "realtime", **session}})
        await self.seen("session.updated", len(self.raw))

    def numbers(self) -> list[int]:
        """`server_event_seq` of every event that has one, in the order of arrival."""
        return [event["server_event_seq"] for event in self.raw.entries if "server_event_seq" in event]

    def refused(self) -> dict[str, dict[str, Any]]:
        """The error that answered an event, by the type of that event."""
        kinds = {payload["event_id"]: payload["type"] for payload in self.sent}
        errors = [event["error"] for event in self.raw.entries if event["type"] == "error"]
        return {kinds.get(error["event_id"], str(error["event_id"])): error for error in errors}
