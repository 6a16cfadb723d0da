from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from codec.pcm import to_samples
from codec.rvq.checkpoint import load_checkpoint
from codec.rvq.shipped import SHIPPED, identity_of
from codec.rvq.stream import ENCODER_DELAY, StreamingRvqDecoder, StreamingRvqEncoder
from codec.rvq.synthesis import FRAME
from codec.rvq.utterance import CHUNKS, chunk_after, chunks_of, decode_utterance, framed, frames_for, to_pcm16
from tests.codec.rvq.tiny import tiny_checkpoint


@given(st.integers(0, 200_000))
def test_an_utterance_has_the_frames_that_hold_it_and_the_delay_and_no_more(samples: int) -> None:
    frames = frames_for(samples)
    assert (frames - 1) * FRAME < samples + ENCODER_DELAY <= frames * FRAME


@given(st.integers(1, 400))
def test_chunks_follow_each_other_begin_short_and_fill_up_at_most_the_last(frames: int) -> None:
    chunks = list(chunks_of(frames))
    assert chunks[0] == (0, 2)
    assert [first for first, _ in chunks[1:]] == [first + length for first, length in chunks[:-1]]
    assert all(length == chunk_after(first, frames) and length in CHUNKS for first, length in chunks)
    assert chunks[-1][0] < frames <= sum(chunks[-1])
    assert all(first + length <= frames for first, length in chunks[:-1])


@pytest.mark.parametrize("samples", [1, 1440, 1441, 3 * FRAME, 40_001])
def test_an_utterance_in_chunks_is_the_whole_sequence_without_the_delay(samples: int) -> None:
    checkpoint = tiny_checkpoint()
    pcm = np.random.default_rng(samples).integers(-3000, 3000, samples).astype("<i2").tobytes()
    said = framed(pcm)
    encoder = StreamingRvqEncoder(checkpoint, 2)
    parts = [
        encoder.encode_some(said[None, first * FRAME : (first + length) * FRAME], [1])[0]
        for first, length in chunks_of(frames_for(samples))
    ]
    codes = np.concatenate(parts)[: frames_for(samples)]
    heard = decode_utterance(StreamingRvqDecoder(checkpoint, 2), codes)
    frames = torch.from_numpy(said)[None]
    whole = checkpoint.codec.encode(frames)[:, :, : len(codes)]
    assert np.array_equal(whole[0].T.numpy(), codes)
    expected = to_pcm16(checkpoint.codec.decode(whole)[0].numpy()[ENCODER_DELAY:])
    assert len(heard) == 2 * (len(codes) * FRAME - ENCODER_DELAY) >= 2 * samples
    assert np.abs(to_samples(heard).astype(int) - to_samples(expected)).max() <= 1


def test_an_utterance_of_nothing_has_one_frame_and_codes_of_nothing_no_sound() -> None:
    assert (frames_for(0), len(framed(b""))) == (1, 2 * FRAME)
    assert decode_utterance(StreamingRvqDecoder(tiny_checkpoint(), 1), np.zeros((0, 4), np.int64)) == b""


def test_half_a_sample_is_refused() -> None:
    with pytest.raises(ValueError, match="even number"):
        framed(b"abc")


def test_the_identity_that_is_told_without_torch_is_that_of_the_weights() -> None:
    assert identity_of(SHIPPED) == load_checkpoint(SHIPPED).identity


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"123",
        struct.pack("<Q", 1 << 60) + b"{}",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 2) + b"{}",
        *(
            struct.pack("<Q", len(header)) + header
            for record in (
                {"__metadata__": []},
                {"__metadata__": {"identity": "{}"}},
                {"__metadata__": {"identity": 3}},
            )
            for header in [json.dumps(record).encode()]
        ),
    ],
)
def test_a_file_that_is_no_checkpoint_has_no_identity(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    assert identity_of(path) is None
    assert identity_of(tmp_path / "none") is None
