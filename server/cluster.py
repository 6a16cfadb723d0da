"""What several servers share, as the settings have it: the directory of their sessions, and who watches figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sessions.core.timeline import Ticks
from sessions.counters import Counters
from sessions.figures import Figure
from sessions.keeper import Keeper
from sessions.manager import Observer

from .settings import Settings, SettingsError
from .voice_metrics import VoiceMetrics


class _Traced(Observer, Protocol):
    def close(self) -> None: ...


def keeper_of(settings: Settings, counters: Counters) -> Keeper:
    """The keeper of this process's sessions. Raises SettingsError."""
    if settings.directory is None:
        return Keeper(counters=counters)
    try:
        from .redis_ownership import RedisOwnership
    except ImportError:
        raise SettingsError(
            "--directory needs the extra `cluster`: pip install 'talkover[cluster]' (it brings redis)"
        ) from None
    try:
        return Keeper(RedisOwnership(settings.directory), counters)
    except ValueError as why:
        raise SettingsError(f"--directory: {why}; give redis://HOST:PORT, rediss://HOST:PORT or unix://PATH") from None


class Observers:
    """All who are told how the conversations go: the metrics, and the traces where they are wanted."""

    def __init__(self, settings: Settings) -> None:
        """Raises SettingsError."""
        self.metrics = VoiceMetrics()
        self._tracing: _Traced | None = None
        if settings.otlp_endpoint is None:
            return
        try:
            from .tracing import Tracing, exporter
        except ImportError:
            raise SettingsError(
                "--otlp-endpoint needs the extra `tracing`: pip install 'talkover[tracing]' (it brings opentelemetry)"
            ) from None
        self._tracing = Tracing(exporter(settings.otlp_endpoint), settings.engine, _version())

    def opened(self, session: str, now: Ticks) -> None:
        if self._tracing is not None:
            self._tracing.opened(session, now)

    def figures(self, session: str, figures: Sequence[Figure]) -> None:
        self.metrics.figures(session, figures)
        if self._tracing is not None:
            self._tracing.figures(session, figures)

    def closed(self, session: str) -> None:
        if self._tracing is not None:
            self._tracing.closed(session)

    def close(self) -> None:
        """Send what waits; may take seconds."""
        if self._tracing is not None:
            self._tracing.close()


def _version() -> str:
    from importlib import metadata

    return metadata.version("talkover")
