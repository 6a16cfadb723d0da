"""Recordings of every version and in every state of repair."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import soundfile

from sessions.core.config import SessionConfig
from sessions.core.effects import AdmitFrame
from sessions.core.events import AudioArrived, CarrierAttached, EngineAudio
from sessions.core.fence import Fence
from sessions.core.state import Abilities
from sessions.core.timeline import TICK_RATE, from_ms
from sessions.journal import Recorder
from sessions.recording.format import EVENTS, MANIFEST, JournalError
from sessions.replay.account import account
from sessions.replay.input_clock import InputClock
from sessions.replay.reader import Recording
from sessions.replay.rerun import rerun
from tests.sessions.recordings import change_manifest, lines_of, rewrite

from .test_rerun import record

FENCE = Fence("sess_t", 1, 0)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("recordings"))


@pytest.fixture
def folder(recorded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recorded, tmp_path / "copy"))


@pytest.fixture
def version_1(tmp_path: Path) -> Path:
    with zipfile.ZipFile(Path(__file__).parents[1] / "recording" / "data" / "version_1.zip") as archive:
        archive.extractall(tmp_path)
    return tmp_path / "sess_v1"


# --- the first version ---------------------------------------------------------------------------------------------


def test_a_recording_of_the_first_version_is_read_and_re_run(version_1: Path) -> None:
    recording = Recording(version_1)
    assert recording.manifest.version == 1
    assert recording.manifest.ended == "client_closed"
    result = rerun(version_1)
    assert result.identical, str(result.difference)
    assert result.events == len(list(recording.steps())) > 200
    assert {name: track.rate for name, track in recording.tracks().items()} == dict.fromkeys(
        ("user_in", "agent_generated", "agent_sent", "agent_heard"), 8000
    )
    told = account(recording.manifest.config, recording.steps())
    assert [cut.cause for cut in told.interruptions][:1] == ["barge_in"]
    for name, track in recording.tracks().items():
        wav, _ = soundfile.read(version_1 / f"{name}.wav", dtype="int16")
        assert np.array_equal(recording.samples(name, 0, track.length), wav), name


# --- the second ----------------------------------------------------------------------------------------------------


def test_the_files_of_sent_and_heard_are_what_is_put_together_from_the_events(folder: Path) -> None:
    recording = Recording(folder)
    for name in ("agent_sent", "agent_heard"):
        file, _ = soundfile.read(folder / f"{name}.flac", dtype="int16")
        length = recording.tracks()[name].length
        assert np.array_equal(recording.samples(name, 0, length), file), name
        assert file.any()
    part = recording.samples("agent_heard", from_ms(2500), from_ms(2700))
    whole = recording.samples("agent_heard", 0, from_ms(3000))
    assert np.array_equal(part, whole[60_000:64_800])


def test_what_is_sent_and_heard_needs_no_file_of_its_own(folder: Path) -> None:
    whole = {name: Recording(folder).samples(name, 0, 7 * TICK_RATE) for name in ("agent_sent", "agent_heard")}
    for name in whole:
        (folder / f"{name}.flac").unlink()
        assert np.array_equal(Recording(folder).samples(name, 0, 7 * TICK_RATE), whole[name])


def test_a_track_that_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(JournalError, match="no track 'pictures'"):
        Recording(folder).samples("pictures", 0, 100)


def test_a_damaged_track_is_left_out_and_the_others_are_there(folder: Path) -> None:
    (folder / "user_in.flac").write_bytes(b"not audio at all")
    recording = Recording(folder)
    assert set(recording.tracks()) == {"agent_generated", "agent_sent", "agent_heard"}
    assert rerun(folder).identical


# --- damage --------------------------------------------------------------------------------------------------------


def test_of_damaged_events_the_rest_is_still_read_and_the_damage_told(folder: Path) -> None:
    rewrite(folder, lines_of(folder), flush_every=20)
    whole = bytearray((folder / EVENTS).read_bytes())
    middle = len(whole) // 2
    whole[middle : middle + 30] = bytes(30)
    (folder / EVENTS).write_bytes(whole)
    with pytest.raises(JournalError, match="damaged after event"):
        rerun(folder)
    faults: list[str] = []
    steps = list(Recording(folder).steps(faults))
    assert len(faults) == 1
    assert len(steps) > 100
    assert EVENTS in faults[0]


def test_reading_goes_on_at_the_next_chapter(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    journal = recorder.open("s", 1, SessionConfig(), Abilities(), 24_000)
    journal.event(CarrierAttached(), 0, None, 0)
    for number in range(4500):
        journal.event(AudioArrived(960 * number, 960 * number + 960), 960 * number + 977 * (number % 3), None, 0)
    journal.close("end")
    recorder.close()
    path = tmp_path / "s" / EVENTS
    whole = bytearray(path.read_bytes())
    starts = [at for at in range(len(whole) - 4) if whole[at : at + 4] == b"\x28\xb5\x2f\xfd"]
    assert len(starts) in (3, 4)
    whole[starts[1] + 30 : starts[1] + 50] = bytes(20)
    path.write_bytes(whole)
    faults: list[str] = []
    steps = list(Recording(tmp_path / "s").steps(faults))
    assert faults
    assert steps[-1].number == 4501
    assert (steps[-1].event, steps[0].number) == (AudioArrived(960 * 4499, 960 * 4500), 1)
    assert 2500 < len(steps) < 4501


@pytest.mark.parametrize("name", [MANIFEST, EVENTS])
def test_no_byte_of_it_that_is_changed_is_a_crash(folder: Path, name: str) -> None:
    whole = (folder / name).read_bytes()
    dice = np.random.default_rng(5)
    refusals: list[str] = []
    for _ in range(60):
        changed = bytearray(whole)
        for at in dice.integers(0, len(changed), 3):
            changed[at] = int(dice.integers(0, 256))
        if dice.random() < 0.3:
            del changed[int(dice.integers(0, len(changed))) :]
        (folder / name).write_bytes(changed)
        try:
            list(Recording(folder).steps([]))
            rerun(folder)
        except JournalError as error:
            refusals.append(str(error))
    assert refusals
    assert all(str(folder) in refusal or "sess_" in refusal for refusal in refusals)


def test_a_newer_version_is_refused_and_what_is_known_of_it_is_told(folder: Path) -> None:
    change_manifest(folder, version=3, began="2027-01-01T00:00:00+00:00")
    with pytest.raises(JournalError, match=r"version 3 .* reads up to 2") as caught:
        Recording(folder)
    assert caught.value.known["began"] == "2027-01-01T00:00:00+00:00"
    assert str(caught.value.known["session"]).startswith("sess_")


@pytest.mark.parametrize("manifest", [{}, {"version": "2"}, {"version": 0}, {"version": True}, {"name": "foreign"}])
def test_a_foreign_manifest_is_refused(tmp_path: Path, manifest: object) -> None:
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(JournalError, match=str(tmp_path)):
        Recording(tmp_path)


# --- two clocks ----------------------------------------------------------------------------------------------------


def test_the_users_track_lies_where_the_first_packets_were_least_late() -> None:
    clock = InputClock()
    for number, late in enumerate((30, 5, 40, 12)):
        clock.arrived(960 * number, 960 * number + 960, 96_000 + 960 * number + 960 + late)
    assert clock.starts == 96_005
    assert clock.session_time(960) == 96_965
    assert clock.input_position(96_965) == 960


def test_a_pause_of_the_client_parts_the_track() -> None:
    clock = InputClock()
    clock.arrived(0, 960, 960)
    clock.arrived(960, 1920, 480_000)
    assert [(one.start, one.offset) for one in clock.stretches] == [(0, 0), (960, 478_080)]
    assert clock.session_time(959) == 959
    assert clock.session_time(960) == 479_040


def test_clocks_that_drift_are_followed() -> None:
    clock = InputClock()
    for number in range(6000):  # two minutes; the client's clock is 100 ppm slow
        end = 960 * number + 960
        clock.arrived(960 * number, end, round(end * 1.0001) + number * 37 % 200)
    assert abs(clock.session_time(5999 * 960) - 5999 * 960 * 1.0001) < from_ms(15)
    assert abs(clock.session_time(0)) < from_ms(5)


def test_both_sides_lie_on_one_timeline(tmp_path: Path) -> None:
    """The user's track begins with the first packet, two seconds into the session; the agent spoke before."""
    recorder = Recorder(tmp_path)
    journal = recorder.open("s", 1, SessionConfig(), Abilities(), 24_000)
    journal.event(CarrierAttached(), 0, None, 0)
    loud = (b"\x00\x20") * 480
    for number in range(50):
        start = 960 * number
        journal.event(EngineAudio(FENCE, "r", start, start + 960), start, loud, 24_000)
        frame = AdmitFrame(FENCE, number, "r", "i", start, start + 960, 48_000 + start, "r", start)
        journal.effects([frame])
        journal.sent(frame, loud)
    for number in range(50):
        start = 960 * number
        journal.event(AudioArrived(start, start + 960), 96_000 + start + 960, loud, 24_000)
    journal.close("end")
    recorder.close()
    recording = Recording(tmp_path / "s")
    user = recording.session_audio("user", 0, 4 * TICK_RATE, 24_000)
    agent = recording.session_audio("agent", 0, 4 * TICK_RATE, 24_000)
    assert (int(np.argmax(user != 0)), int(np.count_nonzero(user))) == (48_000, 24_000)
    assert (int(np.argmax(agent != 0)), int(np.count_nonzero(agent))) == (24_000, 24_000)
