from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from models.perception.vad import WINDOW, SpeechDetector, SpeechState

from .speech import clips, hiss, model, silence

pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def detector() -> SpeechDetector:
    return SpeechDetector(model("silero-vad"))


def windows(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    return samples[: samples.size // WINDOW * WINDOW].reshape(-1, WINDOW)


def alone(detector: SpeechDetector, samples: NDArray[np.float32]) -> NDArray[np.float32]:
    state = SpeechState()
    return np.concatenate([detector.detect(window[None], [state]) for window in windows(samples)])


def test_speech_is_told_from_the_silence_and_the_hiss_around_it(detector: SpeechDetector) -> None:
    clip, _ = clips()["0880.flac"]
    heard = alone(detector, np.concatenate([silence(1), clip, silence(1)]))
    assert np.all(heard[:31] < 0.1)
    assert np.all(heard[-25:] < 0.15)
    assert np.mean(heard[40:118] > 0.5) > 0.9
    assert np.all(alone(detector, hiss(2.0, 0.01)) < 0.3)


def test_a_session_hears_the_same_in_a_batch_as_alone(detector: SpeechDetector) -> None:
    streams = [clip[: 80 * WINDOW] for clip, _ in clips().values()] + [hiss(80 * WINDOW / 16_000, 0.02)]
    states = [SpeechState() for _ in streams]
    together = np.stack([detector.detect(np.stack(step), states) for step in zip(*map(windows, streams), strict=True)])
    for number, stream in enumerate(streams):
        np.testing.assert_allclose(together[:, number], alone(detector, stream), atol=1e-5)


def test_a_session_that_joins_later_begins_afresh(detector: SpeechDetector) -> None:
    clip, _ = clips()["0930.flac"]
    first, second = SpeechState(), SpeechState()
    lone = alone(detector, clip[: 20 * WINDOW])
    heard = []
    for step, window in enumerate(windows(clip[: 40 * WINDOW])):
        if step < 20:
            detector.detect(window[None], [first])
        else:
            both = np.stack([window, windows(clip)[step - 20]])
            heard.append(detector.detect(both, [first, second])[1])
    np.testing.assert_allclose(heard, lone, atol=1e-5)
