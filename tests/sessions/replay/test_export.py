"""Exports, opened by programs that others wrote."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from sessions.core.config import SessionConfig
from sessions.core.effects import AdmitFrame
from sessions.core.events import AudioArrived, CarrierAttached, EngineAudio, EngineWords
from sessions.core.fence import Fence
from sessions.core.state import Abilities
from sessions.core.timeline import TICK_RATE, Word, from_ms
from sessions.journal import Recorder
from sessions.replay.export import FORMATS
from sessions.replay.reader import Recording
from sessions.replay.speech import speech

from .talks import interrupted

FENCE = Fence("s", 1, 0)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return Recording(interrupted(tmp_path_factory.mktemp("talk"), cough=True))


def export(recording: Recording, name: str, tmp_path: Path) -> Path:
    suffix, write = FORMATS[name]
    path = tmp_path / f"out{suffix}"
    write(recording, path)
    return path


def test_the_stereo_file_has_the_user_left_and_what_was_heard_right(recording: Recording, tmp_path: Path) -> None:
    av = pytest.importorskip("av")
    with av.open(str(export(recording, "wav", tmp_path))) as container:
        (stream,) = container.streams.audio
        assert (stream.rate, stream.layout.nb_channels) == (24_000, 2)
        frames = [frame.to_ndarray().reshape(-1, 2) for frame in container.decode(audio=0)]
    both = np.concatenate(frames)
    heard = recording.samples("agent_heard", 0, recording.tracks()["agent_heard"].length)
    assert np.array_equal(both[: len(heard), 1], heard)
    # The question is spoken from 0.5 to 1.5 s of the session, the interruption from 3.5 to 4 s.
    assert int(np.argmax(both[:, 0] != 0)) == 12_000
    assert np.count_nonzero(both[84_000:96_000, 0]) == 12_000
    assert not both[36_000:72_000, 0].any()


def test_a_user_track_of_another_rate_is_resampled_into_its_place(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "r")
    journal = recorder.open("s", 1, SessionConfig(), Abilities(), 24_000)
    journal.event(CarrierAttached(), 0, None, 0)
    tone = (np.sin(np.arange(8000) * 2 * np.pi * 440 / 8000) * 8000).astype("<i2")
    for number in range(50):
        start = 960 * number
        journal.event(
            AudioArrived(start, start + 960), start + 960, tone[160 * number : 160 * number + 160].tobytes(), 8000
        )
    for number in range(50, 100):
        journal.event(AudioArrived(960 * number, 960 * number + 960), 960 * number + 960, b"\x00\x10" * 480, 24_000)
    journal.close("end")
    recorder.close()
    path = export(Recording(tmp_path / "r" / "s"), "wav", tmp_path)
    both, rate = soundfile.read(path, dtype="int16")
    assert (rate, len(both)) == (24_000, 48_000)
    spectrum = np.abs(np.fft.rfft(both[2400:21_600, 0].astype(float)))
    assert abs(int(spectrum.argmax()) * 24_000 / 19_200 - 440) < 2
    assert np.abs(both[2400:21_600, 0]).max() == pytest.approx(8000, rel=0.05)
    assert np.abs(both[26_000:, 0] - 4096).max() <= 2  # what is left of the resampler's edge


def test_captions_are_read_by_a_parser_of_webvtt(recording: Recording, tmp_path: Path) -> None:
    webvtt = pytest.importorskip("webvtt")
    cues = list(webvtt.read(str(export(recording, "webvtt", tmp_path))))
    assert [cue.voice for cue in cues].count("User") == 2
    first, answer = cues[0], next(cue for cue in cues if cue.voice == "Agent")
    assert (first.text, first.start, first.end) == ("what is the time", "00:00:00.500", "00:00:01.500")
    assert answer.text.startswith("w0 w1 w2")
    assert answer.start == "00:00:02.080"


def test_text_that_looks_like_markup_stays_text(tmp_path: Path) -> None:
    webvtt = pytest.importorskip("webvtt")
    recorder = Recorder(tmp_path / "r")
    journal = recorder.open("s", 1, SessionConfig(), Abilities(), 24_000)
    said = " a <b>&amp; -->\n\n 00:01 --> \ud83d 你好"
    journal.event(CarrierAttached(), 0, None, 0)
    journal.event(EngineWords(FENCE, "r", (Word(said, 0, 48_000),)), 0, None, 0)
    journal.event(EngineAudio(FENCE, "r", 0, 48_000), 0, bytes(48_000), 24_000)
    journal.effects([AdmitFrame(FENCE, 0, "r", "i", 0, 48_000, 0, "r", 0)])
    journal.close("end")
    recorder.close()
    one = Recording(tmp_path / "r" / "s")
    cues = list(webvtt.read(str(export(one, "webvtt", tmp_path))))
    assert len(cues) == 1
    assert "&lt;b&gt;&amp;amp; --&gt;" in cues[0].raw_text
    labels = export(one, "audacity", tmp_path).read_text("utf-8")
    assert len(labels.splitlines()) == 1
    json.loads(export(one, "json", tmp_path).read_text("utf-8"))
    export(one, "mcap", tmp_path)
    export(one, "perfetto", tmp_path)


def test_labels_are_start_end_and_text(recording: Recording, tmp_path: Path) -> None:
    rows = [line.split("\t") for line in export(recording, "audacity", tmp_path).read_text("utf-8").splitlines()]
    assert all(len(row) == 3 for row in rows)
    assert all(0 <= float(start) <= float(end) for start, end, _ in rows)
    texts = {text: (float(start), float(end)) for start, end, text in rows}
    assert texts["user: what is the time"] in ((0.5, 1.5), (3.5, 4.0))
    assert texts["interruption 1 (barge_in), epoch 1"] == (3.52, 3.7)
    assert any(text.startswith("hold, no interruption") for text in texts)


def unknown(message: Any, path: str = "trace") -> list[str]:
    """Fields of a protobuf message that its published description does not have."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    found = [f"{path}.{field.field_number}" for field in UnknownFieldSet(message)]
    for field, value in message.ListFields():
        if field.message_type is not None:
            for one in value if hasattr(value, "add") else [value]:
                found += unknown(one, f"{path}.{field.name}")
    return found


