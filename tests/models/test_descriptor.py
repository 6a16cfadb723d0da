"""`models.descriptor`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from models.checkpoint import Checkpoint
from models.descriptor import (
    UNDETERMINED,
    Absent,
    CannotSpeak,
    CapabilityDescriptor,
    DescriptorMismatch,
    Stated,
    check_weights,
    require_voice,
    stated,
)
from models.graph.parts import Medium
from models.graph.shapes import Shape

from .checkpoints import weights

SPEAKING = CapabilityDescriptor(
    family="test", talker=Stated("t", "s"), speech_decoder=Stated("d", "s"), output_rate=Stated(24_000, "s")
)


def test_nothing_is_stated_unless_somebody_states_it() -> None:
    descriptor = CapabilityDescriptor(family="test")
    assert set(descriptor.facts().values()) == {UNDETERMINED}
    assert not descriptor.speaks
    assert descriptor.hears == ()


def test_undetermined_is_a_value_and_neither_none_nor_false() -> None:
    assert UNDETERMINED is not None
    assert UNDETERMINED
    assert str(UNDETERMINED) == "undetermined"
    assert stated(None, "file") is UNDETERMINED
    assert stated(False, "file") == Stated(False, "file")
    assert (str(Stated(True, "s")), str(Absent("s"))) == ("true", "none")


def test_a_voice_session_needs_what_is_spoken_with() -> None:
    require_voice(SPEAKING)


@pytest.mark.parametrize("part", ["talker", "speech_decoder", "output_rate"])
@pytest.mark.parametrize(
    ("fact", "message"), [(Absent("config.json: x"), "has no"), (UNDETERMINED, "no source states")]
)
def test_each_part_that_is_missing_is_named(part: str, fact: object, message: str) -> None:
    with pytest.raises(CannotSpeak, match=message) as caught:
        require_voice(replace(SPEAKING, **{part: fact}))  # type: ignore[arg-type]
    assert caught.value.missing == (part,)
    assert part.replace("_", " ") in str(caught.value)


def test_an_encoder_that_is_only_undetermined_is_not_claimed() -> None:
    descriptor = replace(SPEAKING, audio_encoder=Stated("a", "s"), image_encoder=Absent("s"))
    assert descriptor.hears == (Medium.AUDIO,)


def test_one_symbol_means_one_size_in_all_tensors(tmp_path: Path) -> None:
    weights(tmp_path / "model.safetensors", {"a": (4, 8), "b": (8, 9)})
    expected = {"a": Shape.parse("n,d"), "b": Shape.parse("d,d")}
    with pytest.raises(DescriptorMismatch, match="b: the configuration says"):
        check_weights(Checkpoint(tmp_path), expected, {})


def test_weights_that_cannot_be_looked_into_are_not_taken_for_compared(tmp_path: Path) -> None:
    assert check_weights(Checkpoint(tmp_path), {"a": Shape.parse("d")}, {}) == 0
