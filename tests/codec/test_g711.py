"""The expected values follow the recommendation sample by sample, in the bit-serial way of the ITU's tool library.

They share nothing with the tables under test: loops over segments here, closed forms there.
"""

from __future__ import annotations

import numpy as np
import pytest

from codec import g711

EVERY_SAMPLE = np.arange(-32768, 32768).astype("<i2")
EVERY_CODE = bytes(range(256))


def reference_compress_ulaw(sample: int) -> int:
    magnitude = ((-sample - 1 if sample < 0 else sample) // 4) + 33
    if magnitude > 0x1FFF:
        magnitude = 0x1FFF
    segment = 1
    rest = magnitude >> 6
    while rest:
        segment += 1
        rest >>= 1
    high = 8 - segment
    low = 15 - ((magnitude >> segment) & 15)
    return (high << 4 | low) | (0x80 if sample >= 0 else 0)


def reference_expand_ulaw(code: int) -> int:
    inverted = 255 - code
    exponent = inverted >> 4 & 7
    step = 4 << (exponent + 1)
    magnitude = (0x80 << exponent) + step * (inverted & 15) + step // 2 - 4 * 33
    return magnitude if code >= 128 else -magnitude


def reference_compress_alaw(sample: int) -> int:
    index = (-sample - 1 if sample < 0 else sample) // 16
    if index > 15:
        exponent = 1
        while index > 31:
            index >>= 1
            exponent += 1
        index = index - 16 + exponent * 16
    if sample >= 0:
        index += 128
    return index ^ 0x55


def reference_expand_alaw(code: int) -> int:
    plain = (code ^ 0x55) & 0x7F
    exponent, mantissa = plain >> 4, plain & 15
    if exponent:
        mantissa += 16
    magnitude = (mantissa << 4) + 8
    if exponent > 1:
        magnitude <<= exponent - 1
    return magnitude if code > 127 else -magnitude


def test_ulaw_compresses_every_sample_as_the_recommendation_does() -> None:
    expected = bytes(reference_compress_ulaw(int(s)) for s in EVERY_SAMPLE)
    assert g711.encode(EVERY_SAMPLE.tobytes(), "ulaw") == expected


def test_alaw_compresses_every_sample_as_the_recommendation_does() -> None:
    expected = bytes(reference_compress_alaw(int(s)) for s in EVERY_SAMPLE)
    assert g711.encode(EVERY_SAMPLE.tobytes(), "alaw") == expected


def test_ulaw_expands_every_code_as_the_recommendation_does() -> None:
    expected = [reference_expand_ulaw(c) for c in EVERY_CODE]
    assert np.frombuffer(g711.decode(EVERY_CODE, "ulaw"), "<i2").tolist() == expected


def test_alaw_expands_every_code_as_the_recommendation_does() -> None:
    expected = [reference_expand_alaw(c) for c in EVERY_CODE]
    assert np.frombuffer(g711.decode(EVERY_CODE, "alaw"), "<i2").tolist() == expected


@pytest.mark.parametrize(
    ("law", "code", "sample"),
    [
        # Decision table 2a of G.711 (µ-law, x4 for 14 bits in 16) and 1a (A-law, x8 for 13 bits in 16).
        ("ulaw", 0x80, 32124),
        ("ulaw", 0x00, -32124),
        ("ulaw", 0xFF, 0),
        ("ulaw", 0xF0, 120),
        ("alaw", 0xAA, 32256),
        ("alaw", 0x2A, -32256),
        ("alaw", 0xD5, 8),
        ("alaw", 0x55, -8),
    ],
)
def test_the_corner_values_of_the_recommendation(law: g711.Law, code: int, sample: int) -> None:
    assert np.frombuffer(g711.decode(bytes([code]), law), "<i2")[0] == sample


@pytest.mark.parametrize("law", ["ulaw", "alaw"])
def test_every_code_survives_the_round_trip(law: g711.Law) -> None:
    again = g711.encode(g711.decode(EVERY_CODE, law), law)
    # µ-law has two zeros and a sample has one, so the negative one comes back positive.
    expected = EVERY_CODE.replace(b"\x7f", b"\xff") if law == "ulaw" else EVERY_CODE
    assert again == expected


@pytest.mark.parametrize("law", ["ulaw", "alaw"])
def test_the_error_of_a_round_trip_stays_within_half_a_step(law: g711.Law) -> None:
    back = np.frombuffer(g711.decode(g711.encode(EVERY_SAMPLE.tobytes(), law), law), "<i2").astype(int)
    error = np.abs(back - EVERY_SAMPLE.astype(int))
    loud = np.abs(EVERY_SAMPLE.astype(int))
    assert np.all(error <= np.maximum(loud / 16, 16))


@pytest.mark.parametrize("law", ["ulaw", "alaw"])
def test_the_code_of_silence_is_the_code_of_zero(law: g711.Law) -> None:
    assert g711.encode(b"\0\0", law) == bytes([g711.SILENCE[law]])


def test_one_law_read_as_the_other_is_not_the_signal() -> None:
    tone = (8000 * np.sin(np.arange(800) / 5)).astype("<i2")
    wrong = np.frombuffer(g711.decode(g711.encode(tone.tobytes(), "alaw"), "ulaw"), "<i2")
    right = np.frombuffer(g711.decode(g711.encode(tone.tobytes(), "alaw"), "alaw"), "<i2")
    assert np.abs(right - tone).max() < 600
    assert np.abs(wrong.astype(int) - tone).max() > 4000


def test_half_a_sample_is_refused() -> None:
    with pytest.raises(ValueError, match="even number"):
        g711.encode(b"\0", "ulaw")
