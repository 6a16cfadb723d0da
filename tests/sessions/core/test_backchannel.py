from __future__ import annotations

import pytest

from sessions.core.backchannel import meaning_of


@pytest.mark.parametrize(
    "text", ["", "   ", "...", "[coughing]", "(laughs)", "*sighs*", "♪ humming ♪", "[noise] [noise]", "12"]
)
def test_a_sound_without_words_means_nothing(text: str) -> None:
    assert meaning_of(text) == "nothing"


@pytest.mark.parametrize(
    "text",
    [
        "mm-hmm",
        "Mm-hmm.",
        "Uh-huh",
        "Right.",
        "yeah, yeah",
        "Okay!",
        "I see.",
        "that's right",
        "That\u2019s true.",
        "Oh, I see, right.",
        "so yeah",
        "That makes sense, okay.",
        "[laughs] yeah",
        "oh my god",
        "of course",
        "good to know",
    ],
)
def test_a_listeners_signal_is_a_backchannel(text: str) -> None:
    assert meaning_of(text) == "backchannel"


@pytest.mark.parametrize(
    "text",
    [
        "stop",
        "Wait, no.",
        "no",
        "yeah but",
        "okay stop",
        "hold on",
        "what",
        "right, and Paris",
        "so",
        "that is it",
        "tell me about London",
        "yeah yeah hang on",
    ],
)
def test_whatever_else_can_be_understood_is_an_interruption(text: str) -> None:
    assert meaning_of(text) == "interruption"


def test_fillers_alone_are_no_signal() -> None:
    assert meaning_of("and then so") == "interruption"
