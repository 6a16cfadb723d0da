"""From settings to models that run elsewhere. Part of the composition root: only `server.models_loading` uses it."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from models.families.embedded.talker import Talker
from models.perception.perception import Recognizes

from .settings import Settings, SettingsError

if TYPE_CHECKING:
    from models.families.vllm_omni.engine import VllmOmniEngine
    from models.families.vllm_omni.protocol import Object

MAX_SESSION_FILE = 32 << 20
"""Bytes of `--engine-session`; a reference voice in it takes a few hundred kilobytes."""

REMOTE_SESSIONS = 64
"""Sessions at a remote engine at a time where no setting says otherwise; it refuses by itself what it cannot take."""


class RemoteRecognizer(Recognizes, Protocol):
    """A recognizer with a connection to close."""

    def close(self) -> None: ...


class RemoteTalker(Talker, Protocol):
    """A talker with a connection to close."""

    def close(self) -> None: ...


def remote_recognizer(settings: Settings) -> RemoteRecognizer:
    """What `--asr-url` names, by its scheme. Raises RemoteError and SettingsError."""
    url, key, languages = settings.asr_url or "", settings.asr_key or "", settings.languages
    if url.startswith("ws"):
        _needs_msgpack("--asr-url")
        from models.perception.asr_kyutai import LANGUAGES, KyutaiRecognizer

        return KyutaiRecognizer(url, key, languages=languages or LANGUAGES)
    from models.perception.asr_openai import OpenAIRecognizer

    return OpenAIRecognizer(url, settings.asr_model or "", key, languages=languages or ("en",))


def remote_talker(settings: Settings) -> RemoteTalker:
    """What `--tts-url` names, by its scheme. Raises RemoteError and SettingsError."""
    url, key = settings.tts_url or "", settings.tts_key or ""
    if url.startswith("ws"):
        _needs_msgpack("--tts-url")
        from models.families.embedded.talker_kyutai import KyutaiTalker

        return KyutaiTalker(url, key, voice=settings.tts_voice or "")
    from models.families.embedded.talker_openai import DEFAULT_VOICE, OpenAITalker

    return OpenAITalker(url, settings.tts_model or "", key, voice=settings.tts_voice or DEFAULT_VOICE)


def _needs_msgpack(option: str) -> None:
    if find_spec("msgpack") is None:
        raise SettingsError(f"{option} ws://…: Kyutai's servers speak MessagePack; pip install msgpack")


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
