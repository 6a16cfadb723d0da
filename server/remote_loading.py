"""From settings to models that run elsewhere. Part of the composition root: only `server.models_loading` uses it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, cast

from .settings import Settings, SettingsError

if TYPE_CHECKING:
    from models.families.vllm_omni.engine import VllmOmniEngine
    from models.families.vllm_omni.protocol import Object

MAX_SESSION_FILE = 32 << 20
"""Bytes of `--engine-session`; a reference voice in it takes a few hundred kilobytes."""

REMOTE_SESSIONS = 64
"""Sessions at a remote engine at a time where no setting says otherwise; it refuses by itself what it cannot take."""


def remote_engine(settings: Settings) -> VllmOmniEngine:
    """The engine of `--engine vllm-omni`, after its server has said what it can do. Blocks.

    Raises RemoteError and SettingsError.
    """
    from models.families.vllm_omni.engine import VllmOmniEngine
    from models.families.vllm_omni.session import RemoteOptions

    if settings.engine_url is None or settings.engine_model is None:
        raise SettingsError("--engine vllm-omni needs --engine-url ws://HOST:PORT and --engine-model NAME")
    options = RemoteOptions(
        url=settings.engine_url,
        model=settings.engine_model,
        key=settings.engine_key or "",
        session={} if settings.engine_session is None else _session_object(settings.engine_session),
    )
    try:
        engine = VllmOmniEngine(options, max_sessions=settings.max_sessions or REMOTE_SESSIONS)
    except ValueError as error:
        raise SettingsError(str(error)) from None
    try:
        engine.probe()
    except BaseException:
        engine.shutdown()
        raise
    return engine


def _session_object(path: Path) -> Object:
    if path.stat().st_size > MAX_SESSION_FILE:
        raise SettingsError(
            f"--engine-session {path} is larger than {MAX_SESSION_FILE} bytes; that is no session object"
        )
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"--engine-session {path} is not JSON ({error})") from None
    if not isinstance(given, dict):
        raise SettingsError(f"--engine-session {path} must hold a JSON object with fields of the session object")
    return cast("Object", given)
