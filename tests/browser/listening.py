"""What a recording of the page says: when there was sound, and which words of a text were heard in it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from models.perception.asr import TimedWord
from tests.bench.words import plain
from tests.speech import RATE as CLIP_RATE
from tests.speech import Clip, SetName, load

SILENCE = 100
"""Below this an int16 sample counts as silence: -50 dB. A muted gain gives 0."""
WINDOW_MS = 5
SHORTEST = 0.06
"""Seconds of sound without which no word was heard."""


def loud(pcm: NDArray[np.int16], rate: int, threshold: int = SILENCE) -> NDArray[np.bool_]:
    """For each window of 5 ms whether its peak is above `threshold`; shape [windows]."""
    window = rate * WINDOW_MS // 1000
    whole = pcm[: len(pcm) // window * window].astype(np.int32).reshape(-1, window)
    return np.asarray(np.abs(whole).max(axis=1, initial=0) > threshold)


def onset_after(pcm: NDArray[np.int16], rate: int, start: int, threshold: int = SILENCE) -> int | None:
    """The first sample from `start` on that is no silence, to 5 ms; None for none."""
    found = np.flatnonzero(loud(pcm[start:], rate, threshold))
    return start + int(found[0]) * (rate * WINDOW_MS // 1000) if len(found) else None


def end_before(pcm: NDArray[np.int16], rate: int, stop: int) -> int | None:
    """The sample after the last one before `stop` that is no silence, to 5 ms; None for none."""
    found = np.flatnonzero(loud(pcm[:stop], rate))
    return (int(found[-1]) + 1) * (rate * WINDOW_MS // 1000) if len(found) else None


def loud_between(pcm: NDArray[np.int16], rate: int, start: int, stop: int) -> float:
    """Milliseconds of sound in pcm[start:stop]."""
    return float(loud(pcm[start:stop], rate).sum() * WINDOW_MS)


def audible(pcm: NDArray[np.int16], rate: int, margin: float = 0.25) -> NDArray[np.int16]:
    """From the first sound to the last, with `margin` seconds around: long silence makes a recognizer dream."""
    first, last = onset_after(pcm, rate, 0), end_before(pcm, rate, len(pcm))
    if first is None or last is None:
        return pcm[:0]
    return pcm[max(0, first - round(margin * rate)) : last + round(margin * rate)]


def sounded(words: Sequence[TimedWord], pcm: NDArray[np.int16], rate: int) -> str:
    """The text of those words that a recognizer found in `pcm` that have sound there.

    A recognizer is a language model too: where a sentence is cut off it goes on with what is likely ("It was built" …
    "in 1930"), a word or a dozen. Read along the audio, such words begin at its end or behind it.
    """
    end = (end_before(pcm, rate, len(pcm)) or 0) / rate
    return "".join(word.text for word in words if word.start < end - SHORTEST)


def words_beyond(shown: str, heard: str) -> tuple[int, int]:
    """Where both texts end: (words that were shown and not heard, words that were heard and not shown).

    Words are aligned, so that a recognizer's other spelling in the middle does not count.
    """
    left, right = plain(shown).split(), plain(heard).split()
    blocks = difflib.SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks()
    last = blocks[-2] if len(blocks) > 1 else None
    if last is None:
        return len(left), len(right)
    return len(left) - (last.a + last.size), len(right) - (last.b + last.size)


def clip(kind: SetName, text: str) -> Clip:
    """The first clip of the test split of that set that says `text`."""
    return next(clip for clip in load(kind, "test") if clip.text == text)


def microphone_file(path: Path, clip: Clip, *, lead: float, tail: float) -> Path:
    """A WAV file as Chromium's microphone takes it, 48 kHz: room noise, the clip after `lead` seconds, noise again."""
    said = soxr.resample(clip.pcm.astype(np.float64) / 32768, CLIP_RATE, 48_000)
    whole = np.random.default_rng(7).normal(0, 2e-4, round((lead + tail) * 48_000) + len(said))
    start = round(lead * 48_000)
    whole[start : start + len(said)] += said
    soundfile.write(path, whole, 48_000, subtype="PCM_16")
    return path
