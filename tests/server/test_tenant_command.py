"""`talkover tenant`: what it writes, what it prints and what it refuses."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from server.cli import main
from server.keys import digest
from server.security.tenants import Tenants, read
from tests.server.security.making import make_tenants
from tests.server.serving import served
from tests.sessions.conversations import converse


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tenants.json"


def run(file: Path, *arguments: str) -> int:
    return main(["tenant", arguments[0], *arguments[1:], "--tenants-file", str(file)])


def test_a_tenant_gets_a_key_that_is_shown_once(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(file, "add", "acme") == 0
    shown = capsys.readouterr()
    key = shown.out.strip()
    assert key not in shown.err
    assert "shown this once" in shown.err
    assert read(file)["acme"].keys[0].sha256 == digest(key).hex()
    found = Tenants(file).find(key)
    assert found is not None
    assert found.tenant == "acme"
    assert run(file, "list") == 0
    assert run(file, "list", "--json") == 0
    assert key not in capsys.readouterr().out


def test_keys_are_added_switched_and_deleted(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(file, "add", "acme")
    assert run(file, "key", "acme", "--operator", "--days", "2") == 0
    first, second = capsys.readouterr().out.split()
    assert [key.operator for key in read(file)["acme"].keys] == [False, True]
    assert read(file)["acme"].keys[1].expires is not None
    identity = first.split("_")[1]
    assert run(file, "disable", "acme", "--key", identity) == 0
    assert [bool(key.disabled) for key in read(file)["acme"].keys] == [True, False]
    assert run(file, "enable", "acme", "--key", identity) == 0
    assert run(file, "key", "acme", "--delete", identity) == 0
    assert [key.id for key in read(file)["acme"].keys] == [second.split("_")[1]]
    assert run(file, "disable", "acme") == 0
    assert read(file)["acme"].disabled is not None
    assert run(file, "enable", "acme") == 0
    assert read(file)["acme"].disabled is None


def test_limits_are_set_and_given_back(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(file, "add", "acme")
    assert run(file, "limit", "acme", "sessions=3", "audio_day=3600") == 0
    assert read(file)["acme"].quota.plain() == {"sessions": 3, "audio_day": 3600}
    assert run(file, "limit", "acme", "sessions=") == 0
    assert read(file)["acme"].quota.plain() == {"audio_day": 3600}
    capsys.readouterr()
    run(file, "list")
    assert "audio_day=3600" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("add", "../x"), "cannot name a tenant"),
        (("add", "acme"), "`talkover tenant key acme` makes another key"),
        (("add", "default"), "is there"),
        (("add", "b", "--days", "0"), "--days must lie"),
        (("key", "nobody"), "there is no tenant 'nobody'; there are acme"),
        (("key", "acme", "--delete", "x"), "has no key 'x'"),
        (("disable", "nobody"), "there is no tenant"),
        (("limit", "acme", "x=1"), "there is no limit 'x'"),
        (("limit", "acme", "sessions=0"), "from 1 on"),
        (("limit", "acme", "sessions"), "give NAME=N"),
        (("limit", "acme", "sessions=-1"), "give NAME=N"),
    ],
)
def test_a_mistake_is_told_and_changes_nothing(
    file: Path, arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make_tenants(file, ["acme"])
    before = file.read_bytes()
    assert run(file, *arguments) == 2
    assert said in capsys.readouterr().err
    assert file.read_bytes() == before


def test_without_a_file_it_says_which_to_give(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("TALKOVER_TENANTS_FILE", raising=False)
    assert main(["tenant", "list"]) == 2
    assert "--tenants-file FILE, or TALKOVER_TENANTS_FILE" in capsys.readouterr().err
    assert main(["tenant", "list", "--tenants-file", str(tmp_path / "none.json")]) == 2
    assert "talkover tenant add NAME" in capsys.readouterr().err


async def test_a_tenant_is_deleted_from_file_server_and_disk(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = make_tenants(file, ["acme", "bolt", "ops"], operators=["ops"])
    root = tmp_path / "recordings"
    root.mkdir()
    for name in ("acme", "bolt"):
        recorded = await asyncio.to_thread(converse, tmp_path / name, tenant=name)
        recorded.rename(root / f"sess_{name}")
    async with served(tenants_file=file, record=root) as place, place.socket(keys["acme"]) as connection:
        await connection.recv()
        url = ("--url", place.url, "--with-key", keys["ops"], "--record", str(root))
        assert await asyncio.to_thread(run, file, "state", "acme", *url, "--json") == 0
        held = json.loads(capsys.readouterr().out)["held"]
        assert {"session", "lease", "recording"} <= {one["kind"] for one in held}
        refused = ("--url", place.url, "--with-key", keys["bolt"])
        assert await asyncio.to_thread(run, file, "delete", "acme", *refused) == 2
        assert "answers 404" in capsys.readouterr().err
        assert await asyncio.to_thread(run, file, "delete", "acme", *url) == 0
        told = capsys.readouterr()
        assert "deleted  disk       recording" in told.out
        assert "0 left" in told.out
        assert place.app.sessions == 0
    assert [path.name for path in root.iterdir()] == ["sess_bolt"]
    assert set(read(file)) == {"bolt", "ops"}


def test_recordings_are_deleted_where_no_server_runs(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_tenants(file, ["acme"])
    recorded = converse(tmp_path / "root", tenant="acme")
    assert run(file, "delete", "acme", "--record", str(recorded.parent)) == 0
    assert "give --url for each" in capsys.readouterr().err
    assert not recorded.exists()
    assert read(file) == {}
