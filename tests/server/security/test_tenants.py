"""Tenants and their keys in a file: what it holds, what opens, and what a change of it does."""

from __future__ import annotations

import hashlib
import json
import stat
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from server.security.quotas import Quota, QuotaError
from server.security.tenants import (
    LOOK_EVERY,
    TenantError,
    Tenants,
    changed,
    checked_name,
    new_key,
    new_tenant,
    read,
    switched,
    with_key,
    without_key,
)
from tests.server.security.making import make_tenants


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tenants.json"


def test_a_key_is_found_whatever_stands_before_it_in_the_file(path: Path) -> None:
    keys = make_tenants(path, ["acme", "bolt", "core"])
    for order in (["acme", "bolt", "core"], ["core", "acme", "bolt"]):
        whole = json.loads(path.read_text())
        whole["tenants"] = {name: whole["tenants"][name] for name in order}
        path.write_text(json.dumps(whole))
        tenants = Tenants(path)
        for name, key in keys.items():
            found = tenants.find(key)
            assert found is not None
            assert (found.tenant, found.operator, found.refusal) == (name, False, "")


def test_the_file_holds_digests_and_is_for_its_owner_alone(path: Path) -> None:
    key = make_tenants(path, ["acme"])["acme"]
    text = path.read_text()
    assert key not in text
    assert key.split("_", 2)[2] not in text
    assert hashlib.sha256(key.encode()).hexdigest() in text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in path.parent.iterdir() if one.suffix == ".json"] == [path.name], "nothing lies beside it"


def test_keys_are_long_random_and_known_by_their_beginning() -> None:
    made = [new_key()[0] for _ in range(200)]
    assert len({key.split("_", 2)[2] for key in made}) == 200
    assert all(key.startswith("tko_") and len(key) == 60 for key in made)


@pytest.mark.parametrize("wrong", ["", "tko_", "x" * 60, "tko_0123456789ab_" + "A" * 43, "tko_é" + "x" * 55, "\udce9"])
def test_what_is_no_key_of_the_file_opens_nothing(path: Path, wrong: str) -> None:
    make_tenants(path, ["acme"])
    assert Tenants(path).find(wrong) is None


def test_every_character_of_a_key_counts(path: Path) -> None:
    key = make_tenants(path, ["acme"])["acme"]
    tenants = Tenants(path)
    for place in range(4, len(key)):
        other = "a" if key[place] != "a" else "b"
        assert tenants.find(key[:place] + other + key[place + 1 :]) is None
    assert tenants.find(key + "x") is None


def test_a_key_expires(path: Path) -> None:
    value, key = new_key(days=2)
    with changed(path) as tenants:
        tenants["acme"] = with_key(new_tenant("acme"), key)
    now = [datetime.now(UTC)]
    known = Tenants(path, now=lambda: now[0])
    found = known.find(value)
    assert found is not None
    assert found.refusal == ""
    now[0] += timedelta(days=2, seconds=2)
    late = known.find(value)
    assert late is not None
    assert late.refusal == "expired"


def test_a_change_of_the_file_holds_from_the_next_look_on(path: Path) -> None:
    keys = make_tenants(path, ["acme", "bolt"])
    clock = Clock()
    known = Tenants(path, clock)
    with changed(path) as tenants:
        tenants["acme"] = switched(tenants["acme"], None, on=False)
        del tenants["bolt"]
        tenants["core"] = new_tenant("core")
    clock.now += LOOK_EVERY
    found = known.find(keys["acme"])
    assert found is not None
    assert found.refusal == "disabled"
    assert known.find(keys["bolt"]) is None
    assert known.names() == ["core"]
    assert [known.allows(name) for name in ("acme", "bolt", "core", "of a token")] == [False, False, True, True]
    with changed(path) as tenants:
        tenants["acme"] = switched(tenants["acme"], None, on=True)
        tenants["bolt"] = new_tenant("bolt")
    clock.now += LOOK_EVERY
    assert known.allows("acme")
    assert known.allows("bolt"), "it is there again"


