"""`talkover tenant`: who may use a server, and what is kept of them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from sessions.ownership import DirectoryDown
from sessions.recording.format import session_of
from sessions.recording.retention import delete as delete_recording
from sessions.recording.retention import entries

from .keys import HOUSE
from .security.endpoints import BASE, NOBODY
from .security.holdings import Held
from .security.quotas import NAMES, Quota, QuotaError
from .security.tenants import (
    Key,
    Tenant,
    TenantError,
    changed,
    new_key,
    new_tenant,
    read,
    switched,
    with_key,
    without_key,
)
from .tenant_options import OPERATOR_KEY


def tenant(options: Mapping[str, Any]) -> int:
    """Run the command; returns the exit status: 2 for a mistake, 1 where something is left."""
    commands = {
        "add": _add,
        "key": _key,
        "list": _list,
        "disable": _switch,
        "enable": _switch,
        "limit": _limit,
        "state": _state,
        "delete": _delete,
    }
    try:
        return commands[options["what"]](options)
    except (TenantError, QuotaError) as error:
        return _failed(str(error))
    except DirectoryDown as error:
        return _failed(f"--directory: {error}; nothing in it was changed")
    except httpx.HTTPError as error:
        return _failed(f"{error.request.url if error.request else '--url'}: {error or type(error).__name__}")
    except OSError as error:
        return _failed(f"{error.filename}: {error.strerror}")


def _failed(why: str) -> int:
    print(f"talkover tenant: {why}", file=sys.stderr)
    return 2


# --- the file --------------------------------------------------------------------------------------------------------


def _file(options: Mapping[str, Any]) -> Path:
    given = options["tenants_file"]
    if given is None:
        raise TenantError("say which file: --tenants-file FILE, or TALKOVER_TENANTS_FILE")
    return Path(given)


def _one(tenants: Mapping[str, Tenant], name: str) -> Tenant:
    try:
        return tenants[name]
    except KeyError:
        raise TenantError(f"there is no tenant {name[:80]!r}; there are {', '.join(tenants) or 'none'}") from None


def _made(options: Mapping[str, Any]) -> tuple[str, Key]:
    days = options["days"]
    if days is not None and not 0 < days <= 36_500:
        raise TenantError("--days must lie between 0 and 36500")
    return new_key(operator=options["operator"], days=days)


def _add(options: Mapping[str, Any]) -> int:
    value, key = _made(options)
    with changed(_file(options)) as tenants:
        name = options["name"]
        if name in tenants or name == HOUSE:
            raise TenantError(f"the tenant {name} is there; `talkover tenant key {name}` makes another key")
        tenants[name] = with_key(new_tenant(name), key)
    return _show(value, key)


def _key(options: Mapping[str, Any]) -> int:
    gone = options["delete"]
    value, key = _made(options)
    with changed(_file(options)) as tenants:
        name = options["name"]
        one = _one(tenants, name)
        tenants[name] = with_key(one, key) if gone is None else without_key(one, gone)
    if gone is None:
        return _show(value, key)
    print(f"deleted key {gone}")
    return 0


def _show(value: str, key: Key) -> int:
    print(value)
    print(f"This is key {key.id}. It is shown this once; only its SHA-256 is kept.", file=sys.stderr)
    return 0


def _list(options: Mapping[str, Any]) -> int:
    tenants = read(_file(options))
    if options["json"]:
        print(json.dumps([_shown(one) for one in tenants.values()]))
        return 0
    for one in tenants.values():
        limits = " ".join(f"{name}={value}" for name, value in one.quota.plain().items())
        print(f"{one.name:<24} since {one.created}{'  DISABLED' if one.disabled else ''}  {limits}".rstrip())
        for key in one.keys:
            notes = [f"disabled {key.disabled}"] if key.disabled else []
            notes += [f"until {key.expires}"] if key.expires else []
            notes += ["operator"] if key.operator else []
            print(f"  key {key.id} since {key.created}  {', '.join(notes)}".rstrip())
    return 0


def _shown(one: Tenant) -> dict[str, object]:
    keys = [
        {
            "id": key.id,
            "created": key.created,
            "disabled": key.disabled,
            "expires": key.expires,
            "operator": key.operator,
        }
        for key in one.keys
    ]
    return {
        "name": one.name,
        "created": one.created,
        "disabled": one.disabled,
        "limits": one.quota.plain(),
        "keys": keys,
    }


def _switch(options: Mapping[str, Any]) -> int:
    name, key = options["name"], options["key"]
    with changed(_file(options)) as tenants:
        tenants[name] = switched(_one(tenants, name), key, on=options["what"] == "enable")
    print(f"{options['what']}d {name if key is None else f'key {key} of {name}'}")
    return 0


def _limit(options: Mapping[str, Any]) -> int:
    with changed(_file(options)) as tenants:
        one = _one(tenants, options["name"])
        limits = one.quota.plain()
        for given in options["limits"]:
            name, separator, number = given.partition("=")
            if not separator or (number and not number.isdigit()):
                raise QuotaError(f"{given!r}: give NAME=N, or NAME= for the server's")
            limits.pop(name, None)
            if number or name not in NAMES:
                limits[name] = int(number or 1)
        tenants[one.name] = replace(one, quota=Quota.parse(limits))
    print(
        f"{options['name']}: {' '.join(f'{name}={value}' for name, value in limits.items()) or 'as the server has it'}"
    )
    return 0


# --- what is kept ----------------------------------------------------------------------------------------------------


def _state(options: Mapping[str, Any]) -> int:
    found = [(url, held) for url in options["url"] for held in _asked(options, url, "GET")["held"]]
    found += [("", held.plain()) for held in _here(options)]
    return _report(options, found, [])


def _delete(options: Mapping[str, Any]) -> int:
    name, session, path = options["name"], options["session"], options["tenants_file"]
    listed = path is not None and name in read(Path(path))
    if listed and session is None:
        # First, so that nothing begins anew while the rest goes.
        with changed(Path(path)) as tenants:
            tenants[name] = switched(tenants[name], None, on=False)
    found: list[tuple[str, Mapping[str, object]]] = []
    left: list[tuple[str, Mapping[str, object]]] = []
    for url in options["url"]:
        answer = _asked(options, url, "DELETE")
        found += [(url, held) for held in answer["held"]]
        left += [(url, held) for held in answer["left"]]
    found += [("", held.plain()) for held in _here(options, delete=True)]
    left += [("", held.plain()) for held in _here(options)]
    if listed and session is None and not left:
        with changed(Path(path)) as tenants:
            tenants.pop(name, None)
    if not options["url"]:
        print("talkover tenant: servers that run keep what they have in memory; give --url for each", file=sys.stderr)
    return _report(options, found, left)


def _report(
    options: Mapping[str, Any],
    found: Sequence[tuple[str, Mapping[str, object]]],
    left: Sequence[tuple[str, Mapping[str, object]]],
) -> int:
    if options["json"]:
        told = {
            "held": [{"url": url, **held} for url, held in found],
            "left": [{"url": url, **held} for url, held in left],
        }
        print(json.dumps(told))
        return 1 if left else 0
    verb = "deleted" if options["what"] == "delete" else "held"
    for word, those in ((verb, found), ("LEFT", left)):
        for url, held in those:
            print(
                f"{word:<8} {held['place']:<10} {held['kind']:<15} {held['count']:>5}  {held['name']}  {url}".rstrip()
            )
    print(f"{len(found)} {verb}" + (f", {len(left)} left" if options["what"] == "delete" else ""))
    return 1 if left else 0


def _asked(options: Mapping[str, Any], url: str, method: str) -> dict[str, Any]:
    """A server's answer about its own state. Raises TenantError, HTTPError."""
    key = options["with_key"] or os.environ.get(OPERATOR_KEY)
    where = f"{url.rstrip('/')}{BASE}/{quote(options['name'] or NOBODY, safe='')}"
    if options["session"] is not None:
        where += f"/sessions/{quote(options['session'], safe='')}"
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    with httpx.Client(timeout=60, headers=headers, follow_redirects=False) as client:
        answer = client.request(method, f"{where}/state")
    if answer.status_code != 200:
        try:
            why = answer.json()["error"]["message"]
        except (ValueError, KeyError, TypeError):
            why = "that is no server of ours"
        raise TenantError(f"{url} answers {answer.status_code}: {why}")
    told: dict[str, Any] = answer.json()
    return told


