"""From settings to the rules for recordings."""

from __future__ import annotations

from sessions.recording.policy import RecordingPolicy

from .settings import Settings


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
