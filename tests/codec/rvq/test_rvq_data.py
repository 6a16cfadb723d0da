from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from codec.rvq.data import (
    Clip,
    DataError,
    Source,
    TrainingSet,
    continuous,
    main,
    praat_pitch,
    read_source,
    read_wave,
    write_source,
)
from codec.rvq.model import DELAY
from codec.rvq.synthesis import FRAME, HOP, HOPS, SAMPLE_RATE

SECONDS = 12


def ramp_source() -> Source:
    """Every sample and every pitch says where it is from."""
    hops = SECONDS * SAMPLE_RATE // HOP
    wave = np.repeat(np.arange(hops), HOP).astype(np.int16)
    return Source(wave, (100 + np.arange(hops)).astype(np.float32), np.arange(hops) % 2 == 0)


def test_a_batch_is_a_stretch_with_its_target_two_hops_earlier() -> None:
    batch = TrainingSet({"ramp": ramp_source()}, {}, 0).draw(5, 3)
    assert batch.samples.shape == batch.target.shape == (5, 3 * FRAME)
    assert batch.pitch.shape == batch.voiced.shape == (5, 3 * HOPS + 1)
    for samples, target, pitch, voiced in zip(*batch, strict=True):
        first = int(pitch[0]) - 100
        assert np.array_equal(pitch, 100 + first + np.arange(3 * HOPS + 1))
        assert np.array_equal(voiced, (first + np.arange(3 * HOPS + 1)) % 2 == 0)
        gain = float(target[-1]) / (first + 3 * HOPS - 1)
        assert np.allclose(target[::HOP] / gain, first + np.arange(3 * HOPS), rtol=1e-4)
        assert np.array_equal(samples[: len(samples) - DELAY], target[DELAY:])
        assert float(samples.abs().max()) <= 0.9801
        assert gain * 32768 <= 10 ** (8 / 20) * 1.001


def test_the_same_seed_draws_the_same_and_goes_on_after_a_pause() -> None:
    first, second = (TrainingSet({"ramp": ramp_source()}, {}, 7) for _ in range(2))
    assert np.array_equal(first.draw(4, 2).pitch, second.draw(4, 2).pitch)
    position = first.position()
    expected = first.draw(4, 2).samples
    third = TrainingSet({"ramp": ramp_source()}, {}, 1)
    third.resume_at(position)
    assert np.array_equal(third.draw(4, 2).samples, expected)


def test_sources_are_drawn_by_their_shares() -> None:
    ramp = ramp_source()
    other = Source(ramp.wave, ramp.pitch + 5000, ramp.voiced)
    drawn = TrainingSet({"a": ramp, "b": other}, {"a": 0.9, "b": 0.1}, 0).draw(400, 1).pitch[:, 0] > 5000
    assert 0.05 < float(drawn.float().mean()) < 0.16


@pytest.mark.parametrize("shares", [{"c": 1.0}, {"a": 0.0}, {"a": -1.0}, {"a": float("nan")}])
def test_impossible_shares_are_refused(shares: dict[str, float]) -> None:
    with pytest.raises(DataError, match="shares"):
        TrainingSet({"a": ramp_source()}, shares, 0)


