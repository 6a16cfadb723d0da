from __future__ import annotations

import pytest

from sessions.core.backchannel import meaning_of


@pytest.mark.parametrize(
    "text", ["", "   ", "...", "[coughing]", "(laughs)", "*sighs*", "♪ humming ♪", "[noise] [noise]"]
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
    "text", ["stop", "Wait, no.", "no", "okay stop", "hold on", "way", "yeah yeah hang on", "Hey!"]
)
def test_a_command_is_believed_at_its_first_word(text: str) -> None:
    assert meaning_of(text) == "command"
    assert meaning_of(text, whole=False) == "command"


@pytest.mark.parametrize(
    "text", ["yeah but", "what", "tell me about London", "can you repeat that", "I meant the other one", "never mind"]
)
def test_words_that_ask_for_the_floor_are_an_interruption(text: str) -> None:
    assert meaning_of(text) == "interruption"


@pytest.mark.parametrize(
    "text", ["right, and Paris", "so", "that is it", "and then so", "12", "ten of clubs", "Mix it."]
)
def test_words_of_no_known_kind_are_unclear(text: str) -> None:
    assert meaning_of(text) == "unclear"


@pytest.mark.parametrize("text", ["you", "Thank you.", "Bye.", "T-t-t, T-T-t."])
def test_what_recognizers_write_for_hums_and_thuds_is_nothing(text: str) -> None:
    assert meaning_of(text) == "nothing"


@pytest.mark.parametrize("text", ["inter", "make", "makes", "of co", "abso", "yeah tot", "that's gre"])
def test_the_beginning_of_a_signal_is_one_while_the_sound_goes_on(text: str) -> None:
    assert meaning_of(text, whole=False) == "backchannel"
    assert meaning_of(text, whole=True) != "backchannel"


@pytest.mark.parametrize("text", ["no", "stop", "what"])
def test_a_word_that_asks_for_the_floor_is_not_the_beginning_of_a_signal(text: str) -> None:
    assert meaning_of(text, whole=False) in ("command", "interruption")


def test_a_refusal_inside_a_phrase_of_agreement_is_none() -> None:
    assert meaning_of("no way, really") == "backchannel"


@pytest.mark.parametrize("text", ["fi", "of", "so", "that's"])
def test_what_anything_may_begin_with_is_no_beginning_of_a_signal(text: str) -> None:
    assert meaning_of(text, whole=False) == "unclear"
