"""Whisper, decoded on short windows: the utterance and a little silence, not thirty seconds.

Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision". The encoder's cost is that of its window,
so a two-second utterance takes a tenth of what the usual padding to 30 s takes. The model was not trained on short
windows, and three things make it read them well:

* The decoder sees more silence than was encoded: behind the encoded window stand encoder states of plain silence,
  computed once. With nothing but a short window before it, the decoder goes on to invent what might follow.
* It is asked for timestamps, which make it say where the speech ends. Without them, short utterances come twice
  ("stop stop stop").
* Length is bounded by what can be said in the time, and trigrams are not repeated. (Whoever says one sentence twice
  over is written down once; the model does that with its full window too.)

On the commands of `tests/speech` (tune split, 18 clips of 0.3 to 2 s) that takes the word error rate from 0.67 to 0.19
at the same cost; a full 30 s window, at ten times the cost, has 0.07.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import ctranslate2
import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from sessions.core.timeline import Token

from .mel import HOP, SAMPLE_RATE, log_mel

PADDING: int = 2 * SAMPLE_RATE
"""Silence that is encoded after the utterance: with 1 s a third more words are wrong, 4 s gain no more."""

HORIZON: int = 10 * SAMPLE_RATE
"""The decoder sees silence up to here, or to the end of a longer window. More of it costs decoding time."""

LONGEST: int = 28 * SAMPLE_RATE
"""Longest piece that is decoded at once; with its padding it fits the 30 s that the model has positions for."""

_SEARCH = 6 * SAMPLE_RATE
"""How far back from the longest piece's end the quietest place to cut is looked for."""
_ENERGY_FRAME = SAMPLE_RATE // 50
_SHORTEST = SAMPLE_RATE // 20
"""Less than this is not worth asking about; nothing can be said in 50 ms."""
_FRAME_SECONDS = 0.02
"""One encoder position."""
_EDGE_SECONDS = 0.1
"""Timestamps are about this exact."""
_STEP = 2 * HOP
"""The encoder halves its input, so the number of 10 ms frames must be even."""

# Fast English speech is five tokens a second with its punctuation; a loop is to end soon after.
_TOKENS = 8
_TOKENS_PER_SECOND = 6

# Nobody says more than this, but a hum can make the model think so ("mm-hmm" became a sentence of ten words).
_MOST_TOKENS = 3
_MOST_TOKENS_PER_SECOND = 7

# Whisper's own rule (section 4.5 of the paper): not speech if it says so and is also unsure of what it wrote.
# Coughs, knocks and sighs (tune split) give 0.65..0.88 and -1.4..-1.9; spoken words at most 0.53, hums up to 0.60.
_NO_SPEECH = 0.6
_UNSURE = -1.0


_IMPOSSIBLE = 1e-10
"""A probability that was rounded to 0 has no logarithm."""


