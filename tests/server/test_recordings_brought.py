"""Recordings that clients bring along: looked into like the server's own, by whoever brought them, for a while."""

from __future__ import annotations

import asyncio
import struct
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import zstandard

from server import recordings_brought
from server.recordings import BASE
from server.recordings_brought import MOST, PIECE, TENANT_MOST, Brought, NoRoom
from sessions.recording.format import EVENTS
from sessions.virtual_clock import run
from tests.server.serving import Served, finished, served
from tests.sessions.conversations import converse


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return converse(tmp_path_factory.mktemp("recordings"))


@pytest.fixture
async def place() -> AsyncIterator[Served]:
    """A server that records nothing itself."""
    async with served() as place:
        yield place


@pytest.fixture
async def client(place: Served) -> AsyncIterator[httpx.AsyncClient]:
    async with place.http() as client:
        yield client


def error(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def new(client: httpx.AsyncClient) -> str:
    answer = await client.post(BASE, json={})
    assert answer.status_code == 201
    assert answer.json()["piece"] == PIECE
    return str(answer.json()["id"])


async def put(client: httpx.AsyncClient, name: str, file: str, data: bytes, at: int = 0) -> httpx.Response:
    return await client.put(f"{BASE}/{name}/{file}", params={"at": at}, content=data)


async def bring(client: httpx.AsyncClient, folder: Path, piece: int = PIECE) -> str:
    name = await new(client)
    for path in folder.iterdir():
        data = path.read_bytes()
        for at in range(0, len(data), piece):
            answer = await put(client, name, path.name, data[at : at + piece], at)
            assert answer.json()["size_bytes"] == min(len(data), at + piece)
    return name


async def test_what_was_brought_is_looked_into_as_a_recording_of_the_server(
    client: httpx.AsyncClient, recorded: Path, tmp_path: Path
) -> None:
    name = await bring(client, recorded, piece=50_000)
    async with served(record=recorded.parent) as own, own.http() as beside:
        for path in ("interruptions", "chapters/0", "chapters/0/events", "peaks/user_in?level=2", "explanation"):
            brought = await finished(client, "GET", f"{BASE}/{name}/{path}")
            kept = await finished(beside, "GET", f"{BASE}/{recorded.name}/{path}")
            assert (brought.status_code, brought.content) == (200, kept.content), path
        altered = {"drop": ["interruption.1"]}
        answer = await finished(client, "POST", f"{BASE}/{name}/what-if", json=altered)
        kept = await finished(beside, "POST", f"{BASE}/{recorded.name}/what-if", json=altered)
        assert answer.json() == kept.json()
    told = (await client.get(f"{BASE}/{name}")).json()
    assert (told["brought"], told["live"], told["manifest"]["session"]) == (True, False, recorded.name)
    # It stands in no list, and is gone when its client says so.
    assert error(await client.get(BASE)) == (404, "recording_off")
    assert (await client.delete(f"{BASE}/{name}")).json()["deleted"] is True
    assert error(await client.get(f"{BASE}/{name}")) == (404, "recording_not_found")
    assert error(await put(client, name, "manifest.json", b"{}")) == (404, "recording_not_found")


async def test_what_is_no_recording_is_refused_and_never_leaves_its_folder(client: httpx.AsyncClient) -> None:
    name = await new(client)
    for file in ("notes.txt", ".manifest.json", "a.b.flac", "UPPER.flac", "x" * 70 + ".flac", "events.jsonl.zst2"):
        assert error(await put(client, name, file, b"x")) == (400, "invalid_value"), file
    for file in ("..%2fmanifest.json", "%2e%2e", "a%00.flac", "folder/a.flac"):
        answer = await client.put(f"{BASE}/{name}/{file}", content=b"x")
        assert answer.status_code in (400, 404, 405), file
    assert error(await client.get(f"{BASE}/{name}"))[1] == "recording_unreadable"
    await put(client, name, "manifest.json", b"{")
    message = (await client.get(f"{BASE}/{name}")).json()["error"]["message"]
    assert "damaged" in message
    assert tempfile.gettempdir() not in message
    assert error(await client.post(BASE, content="[]", headers={"Content-Type": "application/json"}))[0] == 400
    # A page of somebody else cannot send this without being asked first.
    assert error(await client.post(BASE, content="{}")) == (415, "unsupported_media_type")


async def test_pieces_come_in_order_and_of_bounded_size(client: httpx.AsyncClient) -> None:
    name = await new(client)
    assert error(await put(client, name, "user_in.flac", b"x", at=5)) == (400, "invalid_value")
    assert (await put(client, name, "user_in.flac", b"abc")).json()["size_bytes"] == 3
    answer = await put(client, name, "user_in.flac", b"abc")
    assert error(answer) == (400, "invalid_value")
    assert "has 3 bytes so far" in answer.json()["error"]["message"]
    assert error(await put(client, name, "user_in.flac", bytes(PIECE + 1), at=3)) == (413, "request_too_large")
    assert (await put(client, name, "manifest.json", bytes(PIECE))).status_code == 200
    assert error(await put(client, name, "manifest.json", b"x", at=PIECE)) == (400, "recording_too_large")


async def test_a_track_that_only_says_that_it_is_long_is_refused(client: httpx.AsyncClient, recorded: Path) -> None:
    name = await new(client)
    for path in recorded.iterdir():
        data = bytearray(path.read_bytes())
        if path.name == "user_in.flac":
            # STREAMINFO, RFC 9639 section 8.2: 36 bits of samples.
            (packed,) = struct.unpack(">Q", data[18:26])
            data[18:26] = struct.pack(">Q", packed | (1 << 36) - 1)
        await put(client, name, path.name, bytes(data))
    answer = await client.get(f"{BASE}/{name}")
    assert error(answer) == (422, "recording_unreadable")
    assert "longer than 12 hours" in answer.json()["error"]["message"]


async def test_events_that_unpack_without_end_are_given_up(client: httpx.AsyncClient, recorded: Path) -> None:
    name = await bring(client, recorded)
    whole = b'{"now":0,"event":{"type":"AudioArrived","start":0,"end":960}}\n' + b" " * (256 << 20)
    bomb = zstandard.ZstdCompressor(level=1).compress(whole)
    assert len(bomb) < 100_000
    other = await new(client)
    await put(client, other, "manifest.json", (recorded / "manifest.json").read_bytes())
    await put(client, other, EVENTS, bomb)
    answer = await client.get(f"{BASE}/{other}/chapters/0/events")
    assert answer.status_code == 200
    assert len(answer.json()["events"]) <= 1
    # The other one is there as before.
    assert (await client.get(f"{BASE}/{name}/chapters/0/events")).json()["events"]


def test_it_is_its_clients_alone_and_forgotten_an_hour_after_the_last_look() -> None:
    removed: list[Path] = []

    async def scenario() -> None:
        brought = Brought(removed.append)
        name = brought.new("acme")
        assert brought.holds(name, "acme")
        assert not brought.holds(name, "bolt")
        assert not brought.holds("brought_none", "acme")
        assert (brought.of("acme"), brought.of("bolt")) == ([name], [])
        folder = await brought.folder(name)
        await asyncio.sleep(recordings_brought.KEPT_S - 1)
        assert brought.holds(name, "acme")
        await asyncio.sleep(recordings_brought.KEPT_S - 1)
        # The look of somebody else counts for nothing.
        assert not brought.holds(name, "bolt")
        assert removed == []
        await asyncio.sleep(2)
        assert not brought.holds(name, "acme")
        assert removed == [folder]
        brought.close()
        assert not folder.parent.exists()

    run(scenario())


def test_the_newest_make_room_and_others_are_told_to_come_again() -> None:
    removed: list[Path] = []

    async def scenario() -> None:
        brought = Brought(removed.append)
        first, *_ = [brought.new("acme") for _ in range(TENANT_MOST + 1)]
        assert not brought.holds(first, "acme")
        assert [path.name for path in removed] == [first]
        for number in range(MOST - TENANT_MOST):
            brought.new(f"tenant {number}")
        with pytest.raises(NoRoom, match="try again later"):
            brought.new("late")
        brought.close()

    run(scenario())


async def test_a_full_disk_is_said_and_not_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brought = Brought(lambda folder: None)
    name = brought.new("")
    monkeypatch.setattr(recordings_brought, "ROOM", 1 << 60)
    with pytest.raises(NoRoom, match="nearly full"):
        await brought.write(name, "user_in.flac", 0, b"x")
    brought.close()
