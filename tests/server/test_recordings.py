"""Recordings over HTTP: what is there, for whom, and what a hostile client makes of it."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile

from server.recordings import BASE
from sessions.replay.reader import Recording
from tests.server.security.making import make_tenants
from tests.server.serving import Served, finished, served
from tests.sessions.conversations import converse
from tests.sessions.recordings import as_version_1, change_manifest

BESIDE = [
    "..",
    "../root",
    "%2e%2e",
    "%2e%2e%2fsecret",
    "..%5csecret",
    ".hidden",
    "sess_%00",
    "sess_none",
    "a" * 300,
    "{id}/../secret.txt",
    "{id}/..%2fsecret.txt",
    "{id}/%2e%2e%2f%2e%2e%2fsecret.txt",
    "{id}/link.txt",
    "{id}/.manifest.json",
    "{id}/folder",
    "{id}/nothing.flac",
    "{id}/audio/..%2f..%2fsecret",
    "{id}/audio/manifest",
    "{id}/peaks/link",
    "linked",
    "linked/manifest.json",
]
"""Paths below the recordings at which nothing may be given."""

WRONG = {
    "audio/user_in?from=-1": "from",
    "audio/user_in?from=x": "from",
    "audio/user_in?from=99999999999999999999": "from",
    "audio/user_in?from=0&to=99999999": "to",
    "audio/user_in?from=5&to=5": "to",
    "peaks/user_in?level=99": "level",
    "peaks/user_in?level=٣": "level",
    "peaks/user_in?count=1000000": "count",
    "chapters/x": "chapter",
}
"""Queries with a number that cannot be, and its name."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return converse(tmp_path_factory.mktemp("recordings"))


@pytest.fixture
def root(recorded: Path, tmp_path: Path) -> Path:
    """A folder with one recording, which a test may change."""
    shutil.copytree(recorded, tmp_path / "root" / recorded.name)
    return tmp_path / "root"


@pytest.fixture
async def place(root: Path) -> AsyncIterator[Served]:
    async with served(record=root) as place:
        yield place


@pytest.fixture
async def client(place: Served) -> AsyncIterator[httpx.AsyncClient]:
    async with place.http() as client:
        yield client


