from __future__ import annotations

import numpy as np
import pytest

from models.perception.endpoint import SPAN, TurnDetector

from .speech import clips, hiss, model, silence

pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def turns() -> TurnDetector:
    return TurnDetector(model("smart-turn"))


def test_a_finished_sentence_is_likelier_a_turn_than_one_cut_in_the_middle(turns: TurnDetector) -> None:
    # The model is unsure of read speech (see the silence time-out), so each clip is compared with its own half.
    for clip, _ in clips().values():
        whole = turns.probability(np.concatenate([clip, silence(0.2)]))
        half = turns.probability(np.concatenate([clip[: clip.size // 2], silence(0.2)]))
        assert 0.0 <= half < whole <= 1.0


def test_of_a_long_turn_only_the_end_counts(turns: TurnDetector) -> None:
    clip, _ = clips()["0890.flac"]
    end = np.concatenate([hiss(10, 0.001), clip])[-SPAN:]
    assert turns.probability(np.concatenate([hiss(20, 0.1), end])) == turns.probability(end)


def test_what_lies_before_a_short_turn_is_silence(turns: TurnDetector) -> None:
    clip, _ = clips()["0930.flac"]
    padded = np.concatenate([np.zeros(SPAN - clip.size, np.float32), clip])
    assert turns.probability(clip) == turns.probability(padded)


def test_no_audio_at_all_has_a_probability(turns: TurnDetector) -> None:
    assert 0.0 <= turns.probability(silence(0)) <= 1.0
