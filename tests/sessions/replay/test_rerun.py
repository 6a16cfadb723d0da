from __future__ import annotations

import asyncio
import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sessions.core.config import SessionConfig
from sessions.core.events import CarrierLost, Close, ItemCreate, ItemTruncate, ResponseCancel, ResponseCreate
from sessions.core.turns import TurnPolicy
from sessions.handle import SessionHandle
from sessions.journal import Recorder
from sessions.manager import SessionManager
from sessions.recording.format import EVENTS, EVENTS_1, MANIFEST
from sessions.replay.reader import read_manifest
from sessions.replay.rerun import JournalError, Rerun, rerun
from sessions.virtual_clock import run
from tests.sessions.fakes import CountingEngine, LoudnessPerception, NotebookCarrier
from tests.sessions.recordings import as_version_1, lines_of, rewrite

LOUD = b"\x00\x20" * 480


async def microphone(handle: SessionHandle, *stretches: tuple[float, bool]) -> None:
    """Play 20 ms chunks in real time: (seconds, speaking) after each other."""
    for seconds, speaking in stretches:
        for _ in range(round(seconds * 50)):
            await asyncio.sleep(0.02)
            handle.audio(LOUD if speaking else bytes(960), 24_000)


def record(root: Path) -> Path:
    """A conversation with an interruption, commands, mistakes and a lost carrier; returns its folder."""

    async def scenario() -> None:
        manager = SessionManager(CountingEngine(seconds=4.0), LoudnessPerception(), recorder=Recorder(root))
        handle = manager.open(NotebookCarrier(), SessionConfig(transcribe_input=True))
        await microphone(handle, (0.5, False), (1.0, True), (1.5, False), (0.5, True), (2.0, False))
        handle.post(ResponseCancel(command="one"))
        handle.post(ResponseCancel(command="two"))
        handle.post(ItemTruncate("item_of_nobody", 0, command="three"))
        handle.post(ItemCreate("user", text="Grüße \ud83d"))
        handle.post(ResponseCreate())
        await microphone(handle, (1.0, False))
        handle.post(CarrierLost("gone"))
        handle.post(Close("gone"))
        await handle.closed()
        await manager.close()

    run(scenario())
    (folder,) = root.iterdir()
    return folder


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("recordings"))