def _letters() -> dict[str, int]:
    """The byte of each letter of a byte-level vocabulary (Radford et al., GPT-2): a printable one is itself, the others
    follow from U+0100 on, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): byte for byte in printable}
    return letters | {chr(0x100 + place): byte for place, byte in enumerate(others)}


_BYTES = _letters()


class LanguageUnsupported(ValueError):
    """The model does not know the language."""


@dataclass(frozen=True, slots=True)
class TimedWord:
    """A word with its leading space, and seconds from the start of the samples."""

    text: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Recognition:
    """What was said; empty text where nothing was. `words` and `tokens` are empty unless times were asked for.

    `tokens` joined are the text, but for its leading space.
    """

    text: str
    words: tuple[TimedWord, ...] = ()
    tokens: tuple[Token, ...] = ()


class Recognizer:
    """One Whisper model. `recognize` may be called from `workers` threads at once."""

    def __init__(self, directory: Path, *, workers: int = 1) -> None:
        """`directory` holds a CTranslate2 Whisper model and its `tokenizer.json`."""
        # One thread per utterance: decoding is a chain of small products in which two threads mostly wait for each
        # other (2 s utterance: 0.13 s with one, 0.14 s with two), and the second core has others to serve.
        self._model = ctranslate2.models.Whisper(
            str(directory), device="cpu", compute_type="int8", intra_threads=1, inter_threads=workers
        )
        self._tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        self._end = self._token("<|endoftext|>")
        self._plain = self._token("<|notimestamps|>")
        """Timestamps are the tokens after this one."""
        self._multilingual = bool(self._model.is_multilingual)
        first, last = self._token("<|startoftranscript|>") + 1, self._token("<|translate|>")
        names = (self._tokenizer.id_to_token(token) or "" for token in range(first, last))
        self.languages: tuple[str, ...] = tuple(name.strip("<|>") for name in names) if self._multilingual else ("en",)
        """ISO 639-1 codes (where there is none, 639-3)."""
        self._silence = np.array(self._encode(np.zeros(HORIZON, np.float32)))
        """Encoder states of silence, float32 [1, 500, d], by position."""

    def recognize(self, samples: NDArray[np.float32], language: str = "en", *, times: bool = False) -> Recognition:
        """What is said in `samples`, float32 [N] in -1..1 at 16 kHz, of any length.

        `language` is a code such as "en" or "en-US". `times` adds word times and tokens, for a tenth more work: the
        text is read once more along the audio, which tells both. Raises LanguageUnsupported.
        """
        prompt = self._prompt(language)
        texts: list[str] = []
        words: list[TimedWord] = []
        tokens: list[Token] = []
        for start, end in _pieces(samples):
            piece = self._piece(samples[start:end], prompt, times)
            texts.append(piece.text)
            tokens += piece.tokens
            shift = start / SAMPLE_RATE
            words += [TimedWord(word.text, word.start + shift, word.end + shift) for word in piece.words]
        if words:  # the words of a transcript join to its text, which begins with no space
            words[0] = TimedWord(words[0].text.lstrip(), words[0].start, words[0].end)
        return Recognition("".join(texts).strip(), tuple(words), tuple(tokens))

    def unload(self) -> None:
        """Free the model; its threads must have ended before the interpreter does."""
        self._model.unload_model()

    def _token(self, text: str) -> int:
        token = self._tokenizer.token_to_id(text)
        if token is None:
            raise ValueError(f"tokenizer.json has no token {text}; it does not belong to a Whisper model")
        return int(token)

    def _prompt(self, language: str) -> list[int]:
        code = re.split(r"[-_]", language.strip().lower())[0]
        if code not in self.languages:
            known = ", ".join(self.languages)
            raise LanguageUnsupported(f"language {language!r} is not one that this recognizer knows: {known}")
        begin = self._token("<|startoftranscript|>")
        return [begin, self._token(f"<|{code}|>"), self._token("<|transcribe|>")] if self._multilingual else [begin]

    def _encode(self, padded: NDArray[np.float32]) -> ctranslate2.StorageView:
        """Encoder states [1, N // 320, d] of [N] samples, N a multiple of 320."""
        features = log_mel(padded)
        return self._model.encode(ctranslate2.StorageView.from_array(features[None]), to_cpu=True)

    def _piece(self, samples: NDArray[np.float32], prompt: list[int], times: bool) -> Recognition:
        if samples.size < _SHORTEST:
            return Recognition("")
        seconds = samples.size / SAMPLE_RATE
        padded = np.zeros(-(-(samples.size + PADDING) // _STEP) * _STEP, np.float32)
        padded[: samples.size] = samples
        states = np.array(self._encode(padded))
        seen = np.concatenate([states, self._silence[:, states.shape[1] :]], axis=1)
        encoded = ctranslate2.StorageView.from_array(seen)
        (result,) = self._model.generate(
            encoded,
            [prompt],
            beam_size=1,
            # CTranslate2 gives new tokens half of this, as Whisper does with its context.
            max_length=2 * int(_TOKENS + _TOKENS_PER_SECOND * seconds),
            no_repeat_ngram_size=3,
            return_scores=True,
            return_no_speech_prob=True,
        )
        tokens = self._spoken(result.sequences_ids[0], seconds)
        unsure = result.scores[0] < _UNSURE
        if unsure and result.no_speech_prob > _NO_SPEECH:
            return Recognition("")
        if unsure and len(tokens) > _MOST_TOKENS + _MOST_TOKENS_PER_SECOND * seconds:
            return Recognition("")
        text = self._tokenizer.decode(tokens)
        if not times or not tokens:
            return Recognition(text)
        (alignment,) = self._model.align(encoded, [*prompt, self._plain], [tokens], padded.size // HOP)
        words = self._words(tokens, alignment.alignments, seconds)
        return Recognition(text, words, self._told(tokens, alignment.text_token_probs))

    def _spoken(self, decoded: Sequence[int], seconds: float) -> list[int]:
        """The text tokens of the segments that begin before the utterance ends; what begins later is invented."""
        tokens: list[int] = []
        for token in decoded:
            if token > self._plain:
                if tokens and (token - self._plain - 1) * _FRAME_SECONDS >= seconds - _EDGE_SECONDS:
                    break
            elif token < self._end:
                tokens.append(token)
        return tokens

    def _told(self, tokens: Sequence[int], probabilities: Sequence[float]) -> tuple[Token, ...]:
        told: list[Token] = []
        for token, probability in zip(tokens, probabilities, strict=True):
            raw = bytes(_BYTES[letter] for letter in self._tokenizer.id_to_token(token) or "")
            logprob = round(math.log(max(probability, _IMPOSSIBLE)), 4)
            told.append(Token(raw.decode("utf-8", "replace"), tuple(raw), logprob))
        return tuple(told)

    def _words(
        self, tokens: Sequence[int], alignments: Sequence[tuple[int, int]], seconds: float
    ) -> tuple[TimedWord, ...]:
        """Joins tokens to words; a token lasts from its own first frame to that of the next."""
        onsets: list[float] = [seconds] * (len(tokens) + 1)
        for token, frame in reversed(alignments):
            if token < len(onsets):
                onsets[token] = min(seconds, frame * _FRAME_SECONDS)
        words: list[TimedWord] = []
        begun = 0
        for index in range(1, len(tokens) + 1):
            # Byte-level tokens may split a character, so a run of tokens is decoded as a whole.
            if index < len(tokens) and not self._tokenizer.decode([tokens[index]]).startswith(" "):
                continue
            text = self._tokenizer.decode(list(tokens[begun:index]))
            words.append(TimedWord(text, onsets[begun], max(onsets[begun], onsets[index])))
            begun = index
        return tuple(words)


def _pieces(samples: NDArray[np.float32]) -> list[tuple[int, int]]:
    """Cuts [N] into stretches of at most `LONGEST`, each at the quietest 20 ms near its end."""
    pieces: list[tuple[int, int]] = []
    start = 0
    while samples.size - start > LONGEST:
        first = start + LONGEST - _SEARCH
        frames = samples[first : start + LONGEST].reshape(-1, _ENERGY_FRAME)
        quietest = int(np.argmin(np.square(frames).sum(axis=1)))
        cut = first + quietest * _ENERGY_FRAME + _ENERGY_FRAME // 2
        pieces.append((start, cut))
        start = cut
    pieces.append((start, samples.size))
    return pieces
