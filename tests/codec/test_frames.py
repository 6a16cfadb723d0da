from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codec.frames import START_BYTES, CodecFrame, CodecFrameError, pack_codes, unpack_codes
from codec.identity import CodecIdentity

SMALL = CodecIdentity("small", "1", 24_000, 1920, 3, 1000)
FRAME = CodecFrame(3840, 7680, (1, 999, 0))


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ((-1, 10, (1,)), "start"),
        ((0.5, 10, (1,)), "start"),
        ((0, 1 << 63, (1,)), "end"),
        ((10, 10, (1,)), "end"),
        ((0, 10, ()), "codes"),
        ((0, 10, [1]), "codes"),
        ((0, 10, (-1,)), "codes"),
        ((0, 10, (1.0,)), "codes"),
        ((0, 10, (True,)), "codes"),
        ((0, 10, (np.int64(1),)), "codes"),
    ],
)
def test_a_malformed_frame_is_refused_by_its_field(values: Any, field: str) -> None:
    with pytest.raises(CodecFrameError) as caught:
        CodecFrame(*values)
    assert caught.value.field == field


def test_a_frame_of_this_codec_passes_the_check() -> None:
    FRAME.check(SMALL)


@pytest.mark.parametrize(
    ("frame", "field"),
    [
        (CodecFrame(0, 3840, (1, 2)), "codes"),
        (CodecFrame(0, 3840, (1, 2, 1000)), "codes"),
        (CodecFrame(0, 3839, (1, 2, 3)), "end"),
    ],
)
def test_a_frame_that_this_codec_cannot_have_made_is_refused(frame: CodecFrame, field: str) -> None:
    with pytest.raises(CodecFrameError) as caught:
        frame.check(SMALL)
    assert caught.value.field == field
    with pytest.raises(CodecFrameError):
        frame.to_bytes(SMALL)


def test_the_packed_form_is_start_and_bits_from_the_top() -> None:
    # 1, 999, 0 in ten bits each, and two bits of filling.
    bits = "00000000011111100111000000000000"
    assert FRAME.to_bytes(SMALL) == (3840).to_bytes(START_BYTES, "big") + int(bits, 2).to_bytes(4, "big")


def test_eight_codebooks_of_1024_are_one_kilobit_a_second() -> None:
    identity = CodecIdentity("c", "1", 24_000, 1920, 8, 1024)
    assert len(pack_codes(np.zeros((25, 8), np.int64), identity)) * 8 / 2 == 1000


@given(
    start=st.integers(0, 1 << 40),
    size=st.integers(2, 1 << 16),
    data=st.data(),
    codebooks=st.integers(1, 64),
)
def test_every_frame_comes_back_from_its_bytes(start: int, size: int, data: st.DataObject, codebooks: int) -> None:
    identity = CodecIdentity("c", "1", 24_000, 1920, codebooks, size)
    codes = data.draw(st.lists(st.integers(0, size - 1), min_size=codebooks, max_size=codebooks))
    frame = CodecFrame(start, start + 3840, tuple(codes))
    assert CodecFrame.from_bytes(frame.to_bytes(identity), identity) == frame


@pytest.mark.parametrize("dtype", [np.int16, np.uint16, np.int32, np.int64])
def test_many_frames_lie_at_equal_distances(dtype: Any) -> None:
    codes = np.random.default_rng(1).integers(0, 1000, (50, 3))
    packed = pack_codes(codes.astype(dtype), SMALL)
    assert len(packed) == 50 * SMALL.frame_bytes
    assert np.array_equal(unpack_codes(packed, SMALL), codes)
    seventh = packed[7 * SMALL.frame_bytes : 8 * SMALL.frame_bytes]
    assert np.array_equal(unpack_codes(seventh, SMALL)[0], codes[7])


def test_no_frames_are_no_bytes() -> None:
    assert pack_codes(np.zeros((0, 3), np.int64), SMALL) == b""
    assert unpack_codes(b"", SMALL).shape == (0, 3)


@pytest.mark.parametrize("codes", [[[1, 2]], [1, 2, 3], [[1, 2, 1000]], [[1, -1, 3]], [[1.0, 2.0, 3.0]]])
def test_codes_that_do_not_fit_are_not_packed(codes: Any) -> None:
    with pytest.raises(CodecFrameError) as caught:
        pack_codes(codes, SMALL)
    assert caught.value.field == "codes"


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"\0" * 5, "whole number of frames"), (b"\xff\xff\xff\xfc", "outside"), (b"\0\0\0\1", "filling bits")],
)
def test_bytes_of_another_codec_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(CodecFrameError, match=reason):
        unpack_codes(data, SMALL)


def test_a_frame_cut_short_is_refused() -> None:
    packed = FRAME.to_bytes(SMALL)
    for data in (b"", packed[:-1], packed + b"\0"):
        with pytest.raises(CodecFrameError, match="data"):
            CodecFrame.from_bytes(data, SMALL)


def test_a_start_beyond_the_timeline_is_refused() -> None:
    packed = b"\xff" * START_BYTES + FRAME.to_bytes(SMALL)[START_BYTES:]
    with pytest.raises(CodecFrameError):
        CodecFrame.from_bytes(packed, SMALL)
