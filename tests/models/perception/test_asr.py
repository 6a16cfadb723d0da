from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import jiwer
import numpy as np
import pytest

from models.perception.asr import _BYTES, LONGEST, LanguageUnsupported, Recognizer, _pieces
from sessions.core.timeline import Token

from .speech import Samples, clips, hiss, model, plain, silence


def test_a_short_utterance_is_one_piece() -> None:
    assert _pieces(silence(28)) == [(0, LONGEST)]
    assert _pieces(silence(0)) == [(0, 0)]


def test_a_long_utterance_is_cut_at_its_quietest_place_and_nothing_is_left_out() -> None:
    samples = hiss(70, 0.1)
    quiet = 25 * 16_000 + 333
    samples[quiet : quiet + 800] = 0
    pieces = _pieces(samples)
    assert pieces[0][0] == 0
    assert quiet <= pieces[0][1] <= quiet + 800
    assert pieces[-1][1] == samples.size
    assert all(before[1] == after[0] for before, after in pairwise(pieces))
    assert all(0 < end - start <= LONGEST for start, end in pieces)


@pytest.fixture(scope="module")
def recognizer() -> Iterator[Recognizer]:
    recognizer = Recognizer(model("whisper-base"))
    yield recognizer
    recognizer.unload()


@pytest.mark.models
def test_read_sentences_are_written_down_with_few_wrong_words(recognizer: Recognizer) -> None:
    said = [plain(text) for _, text in clips().values()]
    written = [plain(recognizer.recognize(clip).text) for clip, _ in clips().values()]
    assert jiwer.wer(said, written) <= 0.10


@pytest.mark.models
def test_more_than_thirty_seconds_are_written_down_whole(recognizer: Recognizer) -> None:
    pause = silence(0.3)
    samples = np.concatenate([part for _ in range(2) for clip, _ in clips().values() for part in (clip, pause)])
    assert samples.size > LONGEST
    said = " ".join([plain(text) for _, text in clips().values()] * 2)
    assert jiwer.wer(said, plain(recognizer.recognize(samples).text)) <= 0.10


@pytest.mark.models
def test_words_join_to_the_text_and_their_times_grow_within_the_utterance(recognizer: Recognizer) -> None:
    clip, _ = clips()["0920.flac"]
    heard = recognizer.recognize(clip, times=True)
    assert "".join(word.text for word in heard.words) == heard.text
    times = [moment for word in heard.words for moment in (word.start, word.end)]
    assert times == sorted(times)
    assert times[-1] <= clip.size / 16_000


@pytest.mark.models
def test_tokens_join_to_the_text_and_say_how_sure_the_model_is(recognizer: Recognizer) -> None:
    clip, _ = clips()["0920.flac"]
    clear = recognizer.recognize(clip, times=True)
    assert b"".join(bytes(token.raw) for token in clear.tokens).decode().strip() == clear.text
    assert all(token.logprob <= 0 for token in clear.tokens)
    noisy = recognizer.recognize(clip + hiss(clip.size / 16_000, 0.15)[: clip.size], times=True)

    def mean(tokens: Sequence[Token]) -> float:
        return sum(token.logprob for token in tokens) / len(tokens)

    assert mean(noisy.tokens) < mean(clear.tokens)
    assert recognizer.recognize(clip).tokens == ()


def test_the_letters_of_a_byte_level_vocabulary_are_all_bytes_once() -> None:
    assert sorted(_BYTES.values()) == list(range(256))
    assert (_BYTES["A"], _BYTES["\u0120"], _BYTES["\u010a"]) == (65, 32, 10)


@pytest.mark.models
def test_a_word_is_timed_where_it_is_said(recognizer: Recognizer) -> None:
    before, clip = clips()["0930.flac"][0], clips()["0880.flac"][0]

    def onset(samples: Samples) -> float:
        return next(word.start for word in recognizer.recognize(samples, times=True).words if "young" in word.text)

    later = onset(np.concatenate([before, silence(1.0), clip])) - onset(clip)
    assert later == pytest.approx(before.size / 16_000 + 1.0, abs=0.15)


@pytest.mark.models
@pytest.mark.parametrize("seconds", [0.0, 0.04, 0.4, 3.0])
def test_silence_is_not_words(recognizer: Recognizer, seconds: float) -> None:
    assert recognizer.recognize(silence(seconds), times=True).text == ""


@pytest.mark.models
@pytest.mark.parametrize("level", [0.001, 0.03])
def test_hiss_is_not_words(recognizer: Recognizer, level: float) -> None:
    assert recognizer.recognize(hiss(2.0, level)).text == ""


@pytest.mark.models
def test_a_short_word_is_not_repeated(recognizer: Recognizer) -> None:
    clip, _ = clips()["0930.flac"]
    heard = plain(recognizer.recognize(np.concatenate([silence(0.1), clip[3000:9000], silence(0.2)])).text).split()
    assert len(heard) == len(set(heard))


@pytest.mark.models
def test_a_language_may_carry_a_region_and_an_unknown_one_is_refused(recognizer: Recognizer) -> None:
    assert {"en", "de", "zh"} <= set(recognizer.languages)
    clip, _ = clips()["0880.flac"]
    assert recognizer.recognize(clip, "en-US") == recognizer.recognize(clip, "en")
    with pytest.raises(LanguageUnsupported, match=r"language 'tlh' is not one .*: en, zh, de"):
        recognizer.recognize(clip, "tlh")


@pytest.mark.models
def test_the_light_english_model_is_read_the_same_way() -> None:
    light = Recognizer(model("whisper-tiny-en"))
    assert light.languages == ("en",)
    said = [plain(text) for _, text in clips().values()]
    written = [plain(light.recognize(clip, times=True).text) for clip, _ in clips().values()]
    light.unload()
    assert jiwer.wer(said, written) <= 0.15
