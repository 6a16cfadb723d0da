"""From settings to the rules for recordings, and to what they say of the engine."""

from __future__ import annotations

from sessions.core.records import Plain
from sessions.recording.policy import RecordingPolicy

from .settings import Settings


def engine_named(settings: Settings) -> dict[str, Plain]:
    """Which engine answers, for manifests: names alone, no paths and no keys."""
    named: dict[str, Plain] = {"engine": settings.engine}
    if settings.checkpoint is not None:
        named["checkpoint"] = settings.checkpoint.name
    for name in ("random_weights", "llm_model", "tts_model"):
        value = getattr(settings, name)
        if value is not None:
            named[name] = value
    return named


def policy_of(settings: Settings) -> RecordingPolicy:
    """What `settings` want to be recorded and kept. Raises InvalidKey."""
    session, total = settings.record_session_mb, settings.record_total_gb
    return RecordingPolicy(
        consent="required" if settings.record_consent == "required" else "assumed",
        session_bytes=None if session is None else session * 1_000_000,
        total_bytes=None if total is None else round(total * 1e9),
        keep_days=settings.record_days,
        tenant_days=settings.tenant_days(),
        secrets=settings.secrets(),
    )
