"""`models.families.embedded.talker_hibari`, with the real voice."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from models.families.embedded.talker import Spoken, TalkerError
from models.families.embedded.talker_hibari import HibariTalker, extra_output
from sessions.core.timeline import TICK_RATE, from_ms

pytestmark = pytest.mark.models

AUDIBLE = 104
"""int16 amplitude of -50 dB."""


@pytest.fixture(scope="module")
def talker() -> HibariTalker:
    return HibariTalker()


def samples(spoken: Spoken) -> npt.NDArray[np.int64]:
    return np.frombuffer(spoken.pcm, "<i2").astype(np.int64)


def text(spoken: Spoken) -> str:
    return "".join(word.text for word in spoken.words)


@pytest.mark.parametrize(
    "clause",
    [
        "The capital of France is Paris.",
        "Dr. Smith's 3.5 dogs, e.g. (two) cost $5.20 — don't they?",
        "On Jan. 3, 2024, at 10:30 am, AT&T's team met.",
        "“Well”, she said: naïve café, 20% off!",
    ],
)
def test_words_spell_the_clause_and_lie_inside_its_audio_in_order(talker: HibariTalker, clause: str) -> None:
    spoken = talker.speak(clause)
    assert text(spoken) == clause
    clock = 0
    for word in spoken.words:
        assert clock <= word.start <= word.end
        clock = word.end
    assert clock <= len(samples(spoken)) * 2
    audible = [word for word in spoken.words if any(map(str.isalnum, word.text))]
    assert all(word.end > word.start for word in audible)


def test_the_first_word_of_a_later_clause_carries_its_space(talker: HibariTalker) -> None:
    assert text(talker.speak("and so on.", first=False)) == " and so on."


def test_audio_begins_at_once_and_ends_in_the_pause_that_its_punctuation_asks_for(talker: HibariTalker) -> None:
    for clause, pause_ms in (("I know that.", 260), ("If I know that,", 140), ("so then he went", 15)):
        heard = samples(talker.speak(clause))
        loud = np.flatnonzero(np.abs(heard) > AUDIBLE)
        assert loud[0] / 24 <= 20
        assert (len(heard) - loud[-1]) / 24 == pytest.approx(pause_ms, abs=1)


def test_a_clause_begins_and_ends_without_a_click(talker: HibariTalker) -> None:
    for clause in ("Ask him.", "so then he went", "Zebras zip,"):
        heard = samples(talker.speak(clause))
        assert abs(int(heard[0])) < 10
        assert abs(int(heard[-1])) < 10


def test_the_same_text_sounds_the_same(talker: HibariTalker) -> None:
    assert talker.speak("Say it again.") == talker.speak("Say it again.")


def test_speed_shortens_the_words(talker: HibariTalker) -> None:
    slow, fast = (talker.speak("How far is it to the sea?", speed=speed).words[-1].end for speed in (1.0, 1.5))
    assert 1.3 < slow / fast < 1.7


def test_a_pause_inside_a_clause_lies_between_the_words_around_it(talker: HibariTalker) -> None:
    spoken = talker.speak("I wanted to go there; however, it rained.")
    before, after = (next(word for word in spoken.words if name in word.text) for name in ("there;", "however,"))
    heard = np.abs(samples(spoken))
    quiet = np.flatnonzero(np.convolve(heard < AUDIBLE, np.ones(24 * 60), "same") >= 24 * 60)
    middle = int(np.median(quiet[quiet < after.end // 2])) * 2
    assert before.end - from_ms(100) < middle < after.start + from_ms(100)


@pytest.mark.parametrize("silent", ["", "  ", "😀", "…"])
def test_what_has_no_sound_gives_no_audio_and_no_words(talker: HibariTalker, silent: str) -> None:
    assert talker.speak(silent) == Spoken(b"", ())


def test_a_clause_longer_than_the_voice_takes_at_once_is_spoken_whole(talker: HibariTalker) -> None:
    clause = "extraordinarily complicated constitutional considerations " * 12
    spoken = talker.speak(clause)
    assert text(spoken) == clause.strip()
    starts = [word.start for word in spoken.words]
    assert starts == sorted(starts)
    assert spoken.words[-1].end > 20 * TICK_RATE


def test_an_unknown_voice_or_speed_is_a_typed_failure(talker: HibariTalker) -> None:
    with pytest.raises(TalkerError, match="choose one of default") as failed:
        talker.speak("Hi.", voice="nobody")
    assert failed.value.code == "unknown_voice"
    with pytest.raises(TalkerError) as failed:
        talker.speak("Hi.", speed=9)
    assert failed.value.code == "invalid_speed"


def test_another_model_than_the_pinned_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "hibari.onnx").write_bytes(b"other")
    (tmp_path / "vocab.json").write_text("{}")
    with pytest.raises(TalkerError) as failed:
        HibariTalker(tmp_path)
    assert failed.value.code == "talker_mismatch"
    with pytest.raises(TalkerError) as failed:
        HibariTalker(tmp_path / "none")
    assert failed.value.code == "talker_missing"


def test_a_name_that_does_not_fit_cannot_become_an_output() -> None:
    with pytest.raises(ValueError, match="longer"):
        extra_output("x" * 130)