def test_one_key_can_be_switched_off_and_on_and_deleted(path: Path) -> None:
    first = make_tenants(path, ["acme"])["acme"]
    second, kept = new_key()
    with changed(path) as tenants:
        tenants["acme"] = switched(with_key(tenants["acme"], kept), kept.id, on=False)
    known = Tenants(path)
    assert [found.refusal for key in (first, second) if (found := known.find(key)) is not None] == ["", "disabled"]
    with changed(path) as tenants:
        tenants["acme"] = without_key(tenants["acme"], first.split("_")[1])
        tenants["acme"] = switched(tenants["acme"], kept.id, on=True)
    known.refresh(at_once=True)
    assert known.find(first) is None
    found = known.find(second)
    assert found is not None
    assert found.refusal == ""
    with pytest.raises(TenantError, match="has no key 'nothing'"):
        without_key(known.get("acme") or new_tenant("x"), "nothing")


@pytest.mark.parametrize("damage", ["{", "[]", '{"version": 9, "tenants": {}}', None])
def test_a_damaged_file_changes_nothing_of_what_is_known(
    path: Path, damage: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    key = make_tenants(path, ["acme"])["acme"]
    known = Tenants(path)
    if damage is None:
        path.unlink()
    else:
        path.write_text(damage)
    known.refresh(at_once=True)
    assert known.find(key) is not None
    assert "the tenants known before are kept" in caplog.text
    with pytest.raises(TenantError):
        Tenants(path)


def test_many_writers_lose_nothing_of_each_other(path: Path) -> None:
    def add(number: int) -> None:
        with changed(path) as tenants:
            tenants[f"t{number}"] = new_tenant(f"t{number}")

    threads = [threading.Thread(target=add, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(read(path)) == {f"t{number}" for number in range(20)}


def test_a_change_that_fails_leaves_the_file_as_it_was(path: Path) -> None:
    make_tenants(path, ["acme"])
    before = path.read_bytes()

    def fail() -> None:
        with changed(path) as tenants:
            tenants.clear()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["", "..", ".x", "a/b", "a b", "a" * 65, "é", "a\n", "-"])
def test_a_tenant_cannot_be_called_anything(name: str) -> None:
    with pytest.raises(TenantError, match="cannot name a tenant"):
        checked_name(name)


GOOD_KEY = {"sha256": "0" * 64, "created": "2026-01-31T12:00:00+00:00"}


@pytest.mark.parametrize(
    ("tenant", "said"),
    [
        ({"keys": {"0123456789ab": {"sha256": "short"}}}, "64 hexadecimal"),
        ({"keys": {"x": GOOD_KEY}}, "12 hexadecimal"),
        ({"keys": {"0123456789ab": {**GOOD_KEY, "expires": "soon"}}}, '"expires" must be a time'),
        ({"keys": {"0123456789ab": {**GOOD_KEY, "expires": "2026-01-31T12:00:00"}}}, "with its zone"),
        ({"keys": {"0123456789ab": {**GOOD_KEY, "operator": "yes"}}}, '"operator" must be'),
        ({"keys": []}, '"keys" must be an object'),
        ({"disabled": True}, '"disabled" must be a time'),
        ({"limits": {"sessions": 0}}, "limit sessions must be a whole number"),
        ({"limits": {"other": 1}}, "there is no limit 'other'"),
        ("x", "must be an object"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(path: Path, tenant: Any, said: str) -> None:
    path.write_text(json.dumps({"version": 1, "tenants": {"acme": tenant}}))
    with pytest.raises(TenantError) as refused:
        read(path)
    assert said in str(refused.value)
    assert "'acme'" in str(refused.value)


def test_a_tenants_own_limits_stand_over_the_servers() -> None:
    server = Quota(sessions=10, http=100)
    assert Quota(sessions=2, audio_day=60).over(server) == Quota(sessions=2, http=100, audio_day=60)
    assert Quota().over(server) == server
    for wrong in ({"sessions": True}, {"sessions": "5"}, {"sessions": 1.5}, []):
        with pytest.raises(QuotaError):
            Quota.parse(wrong)
