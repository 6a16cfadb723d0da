from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from codec.rvq import evaluate
from codec.rvq.checkpoint import Checkpoint, save_checkpoint
from codec.rvq.evaluate import (
    EvaluationError,
    copy_of,
    cost,
    log_mel_distance,
    main,
    perplexity,
    pesq_wide_band,
    pitch_error,
    quality,
    stoi,
)
from codec.rvq.model import DELAY
from codec.rvq.synthesis import FRAME, SAMPLE_RATE
from tests.codec.rvq.tiny import tiny_checkpoint

SECONDS = 2


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return tiny_checkpoint()


def vowels(pitch: float, seed: int = 0) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """A sawtooth that comes and goes, with a little noise: enough like speech to be measured."""
    at = np.arange(SECONDS * SAMPLE_RATE)
    saw = 2 * (at * pitch / SAMPLE_RATE % 1) - 1
    swell = 0.5 - 0.5 * np.cos(2 * np.pi * 3 * at / SAMPLE_RATE)
    return (0.3 * swell * saw + 0.001 * np.random.default_rng(seed).standard_normal(len(at))).astype(np.float32)


def test_a_copy_lies_where_the_original_does(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """With codes that are the samples themselves, given out DELAY later, the copy is the original."""

    class Passing:
        held = np.zeros(DELAY, np.float32)

        def __init__(self, *_: object, **__: object) -> None:
            pass

        def encode(self, pcm: np.ndarray, run: object, reset: object) -> np.ndarray:
            return pcm

        def decode(self, codes: np.ndarray, run: object, reset: object) -> np.ndarray:
            joined = np.concatenate((self.held, codes[0]))
            self.held = joined[FRAME:]
            return joined[None, :FRAME]

    monkeypatch.setattr(evaluate, "StreamingRvqEncoder", Passing)
    monkeypatch.setattr(evaluate, "StreamingRvqDecoder", Passing)
    for length in (FRAME, FRAME - DELAY, FRAME - DELAY + 1, 5000):
        wave = np.random.default_rng(0).standard_normal(length).astype(np.float32)
        copy, _ = copy_of(checkpoint, wave, 4)
        assert np.array_equal(copy, wave)


def test_a_copy_is_as_long_as_the_original_and_one_row_of_codes_per_frame(checkpoint: Checkpoint) -> None:
    copy, codes = copy_of(checkpoint, vowels(150)[: 3 * FRAME], 2)
    assert copy.shape == (3 * FRAME,)
    assert codes.shape == (4, 2)


def test_the_same_sound_has_the_best_scores() -> None:
    pytest.importorskip("pesq")
    pytest.importorskip("pystoi")
    pytest.importorskip("parselmouth")
    wave = vowels(150)
    assert pesq_wide_band(wave, wave) > 4.6
    assert stoi(wave, wave) > 0.99
    assert log_mel_distance(wave, wave) == 0.0
    assert pitch_error(wave, wave) == (0.0, 0.0, 0.0)


def test_a_worse_sound_has_worse_scores() -> None:
    pytest.importorskip("pesq")
    pytest.importorskip("pystoi")
    wave = vowels(150)
    noise = (0.1 * np.random.default_rng(1).standard_normal(len(wave))).astype(np.float32)
    assert pesq_wide_band(wave, wave + noise) < 3.0
    assert stoi(wave, noise) < 0.6
    assert log_mel_distance(wave, wave + noise) > 0.5
    assert log_mel_distance(wave, 0.5 * wave) == pytest.approx(0.69, abs=0.06)


def test_a_semitone_is_a_hundred_cents() -> None:
    pytest.importorskip("parselmouth")
    error = pitch_error(vowels(150), vowels(150 * 2 ** (1 / 12) * 1.001))
    assert error.cents == pytest.approx(101.7, abs=3)
    assert error.wrong > 0.5
    silence = pitch_error(vowels(150), np.zeros(SECONDS * SAMPLE_RATE, np.float32))
    assert silence.voicing > 0.5
    assert silence.cents == 0.0


def test_perplexity_counts_entries_in_even_use() -> None:
    codes = np.stack([np.arange(64) % 8, np.zeros(64, np.int64), np.arange(64) % 2], 1)
    assert perplexity(codes, 16).tolist() == pytest.approx([8.0, 1.0, 2.0])


def test_a_set_is_measured_by_its_means(checkpoint: Checkpoint) -> None:
    for package in ("pesq", "pystoi", "parselmouth"):
        pytest.importorskip(package)
    waves = [vowels(120), vowels(180)]
    measured, copies = quality(checkpoint, waves, 3)
    assert measured.codebooks == 3
    assert len(measured.perplexity) == 3
    assert [len(copy) for copy in copies] == [len(wave) for wave in waves]
    expected = np.mean([log_mel_distance(wave, copy) for wave, copy in zip(waves, copies, strict=True)])
    assert measured.log_mel == pytest.approx(expected)
    with pytest.raises(EvaluationError, match="no clip"):
        quality(checkpoint, [], 3)


def test_the_cost_of_a_frame_is_counted_per_step(checkpoint: Checkpoint) -> None:
    spent = cost(checkpoint, 2, 4, frames=3)
    assert (spent.slots, spent.codebooks) == (2, 4)
    assert 0 < spent.encode <= spent.encode_p90
    assert 0 < spent.decode <= spent.decode_p90


def test_the_command_measures_a_folder_and_writes_copies(
    checkpoint: Checkpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for package in ("pesq", "pystoi", "parselmouth"):
        pytest.importorskip(package)
    weights = tmp_path / "w.safetensors"
    save_checkpoint(weights, checkpoint.codec, "1")
    (tmp_path / "in").mkdir()
    soundfile.write(tmp_path / "in" / "a.wav", vowels(150), SAMPLE_RATE)
    options = ["--checkpoint", str(weights), "--codebooks", "4", "2", "--write", str(tmp_path / "out")]
    assert main([str(tmp_path / "in"), *options]) == 0
    shown = capsys.readouterr().out
    assert shown.count("PESQ-WB") == 2
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a-2.wav", "a-4.wav"]
    assert main([str(tmp_path / "none"), *options]) == 2
    assert main(["--cost", "--checkpoint", str(tmp_path / "none")]) == 2
    assert "install the package again" in capsys.readouterr().err
