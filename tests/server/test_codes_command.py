"""`server.codes_command`: a session whose voice travelled as codes, decoded again from its recording."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from codec.identity import CodecMismatch
from codec.rvq.checkpoint import load_checkpoint
from models.families.embedded.engine import EmbeddedEngine
from models.families.embedded.thinker import TextPiece
from models.families.embedded.voice_codec import VoiceCodec
from server.codes_command import codes, decoded
from sessions.codes_track import FILE, CodeSpan, CodesTrack, CodesTrackError, read_codes
from sessions.core.config import SessionConfig
from sessions.core.events import CarrierLost, ResponseCancel, ResponseCreate
from sessions.core.notices import Notice, ResponseClosed
from sessions.journal import Recorder
from sessions.manager import SessionManager
from sessions.ports import OutputFrame
from sessions.replay.reader import Recording
from sessions.replay.rerun import rerun
from tests.models.families.hearing import PATIENCE, Hummer, Reciter, shut
from tests.sessions.fakes import LoudnessPerception, NotebookCarrier

WORDS = "Eight words that are said in one breath. And after them some more, which nobody hears."


class Listener(NotebookCarrier):
    """Tells when a response is heard, and when one was heard to its end."""

    def __init__(self) -> None:
        super().__init__()
        self.heard, self.over = asyncio.Event(), asyncio.Event()

    def notify(self, notice: Notice) -> None:
        super().notify(notice)
        if isinstance(notice, ResponseClosed) and notice.response.status == "completed":
            self.over.set()

    def admit(self, *frames: OutputFrame) -> None:
        super().admit(*frames)
        self.heard.set()


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three responses through the shipped codec, of which two are cut off."""
    root = tmp_path_factory.mktemp("recordings")
    threads = torch.get_num_threads()
    engine = EmbeddedEngine(Reciter(TextPiece(WORDS)), Hummer(), codec=VoiceCodec.load(slots=2))

    async def session() -> None:
        recorder = Recorder(root)
        manager = SessionManager(engine, LoudnessPerception(), recorder=recorder)
        carrier = Listener()
        handle = manager.open(carrier, SessionConfig())
        for number in range(3):
            carrier.heard.clear()
            handle.post(ResponseCreate())
            await asyncio.wait_for(carrier.heard.wait(), PATIENCE)
            if number < 2:
                handle.post(ResponseCancel())
        await asyncio.wait_for(carrier.over.wait(), PATIENCE)
        handle.post(CarrierLost("gone"))
        await handle.closed()
        await manager.close()
        recorder.close()
        assert recorder.faults == 0

    try:
        with shut(engine):
            asyncio.run(session())
    finally:
        torch.set_num_threads(threads)
    (folder,) = root.iterdir()
    return folder


def test_a_recording_holds_the_codes_of_all_that_was_generated_and_they_give_its_samples(recording: Path) -> None:
    recorded = read_codes(recording / FILE)
    assert recorded.whole
    assert len(recorded.streams) >= 4
    with contextlib.closing(Recording(recording)) as session:
        track = session.tracks()["agent_generated"]
        generated = session.samples("agent_generated", 0, track.length)
    assert generated.any()
    assert recorded.end == track.length
    pieces = sorted((piece for stream in recorded.streams for piece in stream.pieces), key=lambda piece: piece.at)
    assert [piece.at for piece in pieces] == [0, *(piece.at + piece.length for piece in pieces[:-1])]
    heard = np.frombuffer(decoded(recorded, load_checkpoint()), "<i2").astype(int)
    # In a batch of another size numbers are rounded otherwise: at most one step of 16 bits.
    assert np.abs(heard - generated).max() <= 1


def test_the_manifest_names_the_codec_and_the_recording_replays(recording: Path) -> None:
    told = json.loads((recording / "manifest.json").read_text())["tracks"]["agent_codes"]
    assert told == {
        "file": FILE,
        "name": "talkover-rvq",
        "version": "1",
        "sample_rate": 24_000,
        "hop": 1920,
        "codebooks": 16,
        "codebook_size": 1024,
    }
    assert rerun(recording).difference is None


def test_the_command_tells_what_there_is_and_writes_what_it_decodes(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "said.wav"
    assert codes(recording=recording, out=out, as_json=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["codec"]["name"] == "talkover-rvq"
    assert 2_000 <= told["bits_per_second"] < 3_500
    assert out.stat().st_size == 44 + 2 * read_codes(recording / FILE).end // 2
    assert codes(recording=recording / FILE, out=None, as_json=False) == 0
    assert "16 codebooks of 1024" in capsys.readouterr().out


def test_a_file_that_cannot_be_written_is_named(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert codes(recording=recording, out=tmp_path / "none" / "said.wav", as_json=False) == 1
    assert "said.wav cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize("content", [None, b"", b"talkover codes 1\n{}\n"])
def test_what_holds_no_codes_is_refused(
    content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / FILE).write_bytes(content)
    assert codes(recording=tmp_path, out=None, as_json=False) == 1
    assert capsys.readouterr().err.startswith("talkover codes: ")


def test_codes_of_another_codec_and_places_that_cannot_be_are_not_decoded(recording: Path, tmp_path: Path) -> None:
    recorded, checkpoint = read_codes(recording / FILE), load_checkpoint()
    with pytest.raises(CodecMismatch, match="version"):
        decoded(replace(recorded, codec=replace(recorded.codec, version="2")), checkpoint)
    for at, offset in ((1 << 50, 960), (0, 0)):
        track = CodesTrack(tmp_path / FILE, recorded.codec)
        track.write(at, 960, CodeSpan(recorded.codec, 1, offset, 0, ((0,) * 16,)))
        track.close()
        with pytest.raises(CodesTrackError):
            decoded(read_codes(tmp_path / FILE), checkpoint)