def test_the_stereo_file_is_what_ffprobe_says_it_is(recording: Recording, tmp_path: Path) -> None:
    ffprobe = shutil.which("ffprobe")
    if ffprobe is None:
        pytest.skip("ffprobe is not installed")
    path = export(recording, "wav", tmp_path)
    wanted = ["-show_entries", "stream=codec_name,sample_rate,channels,duration_ts", "-of", "json", str(path)]
    told = subprocess.run([ffprobe, "-v", "error", *wanted], capture_output=True, text=True, check=True, timeout=120)
    (stream,) = json.loads(told.stdout)["streams"]
    assert (stream["codec_name"], stream["sample_rate"], stream["channels"]) == ("pcm_s16le", "24000", 2)
    assert stream["duration_ts"] == soundfile.info(str(path)).frames > 24_000


def test_the_trace_is_one_that_perfetto_reads(recording: Recording, tmp_path: Path) -> None:
    pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    trace = pb2.Trace()
    trace.ParseFromString(export(recording, "perfetto", tmp_path).read_bytes())
    assert unknown(trace) == []
    rows = {p.track_descriptor.uuid: p.track_descriptor.name for p in trace.packet if p.HasField("track_descriptor")}
    assert {"user says", "agent says", "agent heard", "holds", "epochs", "answers", "stages"} <= set(rows.values())
    events = [(packet.timestamp, packet.track_event) for packet in trace.packet if packet.HasField("track_event")]
    begin, end = pb2.TrackEvent.TYPE_SLICE_BEGIN, pb2.TrackEvent.TYPE_SLICE_END
    open_rows: dict[int, int] = {}
    for at, event in sorted(events, key=lambda pair: (pair[0], pair[1].type != end)):
        assert event.track_uuid in rows
        if event.type == begin:
            open_rows[event.track_uuid] = open_rows.get(event.track_uuid, 0) + 1
        elif event.type == end:
            open_rows[event.track_uuid] -= 1
        assert open_rows.get(event.track_uuid, 0) in (-1, 0, 1), at
    assert all(count == 0 for count in open_rows.values())
    cut = next(event for at, event in events if event.name == "interruption 1")
    assert {note.name for note in cut.debug_annotations} >= {"why", "heard", "cause"}
    counters = [event for _, event in events if event.type == pb2.TrackEvent.TYPE_COUNTER]
    assert {rows[event.track_uuid] for event in counters} == {"speech probability", "sent ahead of playback (ms)"}


def test_mcap_is_read_by_its_own_reader(recording: Recording, tmp_path: Path) -> None:
    reader_module = pytest.importorskip("mcap.reader")
    pcm: dict[str, list[bytes]] = {"/user/audio": [], "/agent/audio": []}
    events, kinds = 0, set()
    with export(recording, "mcap", tmp_path).open("rb") as file:
        reader = reader_module.make_reader(file)
        for schema, channel, message in reader.iter_messages():
            kinds.add((channel.topic, schema.name))
            content = json.loads(message.data)
            if channel.topic in pcm:
                assert (content["format"], content["sample_rate"]) == ("pcm-s16", 24_000)
                stamp = content["timestamp"]["sec"] * 1_000_000_000 + content["timestamp"]["nsec"]
                assert stamp == message.log_time
                pcm[channel.topic].append(base64.b64decode(content["data"]))
            events += channel.topic == "/events"
        (session,) = [one.metadata for one in reader.iter_metadata()]
    assert session["session"] == recording.manifest.session
    assert kinds == {
        ("/user/audio", "foxglove.RawAudio"),
        ("/agent/audio", "foxglove.RawAudio"),
        ("/speech", "talkover.Said"),
        ("/events", "talkover.Line"),
    }
    heard = recording.samples("agent_heard", 0, recording.tracks()["agent_heard"].length)
    agent = np.frombuffer(b"".join(pcm["/agent/audio"]), "<i2")
    assert np.array_equal(agent[: len(heard)], heard)
    assert events > 500


def test_the_document_holds_every_event_whole(recording: Recording, tmp_path: Path) -> None:
    whole = json.loads(export(recording, "json", tmp_path).read_text("utf-8"))
    assert whole["manifest"]["session"] == recording.manifest.session
    assert sum("event" in line for line in whole["events"]) == len(list(recording.steps()))
    assert all("type" in line["event"] for line in whole["events"] if "event" in line)
    assert whole["faults"] == []
    assert whole["account"]["interruptions"][0]["cause"] == "barge_in"


def test_what_the_agent_is_said_to_have_said_is_what_was_heard(recording: Recording) -> None:
    said = speech(recording)
    first = [one for one in said if one.side == "agent" and one.start < from_ms(3700)]
    words = [word for one in first for word in one.words]
    assert [word.text for word in words] == [f" w{number}" for number in range(len(words))]
    assert words[-1].end <= from_ms(3700)
    for word in words[:3]:
        assert word.end - word.start == TICK_RATE // 5


def test_the_command_line_knows_every_format() -> None:
    assert set(FORMATS) == {"wav", "webvtt", "audacity", "perfetto", "mcap", "json"}
