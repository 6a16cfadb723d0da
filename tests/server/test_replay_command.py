"""`talkover replay`, `explain` and `sessions` on the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from server.cli import main
from server.replay_options import EXPORTS
from sessions.recording.format import EVENTS
from sessions.replay.export import FORMATS
from tests.sessions.recordings import change_manifest, lines_of, rewrite
from tests.sessions.replay.talks import interrupted

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    interrupted(tmp_path / "recordings", cough=True)
    return tmp_path / "recordings"


@pytest.fixture
def talk(root: Path) -> Path:
    (folder,) = root.iterdir()
    return folder


def run(capsys: Capture, *arguments: object) -> tuple[int, str, str]:
    status = main([str(one) for one in arguments])
    out, err = capsys.readouterr()
    return status, out, err


def test_a_recording_is_run_again_and_found_identical(talk: Path, capsys: Capture) -> None:
    status, out, err = run(capsys, "replay", talk)
    assert (status, err) == (0, "")
    assert out.startswith("identical (")


def test_a_difference_is_shown_with_its_cause(talk: Path, capsys: Capture) -> None:
    lines = lines_of(talk)
    frame = next(one for line in lines for one in line.get("effects", []) if one["type"] == "AdmitFrame")
    frame["placed_at"] += 1
    rewrite(talk, lines)
    status, out, _ = run(capsys, "replay", talk)
    assert status == 1
    assert f"placed_at was {frame['placed_at']} and is {frame['placed_at'] - 1}" in out
    assert json.loads(run(capsys, "replay", talk, "--json")[1])["identical"] is False


def test_what_if_prints_both_runs_and_the_limits(talk: Path, capsys: Capture) -> None:
    status, out, _ = run(capsys, "replay", talk, "--set", "turn.hold_ms=400", "--shift", "interruption=-200ms")
    assert status == 0
    assert "recorded" in out
    assert "altered" in out
    assert "the user is the recorded one" in out
    plain = json.loads(run(capsys, "replay", talk, "--set", "turn.hold_ms=400", "--json")[1])
    assert plain["same"] is False


def test_all_sessions_are_run_under_another_policy(root: Path, tmp_path: Path, capsys: Capture) -> None:
    policy = tmp_path / "new.toml"
    policy.write_text("[turn]\nhold_ms = 400\n[session]\nlead_ms = 200\n")
    status, out, _ = run(capsys, "replay", "--all", root, "--policy", policy)
    assert status == 1
    assert out.splitlines()[-1] == "1 of 1 sessions would go otherwise"
    policy.write_text("[turn]\ninterrupt_response = true\n")
    assert run(capsys, "replay", "--all", root, "--policy", policy)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["replay"], "--all DIR"),
        (["replay", "nowhere"], "holds no manifest.json"),
        (["replay", "TALK", "--set", "nothing"], "NAME=VALUE"),
        (["replay", "TALK", "--from", "user_in", "--set", "turn.silence_ms=1"], "each go by themselves"),
        (["replay", "--all", "nowhere", "--set", "turn.silence_ms=1"], "nowhere"),
        (["replay", "TALK", "--policy", "nowhere.toml"], "nowhere.toml"),
        (["replay", "TALK", "--engine", "same"], "answers text and draws what it says anew"),
        (["replay", "DUPLEX", "--engine", "same"], "answered by the engine duplex-script, and only moshi"),
        (["replay", "MOSHI", "--engine", "same"], "--checkpoint DIR or --random-weights"),
        (["explain", "TALK", "--interruption", "9"], "no interruption 9"),
        (["explain", "nowhere"], "holds no manifest.json"),
        (["sessions", "show", "nobody", "--record", "ROOT"], "give the id of one recording"),
        (["sessions", "list", "--record", "nowhere"], "nowhere"),
        (["sessions", "rm", "--record", "ROOT"], "give sessions to delete"),
    ],
)
def test_a_mistake_is_told_with_its_remedy(
    talk: Path, root: Path, capsys: Capture, arguments: list[str], told: str
) -> None:
    places = {"TALK": str(talk), "ROOT": str(root)}
    for engine in ("duplex-script", "moshi"):
        owning = places[engine.partition("-")[0].upper()] = str(root.parent / engine)
        shutil.copytree(talk, owning)
        change_manifest(Path(owning), abilities={"type": "Abilities", "engine_turns": True}, engine={"engine": engine})
    status, _, err = run(capsys, *(places.get(one, one) for one in arguments))
    assert status == 2
    assert told in err
    assert err.startswith("talkover ")


def test_the_explanation_is_for_people_and_for_programs(talk: Path, capsys: Capture) -> None:
    status, out, _ = run(capsys, "explain", talk, "--interruption", "1")
    assert status == 0
    assert "onset in the user's audio" in out
    plain = json.loads(run(capsys, "explain", talk, "--json")[1])
    assert plain["interruptions"][0]["cause"] == "barge_in"


def test_of_a_damaged_recording_the_readable_part_is_shown(talk: Path, capsys: Capture) -> None:
    rewrite(talk, lines_of(talk), flush_every=20)
    whole = bytearray((talk / EVENTS).read_bytes())
    whole[len(whole) * 3 // 4 :][:30] = bytes(30)
    middle = len(whole) * 3 // 4
    whole[middle : middle + 30] = bytes(30)
    (talk / EVENTS).write_bytes(whole)
    for command in (["explain", talk], ["sessions", "show", talk]):
        status, out, err = run(capsys, *command)
        assert status == 2
        assert "interruptions by voice" in out
        assert "damaged after event" in err
    assert run(capsys, "replay", talk)[0] == 2


def test_of_a_newer_version_what_is_known_is_shown(talk: Path, capsys: Capture) -> None:
    change_manifest(talk, version=99)
    status, out, err = run(capsys, "sessions", "show", talk)
    assert status == 2
    assert "99" in out
    assert "Use a newer one" in err


def test_recordings_are_listed_shown_exported_counted_and_deleted(
    root: Path, talk: Path, tmp_path: Path, capsys: Capture
) -> None:
    assert talk.name in run(capsys, "sessions", "list", "--record", root)[1]
    assert json.loads(run(capsys, "sessions", "list", "--record", root, "--json")[1])[0]["ended"] == "closed"
    shown = run(capsys, "sessions", "show", talk.name[:9], "--record", root)[1]
    assert "agent_heard" in shown
    for name in EXPORTS:
        out = tmp_path / name
        status, printed, _ = run(
            capsys, "sessions", "export", talk.name, "--record", root, "--format", name, "--out", out
        )
        assert (status, printed.strip()) == (0, str(out))
        assert out.stat().st_size > 0
    assert "interruptions 1" in run(capsys, "sessions", "stats", "--record", root)[1]
    assert run(capsys, "sessions", "rm", "--older-than", "1", "--record", root)[1] == ""
    assert run(capsys, "sessions", "rm", talk.name, "--record", root)[1] == f"deleted {talk.name}\n"
    assert list(root.iterdir()) == []


def test_the_formats_of_the_help_are_those_that_there_are() -> None:
    assert set(EXPORTS) == set(FORMATS)
