from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from codec.identity import CodecIdentity, CodecIdentityError, CodecMismatch

MIMI = CodecIdentity("mimi", "1", 24_000, 1920, 8, 2048, (0, 1, 1, 1, 1, 1, 1, 1))


def test_a_frame_of_80_ms_is_3840_ticks() -> None:
    assert MIMI.frame_ticks == 3840
    assert MIMI.frame_rate == 12.5
    assert (MIMI.code_bits, MIMI.frame_bytes) == (11, 11)


def test_without_a_pattern_no_codebook_is_delayed() -> None:
    identity = CodecIdentity("c", "1", 24_000, 1920, 3, 1000)
    assert identity.delays == (0, 0, 0)
    assert identity == CodecIdentity("c", "1", 24_000, 1920, 3, 1000, (0, 0, 0))
    assert (identity.code_bits, identity.frame_bytes) == (10, 4)


def test_the_longest_delay_says_when_a_frame_is_complete() -> None:
    assert MIMI.longest_delay == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", "Mimi"),
        ("name", 3),
        ("version", "a b"),
        ("version", "x" * 65),
        ("sample_rate", 0),
        ("sample_rate", 24_000.0),
        ("hop", 0),
        ("hop", True),
        ("hop", 24_001),
        ("codebooks", 0),
        ("codebooks", 65),
        ("codebook_size", 1),
        ("codebook_size", 1 << 17),
        ("delays", (0, 1)),
        ("delays", [0] * 8),
        ("delays", (0, 0, 0, 0, 0, 0, 0, -1)),
        ("delays", (0, 0, 0, 0, 0, 0, 0, 257)),
    ],
)
def test_an_impossible_value_is_refused_by_its_field(field: str, value: Any) -> None:
    with pytest.raises(CodecIdentityError) as caught:
        replace(MIMI, **{field: value})
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field}: ")


def test_a_hop_between_two_ticks_is_refused() -> None:
    with pytest.raises(CodecIdentityError, match="divides 48 kHz") as caught:
        CodecIdentity("c", "1", 44_100, 512, 8, 1024)
    assert caught.value.field == "hop"


def test_a_rate_that_does_not_divide_48_khz_may_have_a_hop_that_does() -> None:
    assert CodecIdentity("c", "1", 44_100, 441, 8, 1024).frame_ticks == 480


def test_it_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        MIMI.codebooks = 9  # type: ignore[misc]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "other"),
        ("version", "2"),
        ("sample_rate", 48_000),
        ("hop", 960),
        ("codebook_size", 1024),
        ("delays", (0,) * 8),
    ],
)
def test_codes_of_another_codec_are_refused_by_the_field_that_differs(field: str, value: Any) -> None:
    other = replace(MIMI, **{field: value})
    assert other != MIMI
    with pytest.raises(CodecMismatch) as caught:
        MIMI.require(other)
    assert caught.value.field == field
    assert repr(value) in str(caught.value)


def test_codes_of_an_equal_codec_are_taken() -> None:
    MIMI.require(CodecIdentity.from_record(MIMI.to_record()))


def test_fewer_codebooks_are_another_codec_with_the_beginning_of_the_pattern() -> None:
    three = MIMI.with_codebooks(3)
    assert (three.codebooks, three.delays) == (3, (0, 1, 1))
    with pytest.raises(CodecMismatch, match="codebooks"):
        MIMI.require(three)
    for count in (0, 9):
        with pytest.raises(CodecIdentityError, match="codebooks"):
            MIMI.with_codebooks(count)


def test_its_record_goes_through_json_and_back() -> None:
    assert CodecIdentity.from_record(json.loads(json.dumps(MIMI.to_record()))) == MIMI


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"hop": None}, "hop"),
        ({"hop": "1920"}, "hop"),
        ({"delays": "01111111"}, "delays"),
        ({"delays": [0, "1", 1, 1, 1, 1, 1, 1]}, "delays"),
        ({"rate": 24_000}, "rate"),
    ],
)
def test_a_record_with_a_wrong_field_is_refused(change: dict[str, object], field: str) -> None:
    with pytest.raises(CodecIdentityError) as caught:
        CodecIdentity.from_record({**MIMI.to_record(), **change})
    assert caught.value.field == field


def test_a_record_that_lacks_a_field_is_refused() -> None:
    record = MIMI.to_record()
    del record["version"]
    with pytest.raises(CodecIdentityError, match="version: is missing"):
        CodecIdentity.from_record(record)