def error(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def test_recordings_are_listed_and_told(client: httpx.AsyncClient, recorded: Path) -> None:
    [one] = (await client.get(BASE)).json()["data"]
    assert one["id"] == recorded.name
    assert one["duration_s"] == pytest.approx(13.0, abs=0.1)
    assert (one["ended"], one["live"]) == ("gone", False)
    assert one["size_bytes"] == sum(path.stat().st_size for path in recorded.iterdir())
    whole = (await client.get(f"{BASE}/{recorded.name}")).json()
    assert {track["name"] for track in whole["tracks"]} == {"user_in", "agent_generated", "agent_sent", "agent_heard"}
    assert {file["name"] for file in whole["files"]} == {path.name for path in recorded.iterdir()}
    assert whole["manifest"]["session"] == recorded.name
    assert whole["chapters"] == [0]


async def test_a_file_is_given_whole_and_in_ranges(client: httpx.AsyncClient, recorded: Path) -> None:
    path = f"{BASE}/{recorded.name}/user_in.flac"
    data = (recorded / "user_in.flac").read_bytes()
    answer = await client.get(path)
    assert (answer.content, answer.headers["content-type"]) == (data, "audio/flac")
    assert answer.headers["accept-ranges"] == "bytes"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert answer.headers["x-content-type-options"] == "nosniff"
    part = await client.get(path, headers={"Range": "bytes=100-199"})
    assert (part.status_code, part.content) == (206, data[100:200])
    beyond = await client.get(path, headers={"Range": f"bytes={len(data) + 5}-"})
    assert beyond.status_code == 416


async def test_a_stretch_of_a_track_is_a_wav_file(client: httpx.AsyncClient, recorded: Path) -> None:
    answer = await client.get(f"{BASE}/{recorded.name}/audio/agent_heard?from=96000&to=144000")
    samples, rate = soundfile.read(io.BytesIO(answer.content), dtype="int16")
    whole, _ = soundfile.read(recorded / "agent_heard.flac", dtype="int16")
    assert rate == 24_000
    assert np.array_equal(samples, whole[48_000:72_000])
    assert samples.any()


async def test_peaks_are_those_of_the_track(client: httpx.AsyncClient, recorded: Path) -> None:
    answer = await client.get(f"{BASE}/{recorded.name}/peaks/user_in?level=2&first=10&count=20")
    peaks = np.frombuffer(answer.content, np.int8).reshape(-1, 2)
    whole, _ = soundfile.read(recorded / "user_in.flac", dtype="int16")
    assert len(peaks) == 20
    for index, (least, greatest) in enumerate(peaks):
        part = whole[(10 + index) * 1024 : (11 + index) * 1024] / (32_768 / 127)
        assert (least, greatest) == (np.floor(part.min()), np.ceil(part.max()))


async def test_marks_events_and_interruptions_are_told(client: httpx.AsyncClient, recorded: Path) -> None:
    path = f"{BASE}/{recorded.name}"
    found = (await client.get(f"{path}/interruptions")).json()["interruptions"]
    marks = (await client.get(f"{path}/chapters/0")).json()
    assert [mark["epoch"] for mark in marks["epochs"]] == [one["epoch"] for one in found]
    assert marks["finished"] is True
    assert marks["words"]
    events = (await client.get(f"{path}/chapters/0/events")).json()["events"]
    assert len(events) == sum(1 for _ in Recording(recorded).steps())
    assert events[0]["event"]["type"] == "CarrierAttached"


async def test_a_session_is_run_otherwise(client: httpx.AsyncClient, recorded: Path) -> None:
    path = f"{BASE}/{recorded.name}"
    before = (await client.get(f"{path}/interruptions")).json()["interruptions"]
    answer = (await finished(client, "POST", f"{path}/what-if", json={"drop": ["interruption.1"]})).json()
    assert answer["same"] is False
    assert len(answer["marks"]["epochs"]) < len(before)
    assert answer["limits"]
    assert "interruption" in answer["text"]


async def test_a_session_is_told_in_words(client: httpx.AsyncClient, recorded: Path) -> None:
    answer = await finished(client, "GET", f"{BASE}/{recorded.name}/explanation")
    assert answer.headers["content-type"].startswith("text/plain")
    assert "the user spoke over the agent" in answer.text


async def test_what_cannot_be_altered_is_refused(client: httpx.AsyncClient, root: Path, recorded: Path) -> None:
    path = f"{BASE}/{recorded.name}/what-if"
    for body, code in (
        ({}, "invalid_alteration"),
        ({"set": ["turn.nothing=1"]}, "invalid_alteration"),
        ({"set": "turn.hold_ms=1"}, "invalid_type"),
        ({"shift": [7]}, "invalid_type"),
        ([], "invalid_type"),
    ):
        assert error(await client.post(path, json=body)) == (400, code)
    assert error(await client.post(path, content="{", headers={"Content-Type": "application/json"}))[0] == 400
    assert error(await client.post(path, content="{}")) == (415, "unsupported_media_type")
    change_manifest(root / recorded.name, length=48_000 * 3600 * 5)
    assert error(await client.post(path, json={"drop": ["playback.ack"]})) == (413, "recording_too_long")


async def test_recordings_of_version_1_are_looked_into_as_well(
    client: httpx.AsyncClient, root: Path, recorded: Path
) -> None:
    folder = root / recorded.name
    as_version_1(folder)
    for path in folder.glob("*.flac"):
        samples, rate = soundfile.read(path, dtype="int16")
        soundfile.write(path.with_suffix(".wav"), samples, rate, subtype="PCM_16")
        path.unlink()
    whole = (await client.get(f"{BASE}/{folder.name}")).json()
    assert len(whole["tracks"]) == 4
    assert (await client.get(f"{BASE}/{folder.name}/interruptions")).json()["interruptions"]
    answer = await client.get(f"{BASE}/{folder.name}/audio/agent_heard?from=96000&to=144000")
    samples, _ = soundfile.read(io.BytesIO(answer.content), dtype="int16")
    assert samples.any()


async def test_a_deleted_recording_is_gone(client: httpx.AsyncClient, root: Path, recorded: Path) -> None:
    path = f"{BASE}/{recorded.name}"
    await client.get(f"{path}/audio/user_in?from=0&to=480")
    assert (await client.delete(path)).json() == {
        "object": "talkover.recording.deleted",
        "id": recorded.name,
        "deleted": True,
    }
    assert list(root.iterdir()) == []
    assert error(await client.get(path)) == (404, "recording_not_found")
    assert error(await client.delete(path)) == (404, "recording_not_found")


async def test_nothing_beside_the_recordings_is_given(client: httpx.AsyncClient, root: Path, recorded: Path) -> None:
    folder = root / recorded.name
    (root.parent / "secret.txt").write_text("secret")
    (folder / "link.txt").symlink_to(root.parent / "secret.txt")
    (folder / ".manifest.json").write_text("{}")
    (folder / "folder").mkdir()
    (root / "linked").symlink_to(recorded)
    for path in BESIDE:
        answer = await client.get(f"{BASE}/{path.replace('{id}', folder.name)}")
        assert answer.status_code == 404, path
        assert "error" in answer.json()
    assert (await client.get(f"{BASE}/{folder.name}/manifest.json")).status_code == 200


async def test_a_wrong_number_is_named(client: httpx.AsyncClient, recorded: Path) -> None:
    for query, param in WRONG.items():
        answer = await client.get(f"{BASE}/{recorded.name}/{query}")
        assert answer.status_code == 400, query
        assert answer.json()["error"]["param"] == param


async def test_positions_beyond_the_end_are_silent_and_chapters_beyond_are_not_there(
    client: httpx.AsyncClient, recorded: Path
) -> None:
    path = f"{BASE}/{recorded.name}"
    answer = await client.get(f"{path}/audio/user_in?from=480000000&to=480048000")
    samples, _ = soundfile.read(io.BytesIO(answer.content), dtype="int16")
    assert len(samples) == 24_000
    assert not samples.any()
    assert (await client.get(f"{path}/peaks/user_in?first=1000000000")).content == b""
    assert error(await client.get(f"{path}/chapters/1")) == (404, "chapter_not_found")


async def test_a_damaged_or_newer_recording_says_so_without_a_path(
    client: httpx.AsyncClient, root: Path, recorded: Path
) -> None:
    change_manifest(root / recorded.name, version=99)
    answer = await client.get(f"{BASE}/{recorded.name}")
    assert error(answer) == (422, "recording_unreadable")
    assert "version 99" in answer.json()["error"]["message"]
    assert str(root) not in answer.text
    (root / recorded.name / "manifest.json").write_text("{")
    assert error(await client.get(f"{BASE}/{recorded.name}")) == (404, "recording_not_found")
    assert (await client.get(BASE)).json()["data"] == []


async def test_each_tenant_sees_its_own(recorded: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    names = ["acme", "bolt"]
    keys = list(make_tenants(tmp_path / "tenants.json", names).values())
    for name in names:
        shutil.copytree(recorded, root / f"sess_{name}")
        change_manifest(root / f"sess_{name}", tenant=name)
    shutil.copytree(recorded, root / "sess_nobody")
    async with served(record=root, tenants_file=tmp_path / "tenants.json") as place:
        for key, name, other in ((keys[0], *names), (keys[1], *reversed(names))):
            async with place.http(key) as client:
                assert [one["id"] for one in (await client.get(BASE)).json()["data"]] == [f"sess_{name}"]
                assert (await client.get(f"{BASE}/sess_{name}/manifest.json")).status_code == 200
                for foreign in (f"sess_{other}", "sess_nobody"):
                    for path in ("", "/manifest.json", "/chapters/0", "/audio/user_in"):
                        assert error(await client.get(f"{BASE}/{foreign}{path}")) == (404, "recording_not_found")
                    assert error(await client.delete(f"{BASE}/{foreign}")) == (404, "recording_not_found")
        async with place.http() as client:
            assert error(await client.get(BASE)) == (401, "invalid_api_key")
        async with place.http(keys[0]) as client:
            minted = await client.post("/v1/realtime/client_secrets", json={})
        async with place.http(minted.json()["value"]) as client:
            assert error(await client.get(BASE)) == (403, "insufficient_scope")
            assert error(await client.get(f"{BASE}/sess_{names[0]}/manifest.json")) == (403, "insufficient_scope")


async def test_pages_from_elsewhere_are_refused(client: httpx.AsyncClient) -> None:
    answer = await client.get(BASE, headers={"Origin": "https://elsewhere.example"})
    assert error(answer) == (403, "origin_not_allowed")


async def test_a_server_that_records_nothing_says_how_it_would() -> None:
    async with served() as place, place.http() as client:
        answer = await client.get(BASE)
        assert error(answer) == (404, "recording_off")
        assert "--record" in answer.json()["error"]["message"]
        assert error(await client.get(f"{BASE}/sess_1")) == (404, "recording_off")
        assert (await client.get("/healthz")).json()["recording"] is False


async def test_a_session_says_that_it_is_recorded_and_cannot_be_deleted_while_it_runs(tmp_path: Path) -> None:
    async with served(record=tmp_path / "new") as place, place.http() as client:
        assert (await client.get("/healthz")).json()["recording"] is True
        async with await place.socket() as socket:
            created: dict[str, Any] = json.loads(await socket.recv())
            assert created["session"]["x_talkover"]["recording"] is True
            path = f"{BASE}/{created['session']['id']}"
            await socket.send(json.dumps({"type": "session.update", "session": {"type": "realtime"}}))
            while json.loads(await socket.recv())["type"] != "session.updated":
                pass
            while (await client.get(path)).status_code == 404:
                pass
            assert (await client.get(path)).json()["live"] is True
            assert error(await client.delete(path)) == (409, "session_live")


async def test_a_session_that_is_not_recorded_does_not_speak_of_it() -> None:
    async with served() as place, await place.socket() as socket:
        created = json.loads(await socket.recv())
        assert "recording" not in created["session"]["x_talkover"]
