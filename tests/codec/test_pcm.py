from __future__ import annotations

import numpy as np
import pytest

from codec import pcm


def test_bytes_become_samples_and_bytes_again() -> None:
    raw = bytes.fromhex("0000ff7f0080feff0100")
    samples = pcm.to_samples(raw)
    assert samples.tolist() == [0, 32767, -32768, -2, 1]
    assert pcm.to_bytes(samples) == raw


def test_half_a_sample_is_refused_with_the_length() -> None:
    with pytest.raises(ValueError, match="pcm has 3 bytes"):
        pcm.to_samples(b"abc")


def test_silence_has_the_asked_length() -> None:
    assert pcm.to_samples(pcm.silence(5)).tolist() == [0] * 5


def test_a_fade_in_rises_and_leaves_the_rest_alone() -> None:
    flat = np.full(100, 20000, dtype=np.int16)
    faded = pcm.fade_in(flat, 48)
    assert np.all(np.diff(faded[:48].astype(int)) > 0)
    assert faded[0] < 50
    assert np.array_equal(faded[48:], flat[48:])
    assert flat[0] == 20000


def test_a_fade_out_mirrors_a_fade_in() -> None:
    flat = np.full(100, -20000, dtype=np.int16)
    assert np.array_equal(pcm.fade_out(flat, 48), pcm.fade_in(flat, 48)[::-1])


@pytest.mark.parametrize("length", [0, 1, 500])
def test_a_fade_longer_or_shorter_than_the_audio_keeps_its_shape(length: int) -> None:
    samples = np.full(10, 1000, dtype=np.int16)
    for faded in (pcm.fade_in(samples, length), pcm.fade_out(samples, length)):
        assert faded.shape == samples.shape
        assert faded.dtype == np.int16
        assert np.all(np.abs(faded) <= 1000)


def test_full_scale_survives_a_fade() -> None:
    low = np.full(8, -32768, dtype=np.int16)
    assert pcm.fade_in(low, 4)[-1] == -32768
    assert np.all(pcm.fade_in(low, 4) <= 0)
