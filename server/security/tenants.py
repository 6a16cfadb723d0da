"""Tenants and their API keys, in a file that holds no key.

A key is `tko_<id>_<secret>`: its id finds it, the SHA-256 of the whole proves it. The secret is 256 random bits, so a
digest that is slow to compute would protect nothing more: whoever has the file has nothing to try
(https://cheatsheetseries.owasp.org/cheatsheets/Password_Storage_Cheat_Sheet.html is about what people choose).

The file is read again when it has changed, so that a key is good, or no longer good, without a new start. It is
written as a whole or not at all, by one writer at a time.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from ..keys import digest
from .quotas import Quota, QuotaError

if sys.platform != "win32":
    import fcntl

log = logging.getLogger(__name__)

PREFIX: Final = "tko_"
"""Begins every key that is made here, so that scanners for secrets can know them."""
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""What a tenant may be called: what can stand in a URL, a key of Redis and a file."""
VERSION: Final = 1
LOOK_EVERY: Final = 1.0
"""Seconds between two looks at whether the file has changed."""

_KEY: Final = re.compile(r"tko_([0-9a-f]{12})_[A-Za-z0-9_-]{43}")
_NO_DIGEST: Final = hashlib.sha256(b"").digest()


class TenantError(ValueError):
    """The file, or what is asked of it, is wrong; says what to do and never shows a key."""


@dataclass(frozen=True, slots=True)
class Key:
    """What is kept of a key. Times are ISO 8601 in UTC; `operator`: it may look after the server."""

    id: str
    sha256: str
    created: str
    disabled: str | None = None
    expires: str | None = None
    operator: bool = False

    def refusal(self, now: datetime) -> str:
        """Why it opens nothing at `now`; "" where it does."""
        if self.disabled is not None:
            return "disabled"
        if self.expires is not None and datetime.fromisoformat(self.expires) <= now:
            return "expired"
        return ""