def _here(options: Mapping[str, Any], *, delete: bool = False) -> list[Held]:
    """What lies on this disk and in the directory; deleted where that is asked for. Raises OSError, DirectoryDown."""
    tenant, session = "" if options["name"] == NOBODY else options["name"], options["session"]
    found = []
    root = None if options["record"] is None else Path(options["record"])
    for entry in entries(root) if root is not None and root.is_dir() else ():
        if entry.tenant == tenant and session in (None, session_of(entry.folder.name)):
            found.append(Held("recording", "disk", entry.folder.name))
            if delete:
                delete_recording(entry.folder)
    if options["directory"] is not None:
        found += asyncio.run(_shared(options["directory"], tenant, session, delete))
    return found


async def _shared(url: str, tenant: str, session: str | None, delete: bool) -> list[Held]:
    try:
        from .redis_ownership import RedisOwnership
    except ImportError:
        raise TenantError("--directory needs the extra `cluster`: pip install 'talkover[cluster]'") from None
    directory = RedisOwnership(url)
    try:
        names = [name for name in await directory.sessions_of(tenant) if session in (None, name)]
        if delete and session is None:
            await directory.erase_tenant(tenant)
        for name in names if delete and session is not None else ():
            await directory.erase(name, tenant)
        return [Held("session", "directory", name) for name in names]
    finally:
        await directory.close()
