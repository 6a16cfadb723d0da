"""Tenants for tests: a file with one key each."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from server.security.quotas import Quota
from server.security.tenants import changed, new_key, new_tenant, with_key


def make_tenants(path: Path, names: Iterable[str], operators: Iterable[str] = (), **quota: int) -> dict[str, str]:
    """Write a tenants file with `names`, of which `operators` have an operator's key; the keys by tenant."""
    keys = {}
    with changed(path) as tenants:
        for name in names:
            keys[name], kept = new_key(operator=name in operators)
            made = with_key(new_tenant(name), kept)
            tenants[name] = type(made)(name, made.created, quota=Quota(**quota), keys=made.keys)
    return keys
