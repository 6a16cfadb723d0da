"""Moshi run again on a recorded session says the same, sample for sample; another one does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.families.moshi.engine import moshi_engine
from models.slots.engine import Policy
from sessions.codes_track import FILE, read_codes
from sessions.core.config import SessionConfig
from sessions.core.timeline import from_ms
from sessions.journal import Recorder
from sessions.manager import SessionManager
from sessions.recording.format import JournalError
from sessions.replay.reader import read_manifest
from sessions.replay.regenerate import Regenerated, regenerate
from sessions.virtual_clock import run
from tests.sessions.fakes import LoudnessPerception, NotebookCarrier
from tests.sessions.recordings import change_manifest, lines_of, rewrite
from tests.sessions.replay.talks import interrupted

from .test_engine import microphone, ticking


def talk(root: Path, policy: Policy) -> Path:
    """A session with an interruption; returns its folder."""

    async def scenario() -> None:
        async with ticking(policy) as engine:
            manager = SessionManager(engine, LoudnessPerception(), recorder=Recorder(root))
            handle = manager.open(NotebookCarrier(), SessionConfig())
            await microphone(handle, (0.8, False), (1.0, True), (0.9, False))
            await manager.close()

    run(scenario())
    (folder,) = root.iterdir()
    return folder


def again(folder: Path, policy: Policy) -> Regenerated:
    engine = moshi_engine(None, slots=1, policy=policy, worker=False)
    try:
        return regenerate(folder, engine)
    finally:
        engine.shutdown()


@pytest.mark.parametrize("policy", ["annotate", "rewind"])
def test_the_same_engine_says_the_same_through_an_interruption(policy: Policy, tmp_path: Path) -> None:
    result = again(talk(tmp_path, policy), policy)
    assert result.identical, result.difference
    assert result.frames > 25
    assert result.coded > 20


def test_another_code_is_told_with_its_codebook(tmp_path: Path) -> None:
    folder = talk(tmp_path, "rewind")
    track = folder / FILE
    body = bytearray(track.read_bytes())
    codec = read_codes(track).codec
    body[-codec.frame_bytes] ^= 0x80  # the first code of the last frame
    track.write_bytes(body)
    result = again(folder, "rewind")
    assert "the code of codebook 0 was" in result.difference


def test_what_the_engine_drew_from_is_in_the_manifest_and_another_is_refused(tmp_path: Path) -> None:
    folder = talk(tmp_path, "annotate")
    told = read_manifest(folder).engine
    assert told is not None
    assert told["policy"] == "annotate"
    assert isinstance(told["seed"], int)
    with pytest.raises(JournalError, match="policy 'annotate'"):
        again(folder, "keep")
    change_manifest(folder, engine={**told, "seed": 1})
    with pytest.raises(JournalError, match="seed 1"):
        again(folder, "annotate")


def test_another_seed_or_another_word_is_told_with_its_frame(tmp_path: Path) -> None:
    folder = talk(tmp_path, "keep")
    session = lines_of(folder)[1]["effects"][0]["fence"]["session"]
    lines = lines_of(folder)
    frames = [line["event"] for line in lines if line.get("event", {}).get("type") == "DuplexFrame"]
    frames[10]["text"] = "changed"
    rewrite(folder, lines)
    result = again(folder, "keep")
    assert result.frames == 10
    assert "frame 10" in result.difference
    assert "changed" in result.difference
    change_manifest(folder, session=f"{session}0", engine={})  # of which no seed is known
    assert not again(folder, "keep").identical


def test_an_engine_that_answers_text_is_not_run_again(tmp_path: Path) -> None:
    folder = interrupted(tmp_path)
    with pytest.raises(JournalError, match="answers text"):
        again(folder, "keep")


def test_a_frame_is_eighty_milliseconds() -> None:
    assert from_ms(80) == 3840