@pytest.fixture(params=[1, 2])
def folder(recorded: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A copy that a test may change, in each version of the format."""
    copy = Path(shutil.copytree(recorded, tmp_path / "copy"))
    if request.param == 1:
        as_version_1(copy)
    return copy


@pytest.fixture
def folder_1(recorded: Path, tmp_path: Path) -> Path:
    """A copy in version 1, whose events are plain lines."""
    copy = Path(shutil.copytree(recorded, tmp_path / "copy"))
    as_version_1(copy)
    return copy


def difference(result: Rerun) -> Any:
    assert not result.identical
    assert result.difference is not None
    return result.difference


# --- the same again ------------------------------------------------------------------------------------------------


def test_a_recording_re_runs_to_the_same_effects_and_every_event_is_run(folder: Path) -> None:
    result = rerun(folder)
    assert result.identical, str(result.difference)
    assert result.events == sum("event" in line for line in lines_of(folder)) > 300


def test_a_recording_of_the_same_conversation_has_the_same_effects(folder: Path, tmp_path: Path) -> None:
    """Ids and all depend on nothing but the session's name and what happened in it."""
    again = record(tmp_path / "again")
    name, other = read_manifest(folder).session, read_manifest(again).session
    renamed = json.dumps(lines_of(again)).replace(other, name)
    renamed = renamed.replace(other.removeprefix("sess_"), name.removeprefix("sess_"))
    assert json.loads(renamed) == lines_of(folder)


def test_a_recording_cut_short_by_a_crash_is_run_as_far_as_it_goes(folder: Path) -> None:
    events = next(path for path in (folder / EVENTS, folder / EVENTS_1) if path.exists())
    rewrite(folder, lines_of(folder), flush_every=20)
    whole = events.read_bytes()
    for size in (len(whole) // 3, len(whole) // 2, len(whole) - 1):
        events.write_bytes(whole[:size])
        result = rerun(folder)
        assert result.identical, str(result.difference)
        assert 0 < result.events < 2000


def test_an_empty_recording_is_identical(folder: Path) -> None:
    rewrite(folder, [])
    assert rerun(folder) == Rerun(0, None)


def test_a_field_that_a_newer_version_adds_is_passed_over(folder: Path) -> None:
    lines = lines_of(folder)
    for line in lines:
        if "event" in line:
            line["event"]["added_later"] = 1
    rewrite(folder, lines)
    assert rerun(folder).identical


# --- the first difference ------------------------------------------------------------------------------------------


def with_effects(lines: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The first record of effects with one of that type."""
    return next(line for line in lines if any(effect["type"] == kind for effect in line.get("effects", [])))


def drop_an_effect(lines: list[dict[str, Any]]) -> int:
    line = with_effects(lines, "AdmitFrame")
    line["effects"].pop()
    return int(line["n"])


def add_an_effect(lines: list[dict[str, Any]]) -> int:
    line = with_effects(lines, "FlushCarrier")
    line["effects"].append({"type": "HoldCarrier"})
    return int(line["n"])


def change_an_effect(lines: list[dict[str, Any]]) -> int:
    line = with_effects(lines, "AdmitFrame")
    next(effect for effect in line["effects"] if effect["type"] == "AdmitFrame")["placed_at"] += 1
    return int(line["n"])


def swap_two_effects(lines: list[dict[str, Any]]) -> int:
    line = with_effects(lines, "FlushCarrier")
    line["effects"].reverse()
    return int(line["n"])


def lose_all_effects_of_an_event(lines: list[dict[str, Any]]) -> int:
    line = with_effects(lines, "StartResponse")
    lines.remove(line)
    return int(line["n"])


def invent_effects_of_an_event_without_any(lines: list[dict[str, Any]]) -> int:
    index = next(i for i, (one, two) in enumerate(itertools.pairwise(lines)) if "event" in one and "event" in two)
    number = int(lines[index]["n"])
    lines.insert(index + 1, {"n": number, "effects": [{"type": "HoldCarrier"}]})
    return number


@pytest.mark.parametrize(
    "change",
    [
        drop_an_effect,
        add_an_effect,
        change_an_effect,
        swap_two_effects,
        lose_all_effects_of_an_event,
        invent_effects_of_an_event_without_any,
    ],
)
def test_the_first_change_is_found_where_it_is(folder: Path, change: Callable[[list[dict[str, Any]]], int]) -> None:
    lines = lines_of(folder)
    number = change(lines)
    rewrite(folder, lines)
    found = difference(rerun(folder))
    assert found.number == number
    assert found.recorded != found.rerun
    assert f"event {number}:" in str(found)


def test_an_event_that_is_left_out_shows_in_what_follows(folder: Path) -> None:
    lines = lines_of(folder)
    gone = next(i for i, line in enumerate(lines) if line.get("event", {}).get("type") == "EngineAudio")
    number = lines[gone]["n"]
    lines = [line for line in lines if line["n"] != number]
    for line in lines:
        line["n"] -= line["n"] > number
    rewrite(folder, lines)
    assert difference(rerun(folder)).number >= number


def test_a_core_that_behaves_otherwise_is_told_by_the_recording(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TurnPolicy, "window", lambda self, *_arguments: [])
    assert difference(rerun(folder)).number > 1


# --- what is no journal --------------------------------------------------------------------------------------------


def refusal(folder: Path) -> str:
    with pytest.raises(JournalError) as caught:
        rerun(folder)
    return str(caught.value)


def test_a_folder_without_a_manifest_is_no_journal_and_the_remedy_is_told(tmp_path: Path) -> None:
    message = refusal(tmp_path)
    assert MANIFEST in message
    assert "folder of one recorded session" in message


def test_a_folder_that_is_not_there_or_is_a_file_is_no_journal(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(b"RIFF")
    for place in (tmp_path / "nowhere", tmp_path / "a.wav"):
        assert str(place) in refusal(place)


def test_a_journal_without_events_says_which_file_is_missing(folder: Path) -> None:
    events = next(path for path in (folder / EVENTS, folder / EVENTS_1) if path.exists())
    events.unlink()
    assert events.name in refusal(folder)


@pytest.mark.parametrize("manifest", ["", "{", "[]", "7", '{"version": 999}', "{}"])
def test_a_manifest_that_is_damaged_or_of_another_version_is_refused(folder: Path, manifest: str) -> None:
    (folder / MANIFEST).write_text(manifest)
    assert str(folder) in refusal(folder)


@pytest.mark.parametrize(
    ("field", "value"),
    [("config", None), ("config", {"lead": "long"}), ("abilities", 3), ("session", 7), ("incarnation", "x")],
)
def test_a_manifest_with_a_wrong_field_is_refused_by_its_name(folder: Path, field: str, value: object) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**manifest, field: value}))
    assert str(folder) in refusal(folder)
    del manifest[field]
    (folder / MANIFEST).write_text(json.dumps(manifest))
    assert field in refusal(folder)


@pytest.mark.parametrize(
    "line",
    [
        "not json",
        "5",
        '"event"',
        "[]",
        '{"n":1}',
        '{"n":1,"now":0,"event":5}',
        '{"n":1,"now":0,"event":{"type":"NoSuchEvent"}}',
        '{"n":1,"now":0,"event":{"type":"AudioArrived","start":"0","end":1}}',
        '{"n":1,"now":"0","event":{"type":"CarrierAttached"}}',
        '{"now":0,"event":{"type":"CarrierAttached"}}',
        '{"n":1,"event":{"type":"CarrierAttached"}}',
        '{"n":1,"effects":5}',
        '{"n":9,"effects":[]}',
        '{"n":1,"now":-5,"event":{"type":"CarrierAttached"}}',
        "\xff",
    ],
)
def test_a_damaged_line_is_named_and_no_crash(folder_1: Path, line: str) -> None:
    whole = (folder_1 / EVENTS_1).read_bytes().splitlines(keepends=True)
    whole.insert(4, line.encode("latin-1") + b"\n")
    (folder_1 / EVENTS_1).write_bytes(b"".join(whole))
    message = refusal(folder_1)
    assert EVENTS_1 in message or "event 1 is damaged: time goes back" in message
    assert "line 5" in message or "time goes back" in message


def test_events_that_are_missing_are_named(folder: Path) -> None:
    lines = [line for line in lines_of(folder) if line["n"] not in (5, 6)]
    rewrite(folder, lines)
    assert "event 7 stands where event 5 should" in refusal(folder)
