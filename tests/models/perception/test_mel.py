"""`models.perception.mel` against features that another implementation made.

`mel_golden.npz` was made by transformers 5.24.0 (numpy path) from `signal()`:

    extractor = WhisperFeatureExtractor(feature_size=80)
    features = lambda **more: extractor(
        signal(), sampling_rate=16000, padding=False, return_tensors="np", **more
    )["input_features"][0]
    np.savez_compressed("mel_golden.npz", plain=features(), normalized=features(do_normalize=True))
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from models.perception.mel import BANDS, HOP, log_mel, normalize

GOLDEN = np.load(Path(__file__).with_name("mel_golden.npz"))


def signal() -> NDArray[np.float32]:
    """Half a second: a sweep over the whole band, hum and noise, the first 100 ms nearly silent."""
    n = np.arange(8000, dtype=np.int64)
    t = n / 16000
    noise = ((n * 1103515245 + 12345) % 65536) / 65536 - 0.5
    sweep = np.sin(2 * np.pi * (100 * t + 7000 * t * t))
    return (0.3 * sweep * (t > 0.1) + 0.02 * noise + 0.05 * np.sin(2 * np.pi * 60 * t)).astype(np.float32)


def test_features_equal_those_of_the_reference_front_end() -> None:
    np.testing.assert_allclose(log_mel(signal()), GOLDEN["plain"], atol=2e-5)


def test_features_of_a_normalized_signal_equal_those_of_the_reference_front_end() -> None:
    np.testing.assert_allclose(log_mel(normalize(signal())), GOLDEN["normalized"], atol=1e-4)


def test_a_frame_is_given_for_every_whole_hop() -> None:
    assert log_mel(np.zeros(5 * HOP + HOP - 1, np.float32)).shape == (BANDS, 5)


def test_more_frames_than_one_block_are_the_same_frames() -> None:
    # The level is the same in both halves, so the floor is too, and frames away from the seam must agree.
    once = signal()
    twice = np.concatenate([once] * 8)
    frames = once.size // HOP
    features = log_mel(twice)
    for copy in range(8):
        np.testing.assert_allclose(
            features[:, copy * frames + 2 : (copy + 1) * frames - 2], log_mel(once)[:, 2:-2], atol=1e-5
        )


def test_silence_is_flat_and_finite() -> None:
    features = log_mel(np.zeros(1600, np.float32))
    assert np.all(features == features[0, 0])
    assert np.isfinite(features).all()


def test_normalized_silence_is_silence() -> None:
    assert np.all(normalize(np.zeros(100, np.float32)) == 0)


@pytest.mark.parametrize("shape", [(0,), (200,), (2, 800)])
def test_what_has_no_frame_is_refused_with_its_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"samples: shape .* need \[N\] with N > 200"):
        log_mel(np.zeros(shape, np.float32))