def test_a_source_goes_through_its_file_and_back(tmp_path: Path) -> None:
    chance = np.random.default_rng(0)
    wave = chance.uniform(-1.5, 1.5, 11 * SAMPLE_RATE + 100).astype(np.float32)
    pitch = np.zeros(len(wave) // HOP, np.float32)
    pitch[10:20] = 200.0
    written = write_source(tmp_path / "folder" / "noise.npz", [Clip(wave, pitch)] * 2)
    source = read_source(tmp_path / "folder" / "noise.npz")
    assert len(source.wave) % FRAME == 0
    assert len(source.wave) == HOP * len(source.pitch)
    assert np.array_equal(source.wave, written.wave)
    assert np.abs(source.wave[:1000] / 32767 - np.clip(wave[:1000], -1, 1)).max() < 1e-4
    assert source.voiced.sum() == 20
    assert TrainingSet.load(tmp_path / "folder", {}, 0).minutes == {"noise": pytest.approx(22.08 / 60)}


def test_pitch_runs_on_through_gaps_in_octaves() -> None:
    pitch, voiced = continuous(np.array([0, 100, 0, 400, 0], np.float32))
    assert pitch.tolist() == pytest.approx([100, 100, 200, 400, 400])
    assert voiced.tolist() == [False, True, False, True, False]
    nothing, silent = continuous(np.zeros(3, np.float32))
    assert (nothing > 0).all()
    assert not silent.any()


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"wave": np.zeros(480000, np.int16)}, "pitch"),
        ({"wave": np.zeros(480000), "pitch": np.zeros(2000, np.float32), "voiced": np.zeros(2000, bool)}, "int16"),
        ({"wave": np.zeros(480000, np.int16), "pitch": np.zeros(9, np.float32), "voiced": np.zeros(9, bool)}, "every"),
        ({"wave": np.zeros(2400, np.int16), "pitch": np.zeros(10, np.float32), "voiced": np.zeros(10, bool)}, "short"),
    ],
)
def test_a_file_that_is_no_source_is_refused(tmp_path: Path, arrays: dict[str, Any], reason: str) -> None:
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(DataError, match=reason):
        read_source(tmp_path / "x.npz")


def test_a_damaged_file_and_an_empty_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no \.npz"):
        TrainingSet.load(tmp_path, {}, 0)
    (tmp_path / "x.npz").write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(DataError, match=r"x\.npz"):
        TrainingSet.load(tmp_path, {}, 0)
    with pytest.raises(DataError, match="no audio"):
        write_source(tmp_path / "y.npz", [])


def test_sound_files_of_any_rate_are_read_as_mono(tmp_path: Path) -> None:
    tone = np.sin(2 * np.pi * 440 * np.arange(16_000) / 16_000)
    soundfile.write(tmp_path / "t.wav", np.stack([tone, tone], 1) * 0.5, 16_000)
    wave = read_wave(tmp_path / "t.wav")
    assert wave.shape == (24_000,)
    assert abs(float(np.abs(wave).max()) - 0.5) < 0.02
    (tmp_path / "u.wav").write_bytes(b"RIFF")
    for name in ("u.wav", "none.wav"):
        with pytest.raises(DataError, match=name):
            read_wave(tmp_path / name)


def test_praat_finds_the_pitch_of_a_sawtooth() -> None:
    pytest.importorskip("parselmouth")
    wave = (0.3 * (2 * ((np.arange(SAMPLE_RATE) * 150 / SAMPLE_RATE) % 1) - 1)).astype(np.float32)
    pitch = praat_pitch(wave)
    assert len(pitch) == 100
    assert np.abs(pitch[5:-5] - 150).max() < 1.0
    assert not praat_pitch(np.zeros(SAMPLE_RATE, np.float32)).any()
    assert praat_pitch(np.zeros(500, np.float32)).shape == (2,)


def test_the_command_makes_a_source_of_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("parselmouth")
    saw = 0.3 * (2 * ((np.arange(6 * SAMPLE_RATE) * 150 / SAMPLE_RATE) % 1) - 1)
    (tmp_path / "deep").mkdir()
    soundfile.write(tmp_path / "a.wav", saw, SAMPLE_RATE)
    soundfile.write(tmp_path / "deep" / "b.flac", saw, SAMPLE_RATE)
    assert main([str(tmp_path), str(tmp_path / "out.npz")]) == 0
    assert "0.2 min" in capsys.readouterr().out
    assert read_source(tmp_path / "out.npz").voiced.mean() > 0.9
    assert main([str(tmp_path / "deep" / "nothing"), str(tmp_path / "out2.npz")]) == 2
