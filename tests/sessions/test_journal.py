"""Journals as they lie on the disk: every event in its order, every sample in its place."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import soundfile
import zstandard

from sessions import journal as journal_module
from sessions.core.config import SessionConfig
from sessions.core.effects import AdmitFrame, Count, Effect, Notify
from sessions.core.events import (
    AudioArrived,
    CarrierAttached,
    Close,
    ConfigUpdate,
    DuplexFrame,
    EngineAudio,
    EngineText,
    Event,
    ItemCreate,
    PlaybackReported,
)
from sessions.core.fence import Fence
from sessions.core.notices import CommandFailed, PlaybackCleared
from sessions.core.records import Reader
from sessions.core.state import Abilities
from sessions.core.timeline import Ticks, from_ms
from sessions.journal import Journal, Recorder
from sessions.recording.flac_track import FlacTrack
from sessions.recording.format import EVENTS, MANIFEST
from sessions.recording.policy import RecordingPolicy
from sessions.replay.reader import Recording, read_manifest
from tests.sessions.recordings import lines_of

FENCE = Fence("sess_t", 1, 0)
RATE = 24_000


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    recorder = Recorder(tmp_path / "recordings")
    yield recorder
    recorder.close()


def begin(recorder: Recorder, session: str = "sess_t", config: SessionConfig | None = None) -> Journal:
    return recorder.open(session, 1, config or SessionConfig(), Abilities(), RATE)


def written(recorder: Recorder, journal: Journal) -> list[dict[str, Any]]:
    """The lines of a finished journal; everything that waits is written first."""
    recorder.close()
    assert recorder.faults == 0
    return lines_of(journal.folder)


def track(journal: Journal, name: str) -> tuple[list[int], int]:
    pcm, rate = soundfile.read(journal.folder / f"{name}.flac", dtype="int16")
    return pcm.tolist(), rate


def tone(value: int, ms: float, rate: int = RATE) -> bytes:
    """As many samples of one value."""
    return value.to_bytes(2, "little") * round(ms * rate / 1000)


def frame(start: float, end: float, placed_at: float, response: str = "r1") -> AdmitFrame:
    """A frame with content [start, end) that lies at `placed_at`, all in ms."""
    return AdmitFrame(
        FENCE, 0, response, f"item_{response}", from_ms(start), from_ms(end), from_ms(placed_at), response, 0
    )


def cleared(heard: float, response: str = "r1") -> list[Effect]:
    return [Notify(PlaybackCleared(response, from_ms(heard), ""))]


# --- lines ---------------------------------------------------------------------------------------------------------


def test_each_event_stands_before_its_effects_and_with_its_time(recorder: Recorder) -> None:
    journal = begin(recorder)
    journal.event(CarrierAttached(), 0, None, 0)
    journal.effects([Count("holds"), Count("resumes", 2)])
    journal.event(Close("bye"), 4800, None, 0)
    journal.effects([])
    journal.close("bye")
    lines = written(recorder, journal)
    assert lines == [
        {"n": 1, "now": 0, "event": {"type": "CarrierAttached"}},
        {"n": 1, "effects": [{"type": "Count", "name": "holds"}, {"type": "Count", "name": "resumes", "by": 2}]},
        {"n": 2, "now": 4800, "event": {"type": "Close", "reason": "bye"}},
    ]


def test_the_manifest_is_there_from_the_first_moment_and_tells_the_end_when_there_was_one(recorder: Recorder) -> None:
    config = SessionConfig(instructions="Antworte auf Deutsch: Grüße, 你好", transcribe_input=True)
    journal = begin(recorder, config=config)
    journal.event(AudioArrived(0, from_ms(10)), 0, tone(1, 10), RATE)
    crashed = begin(recorder, "sess_crashed")
    journal.close("client_closed")
    recorder.close()
    manifest = read_manifest(journal.folder)
    assert (manifest.session, manifest.incarnation, manifest.agent_rate) == ("sess_t", 1, RATE)
    assert manifest.config == config
    assert manifest.ended == "client_closed"
    written = json.loads((journal.folder / MANIFEST).read_text())
    assert written["tracks"] == {"user_in": {"rate": RATE, "starts": 0}}
    assert read_manifest(crashed.folder).ended is None


def test_text_of_any_script_is_written_and_half_a_character_too(recorder: Recorder) -> None:
    """JSON can hold a lone surrogate, UTF-8 cannot; a client may send one, and the line must not be lost."""
    said = ["Grüße, 你好 🙂", "\ud83d", 'quote " and \n line', "\u2028"]
    journal = begin(recorder)
    for text in said:
        journal.event(ItemCreate("user", text=text), 0, None, 0)
    journal.close("end")
    lines = written(recorder, journal)
    read = Reader([ItemCreate]).read
    assert [read(line["event"]).text for line in lines] == said


def test_a_line_reaches_the_file_without_waiting_for_the_end(recorder: Recorder) -> None:
    journal = begin(recorder)
    journal.event(CarrierAttached(), 0, None, 0)
    recorder.close()
    assert [line["event"]["type"] for line in lines_of(journal.folder)] == ["CarrierAttached"]


# --- tracks --------------------------------------------------------------------------------------------------------


def test_user_audio_lies_at_its_position_and_not_where_it_was_received(recorder: Recorder) -> None:
    """A stall makes no silence of its own, and no delay is counted twice: only positions count."""
    journal = begin(recorder)
    for number, now in enumerate((20, 900, 901, 902)):
        event = AudioArrived(from_ms(20 * number), from_ms(20 * number + 20))
        journal.event(event, from_ms(now), tone(number + 1, 20), RATE)
    journal.event(AudioArrived(from_ms(80), from_ms(100), concealed=True), from_ms(2000), None, 0)
    journal.event(AudioArrived(from_ms(100), from_ms(110)), from_ms(2000), tone(9, 10), RATE)
    journal.close("end")
    lines = written(recorder, journal)
    assert [line.get("track") for line in lines] == ["user_in"] * 6
    samples, rate = track(journal, "user_in")
    assert rate == RATE
    assert samples == [1] * 480 + [2] * 480 + [3] * 480 + [4] * 480 + [0] * 480 + [9] * 240


def test_a_client_that_changes_its_format_goes_on_in_a_further_file_at_the_same_place(recorder: Recorder) -> None:
    journal = begin(recorder)
    journal.event(AudioArrived(0, from_ms(20)), 0, tone(1, 20), RATE)
    journal.event(AudioArrived(from_ms(20), from_ms(40)), 0, tone(2, 20, 8000), 8000)
    journal.event(AudioArrived(from_ms(40), from_ms(60)), 0, tone(3, 20), RATE)
    journal.close("end")
    names = [line["track"] for line in written(recorder, journal)]
    assert len(set(names)) == 3
    tracks = [track(journal, name) for name in names]
    assert [rate for _, rate in tracks] == [RATE, 8000, RATE]
    assert [samples for samples, _ in tracks] == [[1] * 480, [0] * 160 + [2] * 160, [0] * 960 + [3] * 480]


def test_audio_of_an_item_lies_on_the_input_track(recorder: Recorder) -> None:
    journal = begin(recorder)
    journal.event(AudioArrived(0, from_ms(10)), 0, tone(1, 10), RATE)
    audio = AudioArrived(from_ms(10), from_ms(30))
    journal.event(ItemCreate("user", audio=audio), 0, tone(2, 20), RATE)
    journal.close("end")
    assert written(recorder, journal)[1]["track"] == "user_in"
    assert track(journal, "user_in")[0] == [1] * 240 + [2] * 480


@pytest.mark.parametrize("kind", ["engine", "duplex"])
def test_all_that_the_engine_made_is_kept_in_the_order_of_its_making(recorder: Recorder, kind: str) -> None:
    journal = begin(recorder)

    def made(response: str, start: Ticks, end: Ticks) -> Event:
        return EngineAudio(FENCE, response, start, end) if kind == "engine" else DuplexFrame(FENCE, start, end, True)

    journal.event(made("r1", 0, from_ms(20)), 0, tone(1, 20), RATE)
    journal.event(made("r1", from_ms(20), from_ms(40)), 0, tone(2, 20), RATE)
    journal.event(EngineText(FENCE, "r1", "text"), 0, None, RATE)
    journal.event(made("r2", 0, from_ms(10)), 0, tone(3, 10), RATE)
    journal.close("end")
    lines = written(recorder, journal)
    assert [(line.get("track"), line.get("at")) for line in lines] == [
        ("agent_generated", 0),
        ("agent_generated", from_ms(20)),
        (None, None),
        ("agent_generated", from_ms(40)),
    ]
    assert track(journal, "agent_generated")[0] == [1] * 480 + [2] * 480 + [3] * 240


def test_what_was_sent_lies_where_it_was_placed_with_its_pauses(recorder: Recorder) -> None:
    journal = begin(recorder)
    journal.sent(frame(0, 20, placed_at=100), tone(1, 20))
    journal.sent(frame(20, 40, placed_at=120), tone(2, 20))
    journal.sent(frame(40, 60, placed_at=500), tone(3, 20))
    journal.close("end")
    written(recorder, journal)
    expected = np.zeros(RATE * 520 // 1000, int)
    expected[2400:2880], expected[2880:3360], expected[12_000:] = 1, 2, 3
    assert track(journal, "agent_sent")[0] == expected.tolist()
    assert track(journal, "agent_heard")[0] == expected.tolist()


def test_what_was_heard_ends_at_the_cut_and_what_was_sent_does_not(recorder: Recorder) -> None:
    journal = begin(recorder)
    journal.event(CarrierAttached(), 0, None, 0)
    for number in range(10):
        journal.sent(frame(20 * number, 20 * number + 20, placed_at=1000 + 20 * number), tone(1, 20))
    journal.effects(cleared(70))
    journal.close("end")
    written(recorder, journal)
    assert np.nonzero(np.array(track(journal, "agent_sent")[0]))[0].tolist() == list(range(24_000, 28_800))
    assert np.nonzero(np.array(track(journal, "agent_heard")[0]))[0].tolist() == list(range(24_000, 24_000 + 1680))


def test_a_cut_behind_a_pause_blanks_by_content_and_not_by_place(recorder: Recorder) -> None:
    journal = begin(recorder)
    journal.event(CarrierAttached(), 0, None, 0)
    journal.sent(frame(0, 100, placed_at=0), tone(1, 100))
    journal.sent(frame(100, 200, placed_at=600), tone(2, 100))
    journal.effects(cleared(150))
    journal.close("end")
    written(recorder, journal)
    heard, _ = track(journal, "agent_heard")
    assert heard == [1] * 2400 + [0] * 12_000 + [2] * 1200


def test_a_cut_touches_no_other_response(recorder: Recorder) -> None:
    journal = begin(recorder)
    journal.event(CarrierAttached(), 0, None, 0)
    journal.sent(frame(0, 100, placed_at=0, response="r1"), tone(1, 100))
    journal.sent(frame(0, 100, placed_at=100, response="r2"), tone(2, 100))
    journal.effects(cleared(0, "r2"))
    journal.sent(frame(0, 20, placed_at=110, response="r3"), tone(3, 20))
    journal.close("end")
    written(recorder, journal)
    heard, _ = track(journal, "agent_heard")
    assert heard[:2400] == [1] * 2400
    assert not any(heard[2400:2640])
    assert heard[2640:3120] == [3] * 480
    assert not any(heard[3120:])


def test_a_session_without_audio_has_no_tracks(recorder: Recorder) -> None:
    journal = begin(recorder)
    journal.event(CarrierAttached(), 0, None, 0)
    journal.close("end")
    written(recorder, journal)
    assert sorted(path.name for path in journal.folder.iterdir()) == ["events.jsonl.zst", "manifest.json"]


# --- life ----------------------------------------------------------------------------------------------------------


def test_sessions_write_side_by_side_and_into_their_own_folders(recorder: Recorder) -> None:
    journals = [begin(recorder, f"sess_{number}") for number in range(3)]
    for turn in range(5):
        for number, journal in enumerate(journals):
            journal.event(AudioArrived(turn * 960, turn * 960 + 960), 0, tone(number + 1, 20), RATE)
    for journal in journals:
        journal.close("end")
    recorder.close()
    for number, journal in enumerate(journals):
        assert journal.folder == recorder.root / f"sess_{number}"
        assert track(journal, "user_in")[0] == [number + 1] * 2400


def test_a_session_that_was_refused_leaves_no_folder(recorder: Recorder) -> None:
    journal = begin(recorder)
    journal.event(CarrierAttached(), 0, None, 0)
    journal.discard()
    recorder.close()
    assert list(recorder.root.iterdir()) == []


def test_closing_twice_is_closing_once(recorder: Recorder) -> None:
    journal = begin(recorder)
    journal.close("first")
    journal.close("second")
    recorder.close()
    assert recorder.faults == 0
    assert read_manifest(journal.folder).ended == "first"


def test_a_write_that_fails_is_counted_and_ends_no_conversation(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class FullDisk(FlacTrack):
        def write(self, position: int, pcm: bytes) -> None:
            raise OSError(28, "No space left on device")

    journal, other = begin(recorder), begin(recorder, "sess_other")
    monkeypatch.setattr(journal_module, "FlacTrack", FullDisk)
    journal.event(AudioArrived(0, 48_000), 0, tone(1, 1000), RATE)
    journal.event(Close("end"), 0, None, 0)
    journal.close("end")
    other.event(CarrierAttached(), 0, None, 0)
    other.close("end")
    recorder.close()
    assert recorder.faults == 1
    assert "No space left" in caplog.text
    assert read_manifest(journal.folder).stopped == "write_failed"
    assert list(Recording(journal.folder).steps()) == []
    assert [line["event"]["type"] for line in lines_of(other.folder)] == ["CarrierAttached"]


def test_a_folder_that_cannot_be_made_is_an_error_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(OSError, match="taken"):
        Recorder(tmp_path / "taken")


def test_the_lines_are_json_that_the_usual_tools_unpack(recorder: Recorder) -> None:
    journal = begin(recorder)
    journal.event(ItemCreate("user", text="\ud83d 你好"), 0, None, 0)
    journal.close("end")
    recorder.close()
    raw = zstandard.ZstdDecompressor().stream_reader((journal.folder / EVENTS).read_bytes(), read_across_frames=True)
    text = raw.read().decode("utf-8")
    assert json.loads(text)["event"]["text"] == "\ud83d 你好"
    assert "你好" in text


# --- what may be recorded, and how much ----------------------------------------------------------------------------


def recorder_with(tmp_path: Path, **policy: Any) -> Recorder:
    return Recorder(tmp_path / "recordings", RecordingPolicy(**policy))


def consent(answer: Literal["given", "refused"]) -> Event:
    return ConfigUpdate(SessionConfig(recording_consent=answer))


def test_where_consent_is_required_nothing_is_written_before_it_and_everything_after(tmp_path: Path) -> None:
    recorder = recorder_with(tmp_path, consent="required")
    journal = begin(recorder)
    journal.event(CarrierAttached(), 0, None, 0)
    journal.event(AudioArrived(0, from_ms(20)), 5, tone(1, 20), RATE)
    assert not journal.folder.exists()
    journal.event(consent("given"), 10, None, 0)
    journal.event(AudioArrived(from_ms(20), from_ms(40)), 20, tone(2, 20), RATE)
    journal.close("end")
    events = [line["event"]["type"] for line in written(recorder, journal)]
    assert events == ["CarrierAttached", "AudioArrived", "ConfigUpdate", "AudioArrived"]
    assert track(journal, "user_in")[0] == [1] * 480 + [2] * 480
    assert read_manifest(journal.folder).consent == "given"


@pytest.mark.parametrize("rule", ["required", "assumed"])
def test_of_a_user_who_refuses_nothing_is_kept(tmp_path: Path, rule: str) -> None:
    recorder = recorder_with(tmp_path, consent=rule)
    journal = begin(recorder)
    journal.event(AudioArrived(0, from_ms(20)), 0, tone(1, 20), RATE)
    journal.event(consent("refused"), 0, None, 0)
    journal.event(AudioArrived(from_ms(20), from_ms(40)), 0, tone(1, 20), RATE)
    journal.event(consent("given"), 0, None, 0)
    journal.close("end")
    recorder.close()
    assert list(recorder.root.iterdir()) == []


def test_a_session_that_never_says_is_not_kept_where_consent_is_required(tmp_path: Path) -> None:
    recorder = recorder_with(tmp_path, consent="required")
    journal = begin(recorder)
    for number in range(40):
        journal.event(
            AudioArrived(from_ms(1000 * number), from_ms(1000 * number + 1000)), 0, tone(1, 1000, 48_000), 48_000
        )
    journal.close("end")
    recorder.close()
    assert list(recorder.root.iterdir()) == []


def test_a_session_too_large_stops_being_recorded_and_what_there_is_can_be_read(tmp_path: Path) -> None:
    recorder = recorder_with(tmp_path, session_bytes=30_000)
    journal = begin(recorder)
    noise = np.random.default_rng(0).normal(0, 3000, RATE).astype("<i2").tobytes()
    flushed = threading.Event()
    for second in range(4):
        journal.event(AudioArrived(second * 48_000, second * 48_000 + 48_000), second * 48_000, noise, RATE)
    recorder.submit(recorder._flush)
    recorder.submit(flushed.set)
    assert flushed.wait(10)
    journal.event(Close("end"), 5 * 48_000, None, 0)
    journal.close("end")
    lines = written(recorder, journal)
    assert [line["event"]["type"] for line in lines] == ["AudioArrived"] * 4
    assert (read_manifest(journal.folder).stopped, read_manifest(journal.folder).ended) == ("size_limit", None)
    assert len(track(journal, "user_in")[0]) == 4 * RATE


def test_a_disk_that_is_nearly_full_takes_no_more(tmp_path: Path) -> None:
    recorder = recorder_with(tmp_path, free_bytes=1 << 60)
    journal = begin(recorder)
    journal.event(CarrierAttached(), 0, None, 0)
    recorder.close()
    assert read_manifest(journal.folder).stopped == "disk_full"
    assert len(lines_of(journal.folder)) <= 1


def test_secrets_are_written_nowhere(tmp_path: Path) -> None:
    secret, shaped = "the-key-of-this-server", "sk-abcdefghijklmnopqrstuvwx"
    recorder = recorder_with(tmp_path, secrets=(secret,))
    config = SessionConfig(instructions=f"use {secret}")
    journal = begin(recorder, config=config)
    journal.event(ItemCreate("user", text=f"I have {secret} and {shaped}"), 0, None, 0)
    journal.effects([Notify(CommandFailed("x", f"{secret} is wrong"))])
    journal.close("end")
    lines = written(recorder, journal)
    told = json.dumps(lines) + (journal.folder / MANIFEST).read_text()
    assert secret not in told
    assert shaped not in told
    assert lines[0]["event"]["text"] == "I have [redacted] and [redacted]"
    assert secret not in repr(recorder.policy)


def test_a_secret_in_place_of_a_response_that_is_reported_is_not_written(tmp_path: Path) -> None:
    secret = "sk-abcdefghijklmnop0123"
    recorder = recorder_with(tmp_path)
    journal = begin(recorder)
    for response in ("resp_1", "resp_1", secret, secret, "resp_1"):
        journal.event(PlaybackReported(response, 960), 0, None, 0)
    journal.close("end")
    names = [line["event"]["response"] for line in written(recorder, journal) if "event" in line]
    assert names == ["resp_1", "resp_1", "[redacted]", "[redacted]", "resp_1"]


class Notes:
    """A further track."""

    name = "notes"
    size = 5

    def __init__(self) -> None:
        self.flushes = 0

    def flush(self) -> None:
        self.flushes += 1

    def close(self) -> dict[str, Any]:
        return {"flushes": self.flushes}


def test_a_further_track_is_flushed_and_closed_with_the_others(recorder: Recorder) -> None:
    notes = Notes()
    journal = begin(recorder)
    journal.add(lambda: notes)
    flushed = threading.Event()
    recorder.submit(recorder._flush)
    recorder.submit(flushed.set)
    assert flushed.wait(60)
    journal.close("end")
    recorder.close()
    assert json.loads((journal.folder / MANIFEST).read_text())["tracks"]["notes"] == {"flushes": notes.flushes}
    assert notes.flushes >= 1
