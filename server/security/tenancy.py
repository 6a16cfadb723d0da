"""What a server knows of its tenants, as its settings have it: their keys, the tokens that speak for them, and how much
each may use."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Final

from sessions.core.events import Close
from sessions.counters import Counters

from ..carriers.websocket import MAX_MESSAGE
from ..limits import Limits
from ..settings import Settings, SettingsError
from .audio import AudioQuota, Heard
from .quotas import Quota
from .rates import Rates
from .tenants import TenantError, Tenants
from .tokens import DEFAULT_ALGORITHMS, TokenRules, Tokens

log = logging.getLogger(__name__)

WATCH_EVERY: Final = 1.0
"""Seconds between two looks at whether a tenant that has sessions was disabled."""


class Tenancy:
    """Made once for a server. `tenants` and `tokens`: None where there are none."""

    def __init__(self, settings: Settings, counters: Counters) -> None:
        """Raises SettingsError."""
        self._server = settings.quota
        self._counters = counters
        self.tenants = _tenants(settings)
        self.tokens = _tokens(settings)
        several = self.tenants is not None
        self.limits = Limits(settings.limit_requests, settings.limit_tokens, quota_of=self.quota if several else None)
        self.rates = Rates(self.quota)
        self.audio = AudioQuota(self.quota, counters)
        self._watching: asyncio.Task[None] | None = None

    def quota(self, tenant: str) -> Quota:
        """What a tenant may use."""
        own = None if self.tenants is None else self.tenants.get(tenant)
        return self._server if own is None else own.quota.over(self._server)

    def message_most(self, tenant: str) -> int:
        """Characters of one message."""
        thousands = self.quota(tenant).message_kb
        return MAX_MESSAGE if thousands is None else min(MAX_MESSAGE, thousands * 1000)

    def sessions_most(self, tenant: str) -> int | None:
        """Sessions at a time. Raises Busy where the tenant may begin none now."""
        self.audio.check(tenant)
        return self.quota(tenant).sessions

    def start(self, sessions: Callable[[], Iterable[Heard]]) -> None:
        """`sessions`: all that there are."""
        if self.tokens is not None:
            self.tokens.start()
        if self.tenants is not None or self._server.audio_minute is not None or self._server.audio_day is not None:
            self.audio.start(sessions)
        if self.tenants is not None:
            self._watching = asyncio.get_running_loop().create_task(
                self._watch(self.tenants, sessions), name="tenants-file"
            )

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await self.audio.close()
        if self.tokens is not None:
            await self.tokens.close()

    def remembered(self, tenant: str) -> int:
        """In how many places it is remembered what a tenant has used."""
        return sum(tenant in holder for holder in (self.limits, self.rates, self.audio))

    def forget(self, tenant: str) -> None:
        """Nothing of what a tenant has used is remembered."""
        for holder in (self.limits, self.rates, self.audio):
            holder.forget(tenant)

    async def _watch(self, tenants: Tenants, sessions: Callable[[], Iterable[Heard]]) -> None:
        """End the sessions of those who are disabled."""
        while True:
            await asyncio.sleep(WATCH_EVERY)
            end_disabled(tenants, sessions(), self._counters)


def end_disabled(tenants: Tenants, sessions: Iterable[Heard], counters: Counters) -> None:
    """End those of `sessions` whose tenant may not use the server any more."""
    tenants.refresh(at_once=True)
    for one in sessions:
        if not tenants.allows(one.tenant):
            counters.add("sessions_of_disabled_tenants")
            one.post(Close("tenant_disabled"))


def _tenants(settings: Settings) -> Tenants | None:
    if settings.tenants_file is None:
        return None
    try:
        return Tenants(settings.tenants_file)
    except TenantError as error:
        raise SettingsError(f"--tenants-file: {error}") from None


def _tokens(settings: Settings) -> Tokens | None:
    if settings.jwt_jwks is None:
        return None
    if find_spec("jwt") is None or find_spec("cryptography") is None:
        raise SettingsError("--jwt-jwks needs the extra `jwt`: pip install 'talkover[jwt]' (it brings PyJWT)")
    return Tokens(
        TokenRules(
            jwks=settings.jwt_jwks,
            issuer=settings.jwt_issuer or "",
            audience=settings.jwt_audience or "",
            algorithms=settings.token_algorithms or DEFAULT_ALGORITHMS,
            claim=settings.jwt_tenant_claim,
        )
    )
