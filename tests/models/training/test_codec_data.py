from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from codec.rvq.data import praat_pitch, read_source
from codec.rvq.synthesis import HOP, SAMPLE_RATE
from models.training import codec_data
from models.training.codec_data import _between, _clip, main


def test_pitch_between_voiced_hops_ignores_unvoiced_ones() -> None:
    pitch = np.array([0, 200, 100, 0, 0], np.float32)
    assert _between(pitch, np.array([0.0, 0.4, 0.6, 1.0, 1.5, 2.4, 2.6, 9.0])).tolist() == pytest.approx(
        [0, 0, 200, 200, 100 * 2**0.5, 100, 0, 0]
    )
    assert not _between(np.zeros(3, np.float32), np.array([0.0, 5.0])).any()


def test_a_clip_begins_and_ends_softly_and_knows_no_pitch_in_silence() -> None:
    pytest.importorskip("parselmouth")
    saw = 0.3 * (2 * (np.arange(SAMPLE_RATE) * 150 / SAMPLE_RATE % 1) - 1)
    wave = np.concatenate((np.zeros(SAMPLE_RATE // 2), saw, np.zeros(SAMPLE_RATE))).astype(np.float32)
    clip = _clip(wave, np.full(len(wave) // HOP, 150, np.float32), np.random.default_rng(0))
    assert len(clip.wave) == HOP * len(clip.pitch)
    assert SAMPLE_RATE < len(clip.wave) < 1.4 * SAMPLE_RATE
    assert np.abs(clip.wave[:3]).max() < 0.01
    assert 90 <= (clip.pitch > 0).sum() <= 104
    silent = _clip(np.zeros(SAMPLE_RATE, np.float32), np.zeros(100, np.float32), np.random.default_rng(0))
    assert len(silent.wave) == 0


@pytest.mark.parametrize("source", ["hibari", "shifted"])
def test_the_pitch_that_comes_with_a_voice_is_the_one_that_is_heard(source: str) -> None:
    pytest.importorskip("parselmouth")
    for clip in islice(codec_data.SOURCES[source](5), 2):
        assert len(clip.wave) == HOP * len(clip.pitch)
        heard = praat_pitch(clip.wave)
        both = (heard > 0) & (clip.pitch > 0)
        assert both.sum() > 30
        assert np.median(np.abs(1200 * np.log2(heard[both] / clip.pitch[both]))) < 25


def test_the_command_makes_as_much_as_was_asked_for(tmp_path: Path) -> None:
    pytest.importorskip("parselmouth")
    assert main([str(tmp_path), "hibari", "--minutes", "0.2"]) == 0
    source = read_source(tmp_path / "hibari.npz")
    assert 0.2 <= source.minutes < 0.5
    assert 0.3 < source.voiced.mean() < 0.8


def test_held_out_sentences_are_written_with_their_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec_data, "HELD_OUT", ("Hello there.", "Good night."))
    assert main([str(tmp_path), "held-out"]) == 0
    folder = tmp_path / "held-out"
    assert (folder / "sentences.tsv").read_text() == "00.wav\tHello there.\n01.wav\tGood night.\n"
    assert sorted(path.name for path in folder.glob("*.wav")) == ["00.wav", "01.wav"]
