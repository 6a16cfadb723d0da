"""The embedded talker: hibari, an 8 MB English voice (24 kHz), with word times from its duration predictor.

The published graph maps phonemes to durations to a spectrum per 12.5 ms, but gives only the spectrum. Its durations
are added to the outputs here, so that word times are the synthesis' own and not an estimate from the sound.
"""

from __future__ import annotations

import hashlib
import json
import threading
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
from hibari import dsp
from hibari.g2p import G2P
from hibari.g2p.normalize import normalize

from sessions.core.timeline import Word, ticks_per_sample

from .clauses import ends_sentence
from .talker import Spoken, TalkerError
from .word_times import Stretch, align

RATE: int = dsp.SR
UNIT: int = 2 * dsp.HOP
"""Samples per duration unit: the predictor counts in 25 ms, two spectral frames."""

MODEL_SHA256 = "5f70741d4e900f4e85d0037498736cc1b3e1b9a63a13546a5da1e63abf4fccd8"
_DURATIONS = "/Cast_32_output_0"
"""Name of the rounded durations, int64 [phonemes], inside the graph that MODEL_SHA256 names."""

VOICES = ("default", "heart")
SPEEDS = (0.25, 2.0)

_QUIET = 10 ** (-50 / 20)
"""Full-scale amplitude below which the edge of a clause counts as silence."""
_LEAD = RATE * 10 // 1000
_FADE = RATE * 5 // 1000
_PAUSE_SENTENCE, _PAUSE_COMMA, _PAUSE_NONE = RATE * 260 // 1000, RATE * 140 // 1000, RATE * 15 // 1000
_EARLY = 3 * UNIT
"""How much sooner a word is heard than its duration says: speech runs ahead into the phoneme before.

Chosen by cutting 48 beginnings off 14 sentences halfway between two words and counting the words that a speech
recognizer hears: cut at the durations, 20 had the right number and 25 too many; 75 ms earlier 38 had the right number,
6 too few and 4 too many. The figures are of the sentences that the shift was chosen on.
"""
_MAX_PHONEMES = 400
"""Longer input than the voice was trained on is spoken in halves."""
_TICK = ticks_per_sample(RATE)

FloatArray = npt.NDArray[np.float32]