@dataclass(frozen=True, slots=True)
class Tenant:
    """One tenant. `quota`: where it differs from the server's."""

    name: str
    created: str
    disabled: str | None = None
    quota: Quota = field(default_factory=Quota)
    keys: tuple[Key, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """Whose a key is. `refusal`: why it opens nothing all the same."""

    tenant: str
    key: str
    operator: bool
    refusal: str


class Tenants:
    """The tenants of `path` as the file has them now. Used on the event loop."""

    def __init__(
        self,
        path: Path,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Raises TenantError."""
        self.path = path
        self._clock = clock
        self._now = now
        self._seen = _state(path)
        self._tenants = read(path)
        self._keys = _by_id(self._tenants)
        self._gone: set[str] = set()
        """Tenants that were here and are not any more."""
        self._looked = clock()

    def get(self, name: str) -> Tenant | None:
        """The tenant of that name."""
        self.refresh()
        return self._tenants.get(name)

    def names(self) -> list[str]:
        """All tenants that may use the server."""
        self.refresh()
        return [tenant.name for tenant in self._tenants.values() if tenant.disabled is None]

    def allows(self, name: str) -> bool:
        """Whether a tenant may use the server, as far as this file goes: it is not disabled and was not deleted. For
        others tokens may vouch."""
        tenant = self.get(name)
        return name not in self._gone if tenant is None else tenant.disabled is None

    def find(self, key: str) -> Found | None:
        """Whose `key` is. Takes the same time wherever it differs from one that is known."""
        self.refresh()
        form = _KEY.fullmatch(key)
        known = self._keys.get(form[1]) if form else None
        good = hmac.compare_digest(digest(key), _NO_DIGEST if known is None else bytes.fromhex(known[1].sha256))
        if known is None or not good:
            return None
        tenant, found = known
        refusal = "disabled" if tenant.disabled is not None else found.refusal(self._now())
        return Found(tenant.name, found.id, found.operator, refusal)

    def refresh(self, *, at_once: bool = False) -> bool:
        """Read the file again where it has changed; whether it was. What cannot be read changes nothing: what was
        known before holds on, and the log says so."""
        now = self._clock()
        if not at_once and now - self._looked < LOOK_EVERY:
            return False
        self._looked = now
        seen = _state(self.path)
        if seen == self._seen:
            return False
        self._seen = seen
        try:
            tenants = read(self.path)
        except TenantError as error:
            log.error("%s; the tenants known before are kept", error)
            return False
        self._gone = (self._gone | self._tenants.keys()) - tenants.keys()
        self._tenants, self._keys = tenants, _by_id(tenants)
        return True


def new_key(*, operator: bool = False, days: float | None = None) -> tuple[str, Key]:
    """A new key and what is kept of it."""
    identity = secrets.token_hex(6)
    value = f"{PREFIX}{identity}_{secrets.token_urlsafe(32)}"
    expires = None if days is None else _stamp(time.time() + days * 86_400)
    return value, Key(identity, digest(value).hex(), _stamp(), expires=expires, operator=operator)


def read(path: Path) -> dict[str, Tenant]:
    """The tenants of a file by name. Raises TenantError."""
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TenantError(
            f"tenants file {path} cannot be read: {error.strerror}; make one with `talkover tenant add NAME`"
        ) from None
    except (ValueError, RecursionError):
        raise TenantError(f"tenants file {path} is not JSON; put back a copy of it that is whole") from None
    if not isinstance(whole, dict) or whole.get("version") != VERSION or not isinstance(whole.get("tenants"), dict):
        raise TenantError(f'tenants file {path} must be an object with "version": {VERSION} and "tenants"')
    return {name: _tenant(path, name, told) for name, told in whole["tenants"].items()}


@contextmanager
def changed(path: Path) -> Iterator[dict[str, Tenant]]:
    """The tenants of a file, to be changed in place; written when the block ends well. Where there is no file there
    will be one. Raises TenantError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise TenantError(f"tenants file {path} cannot be changed: {error.strerror}") from None
    try:
        if sys.platform != "win32":
            fcntl.flock(lock, fcntl.LOCK_EX)
        tenants = read(path) if path.exists() else {}
        yield tenants
        _write(path, tenants)
    finally:
        os.close(lock)


def checked_name(name: str) -> str:
    """`name`, or TenantError where no tenant can be called so."""
    if not NAME.fullmatch(name):
        raise TenantError(f"{name[:80]!r} cannot name a tenant; use letters, digits, '.', '_' and '-', at most 64")
    return name


def with_key(tenant: Tenant, key: Key) -> Tenant:
    return replace(tenant, keys=(*tenant.keys, key))


def without_key(tenant: Tenant, key: str) -> Tenant:
    """Raises TenantError where it has no such key."""
    left = tuple(one for one in tenant.keys if one.id != key)
    if len(left) == len(tenant.keys):
        known = ", ".join(one.id for one in tenant.keys) or "none"
        raise TenantError(f"tenant {tenant.name} has no key {key[:40]!r}; it has {known}")
    return replace(tenant, keys=left)


def switched(tenant: Tenant, key: str | None, *, on: bool) -> Tenant:
    """The tenant, or one of its keys, good or no longer good. Raises TenantError."""
    stamp = None if on else _stamp()
    if key is None:
        return replace(tenant, disabled=stamp)
    without_key(tenant, key)
    return replace(tenant, keys=tuple(replace(one, disabled=stamp) if one.id == key else one for one in tenant.keys))


def new_tenant(name: str) -> Tenant:
    return Tenant(checked_name(name), _stamp())


# --- the file --------------------------------------------------------------------------------------------------------


def _state(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _by_id(tenants: Mapping[str, Tenant]) -> dict[str, tuple[Tenant, Key]]:
    return {key.id: (tenant, key) for tenant in tenants.values() for key in tenant.keys}


def _stamp(seconds: float | None = None) -> str:
    at = time.time() if seconds is None else seconds
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def _tenant(path: Path, name: str, told: object) -> Tenant:
    where = f"tenants file {path}: tenant {name[:80]!r}"
    if not NAME.fullmatch(name):
        raise TenantError(f"{where}: use letters, digits, '.', '_' and '-', at most 64")
    if not isinstance(told, dict):
        raise TenantError(f"{where} must be an object")
    keys = told.get("keys", {})
    if not isinstance(keys, dict):
        raise TenantError(f'{where}: "keys" must be an object')
    try:
        quota = Quota.parse(told.get("limits", {}))
    except QuotaError as error:
        raise TenantError(f"{where}: {error}") from None
    return Tenant(
        name,
        _time(where, told, "created") or "",
        _time(where, told, "disabled"),
        quota,
        tuple(_key(f"{where}: key {identity[:40]!r}", identity, one) for identity, one in keys.items()),
    )


def _key(where: str, identity: str, told: object) -> Key:
    if not isinstance(told, dict):
        raise TenantError(f"{where} must be an object")
    proof = told.get("sha256")
    if not isinstance(proof, str) or not re.fullmatch(r"[0-9a-f]{64}", proof):
        raise TenantError(f'{where}: "sha256" must be 64 hexadecimal digits; make a new key')
    if not re.fullmatch(r"[0-9a-f]{12}", identity):
        raise TenantError(f"{where}: an id has 12 hexadecimal digits; make a new key")
    operator = told.get("operator", False)
    if not isinstance(operator, bool):
        raise TenantError(f'{where}: "operator" must be true or false')
    created = _time(where, told, "created") or ""
    return Key(identity, proof, created, _time(where, told, "disabled"), _time(where, told, "expires"), operator)


def _time(where: str, told: Mapping[str, object], name: str) -> str | None:
    given = told.get(name)
    if given is None:
        return None
    try:
        aware = isinstance(given, str) and datetime.fromisoformat(given).tzinfo is not None
    except ValueError:
        aware = False
    if not isinstance(given, str) or not aware:
        raise TenantError(f'{where}: "{name}" must be a time with its zone, such as 2026-01-31T12:00:00+00:00')
    return given


def _plain(tenant: Tenant) -> dict[str, object]:
    keys = {
        key.id: {
            "sha256": key.sha256,
            "created": key.created,
            **({"disabled": key.disabled} if key.disabled else {}),
            **({"expires": key.expires} if key.expires else {}),
            **({"operator": True} if key.operator else {}),
        }
        for key in tenant.keys
    }
    told: dict[str, object] = {"created": tenant.created, "keys": keys}
    if tenant.disabled is not None:
        told["disabled"] = tenant.disabled
    if limits := tenant.quota.plain():
        told["limits"] = limits
    return told


def _write(path: Path, tenants: Mapping[str, Tenant]) -> None:
    whole = {"version": VERSION, "tenants": {name: _plain(tenant) for name, tenant in tenants.items()}}
    try:
        # For its owner alone, or for whom it was before: the server may run as another user than who changes it.
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
        descriptor, beside = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as out:
                json.dump(whole, out, indent=2)
                out.write("\n")
                out.flush()
                os.fsync(out.fileno())
            os.chmod(beside, mode)
            os.replace(beside, path)
        except BaseException:
            os.unlink(beside)
            raise
    except OSError as error:
        raise TenantError(f"tenants file {path} cannot be written: {error.strerror}") from None