class HibariTalker:
    """Text clauses to 24 kHz PCM. One core speaks about a hundred times faster than real time.

    `assets`: the folder with `hibari.onnx` and `vocab.json`; None takes the one inside the installed package. Raises
    TalkerError where the model is not the one that this code was written for. Safe to use from several threads.
    """

    def __init__(self, assets: Path | None = None) -> None:
        folder = assets or Path(dsp.__file__).parent / "assets"
        path = folder / "hibari.onnx"
        try:
            graph = path.read_bytes()
            vocabulary = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
        except OSError as error:
            raise TalkerError("talker_missing", f"assets: {error}; install hibari-tts==0.2.1 again") from error
        digest = hashlib.sha256(graph).hexdigest()
        if digest != MODEL_SHA256:
            raise TalkerError(
                "talker_mismatch",
                f"assets: {path} has sha256 {digest[:12]}…, not {MODEL_SHA256[:12]}…; install hibari-tts==0.2.1",
            )
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._model = ort.InferenceSession(
            graph + extra_output(_DURATIONS), options, providers=["CPUExecutionProvider"]
        )
        self._vocabulary: dict[str, int] = vocabulary
        self._g2p = G2P()
        self._g2p_lock = threading.Lock()
        self.speak("Ready, set.")  # the first run allocates

    @property
    def voices(self) -> tuple[str, ...]:
        return VOICES

    @property
    def rate(self) -> int:
        return RATE

    def speak(self, text: str, *, voice: str = "default", speed: float = 1.0, first: bool = True) -> Spoken:
        """Synthesize one clause; see `Talker`. The same text sounds the same, bit for bit.

        Leading silence is cut to 10 ms. The pause at the end follows the punctuation, and shrinks with the speed.
        Raises TalkerError for an unknown voice or a speed outside 0.25..2.
        """
        if voice not in VOICES:
            raise TalkerError("unknown_voice", f"voice: {voice!r} is unknown; choose one of {', '.join(VOICES)}")
        if not SPEEDS[0] <= speed <= SPEEDS[1]:
            raise TalkerError("invalid_speed", f"speed: {speed} is outside {SPEEDS[0]}..{SPEEDS[1]}")
        written = text.split()
        ids, pronounced = self._pronounce(" ".join(written))
        if not pronounced:
            return Spoken(b"", ())
        if len(ids) > _MAX_PHONEMES and len(written) > 1:
            return self._speak_in_halves(written, voice, speed, first)
        samples, units = self._synthesize(ids, speed, zlib.crc32(text.encode()))
        starts = np.concatenate(([0], np.cumsum(units)))
        stretches = [Stretch(word.text, int(starts[word.start]), int(starts[word.end])) for word in pronounced]
        samples, cut, sounding = _trim(samples, int(_pause_after(written[-1]) / speed))
        words: list[Word] = []
        for word, (start, end) in zip(written, align(written, stretches), strict=True):
            lead = "" if first and not words else " "
            begin, stop = (min(max(0, at * UNIT - _EARLY - cut), sounding) * _TICK for at in (start, end))
            words.append(Word(lead + word, begin, stop))
        words[-1] = replace(words[-1], end=sounding * _TICK)
        pcm = (np.clip(samples, -1.0, 1.0) * 32767.0).astype("<i2").tobytes()
        return Spoken(pcm, tuple(words))

    def _pronounce(self, text: str) -> tuple[list[int], list[Stretch]]:
        """Phoneme ids with the pad at both ends, and each sounding word's place in them."""
        with self._g2p_lock:
            tokens = self._g2p.phonemize_tokens(self._g2p.tokenize(normalize(text)))
        ids = [0]
        words: list[Stretch] = []
        spelled, begin, end = "", 0, 0
        for token in tokens:
            spelled += token.text
            for symbol in token.phonemes or "":
                if symbol not in self._vocabulary:
                    continue
                if symbol.isalpha():
                    begin = begin or len(ids)
                    end = len(ids) + 1
                ids.append(self._vocabulary[symbol])
            if token.whitespace or token is tokens[-1]:
                if begin:
                    words.append(Stretch(spelled, begin, end))
                if token is not tokens[-1]:
                    ids.append(self._vocabulary[" "])
                spelled, begin = "", 0
        return [*ids, 0], words

    def _synthesize(self, ids: list[int], speed: float, seed: int) -> tuple[FloatArray, npt.NDArray[np.int64]]:
        """float32 samples in -1..1, and the duration of each phoneme in units of `UNIT` samples."""
        *spectrum, units = self._model.run(
            None, {"ids": np.asarray([ids], np.int64), "speed": np.asarray([speed], np.float32)}
        )
        samples = dsp.synth(*(part[0] for part in spectrum), np.random.default_rng(seed))
        units = units.reshape(-1)
        if len(units) != len(ids) or int(units.sum()) * UNIT != len(samples):
            raise TalkerError("talker_mismatch", "the voice's durations do not add up; install hibari-tts==0.2.1")
        return samples, units

    def _speak_in_halves(self, written: list[str], voice: str, speed: float, first: bool) -> Spoken:
        middle = len(written) // 2
        left = self.speak(" ".join(written[:middle]), voice=voice, speed=speed, first=first)
        right = self.speak(" ".join(written[middle:]), voice=voice, speed=speed, first=first and not left.words)
        shift = len(left.pcm) // 2 * _TICK
        moved = tuple(Word(word.text, word.start + shift, word.end + shift) for word in right.words)
        return Spoken(left.pcm + right.pcm, left.words + moved)


def extra_output(tensor: str) -> bytes:
    """Bytes that, appended to a serialized ONNX ModelProto, make the intermediate `tensor` an output of its graph.

    Protobuf merges repeated occurrences of a message field, so a second `graph` (field 7) that holds only an
    `output` (field 12) with a `name` (field 1) adds to the first. `tensor` must be shorter than 120 bytes in UTF-8.
    """
    encoded = b""
    for field in (1, 12, 7):
        payload = encoded or tensor.encode()
        if len(payload) > 127:
            raise ValueError(f"tensor: {tensor!r} is longer than a one-byte length allows")
        encoded = bytes([field << 3 | 2, len(payload)]) + payload
    return encoded


def _pause_after(word: str) -> int:
    if ends_sentence(word):
        return _PAUSE_SENTENCE
    return _PAUSE_NONE if word[-1].isalnum() else _PAUSE_COMMA


def _trim(samples: FloatArray, pause: int) -> tuple[FloatArray, int, int]:
    """The clause with 10 ms before it and `pause` samples after it, faded at both ends.

    Also: how many samples went in front, and how many of the kept ones sound.
    """
    loud = np.flatnonzero(np.abs(samples) > _QUIET)
    if not len(loud):
        return samples[:0], 0, 0
    start = max(0, int(loud[0]) - _LEAD)
    end = int(loud[-1]) + 1
    kept = np.zeros(end - start + max(pause, _FADE), np.float32)
    tail = samples[start : start + len(kept)]
    kept[: len(tail)] = tail
    ramp = np.linspace(0.0, 1.0, _FADE, dtype=np.float32)
    kept[:_FADE] *= ramp
    kept[-_FADE:] *= ramp[::-1]
    return kept, start, end - start
