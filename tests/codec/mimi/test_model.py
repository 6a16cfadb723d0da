"""Mimi as a whole: streamed equals whole, streams do not see each other, a reset leaves nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from codec.mimi.config import MimiConfig
from codec.mimi.errors import ConfigInvalid
from codec.mimi.model import Mimi
from codec.mimi.streams import Streams

torch.set_num_threads(1)

CONFIG = MimiConfig.tiny()
HOP = CONFIG.hop
FRAMES = 30
"""More than twice the attention window of the tiny configuration."""

Step = Callable[[Tensor, Streams], Tensor]


@pytest.fixture(scope="module")
def mimi() -> Mimi:
    return Mimi.random(CONFIG, seed=3)


@pytest.fixture(scope="module")
def pcm() -> Tensor:
    return 0.2 * torch.randn(3, HOP * FRAMES, generator=torch.Generator().manual_seed(1))


def everyone(batch: int) -> Tensor:
    return torch.ones(batch, dtype=torch.bool)


def run(step: Step, streams: Streams, frame: Tensor, mask: Tensor | None = None) -> Tensor:
    streams.begin(everyone(streams.batch) if mask is None else mask)
    out = step(frame, streams)
    streams.end()
    return out


def encode(mimi: Mimi, pcm: Tensor, streams: Streams, start: int = 0, end: int = FRAMES) -> Tensor:
    frames = [run(mimi.encode, streams, pcm[:, n * HOP : (n + 1) * HOP]) for n in range(start, end)]
    return torch.cat(frames, dim=-1)


def decode(mimi: Mimi, codes: Tensor, streams: Streams, start: int = 0, end: int | None = None) -> Tensor:
    frames = range(start, codes.shape[-1] if end is None else end)
    return torch.cat([run(mimi.decode, streams, codes[..., n : n + 1]) for n in frames], dim=-1)


def random_codes(batch: int, frames: int, seed: int = 5) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, CONFIG.codebook_size, (batch, 8, frames), generator=generator)


def test_the_random_codec_uses_its_codebooks(mimi: Mimi, pcm: Tensor) -> None:
    codes = mimi.encode(pcm)
    assert all(codes[:, codebook].unique().numel() >= 8 for codebook in range(8))
    assert 0.005 < mimi.decode(codes).std() < 0.3


def test_encoding_frame_by_frame_equals_encoding_the_whole(mimi: Mimi, pcm: Tensor) -> None:
    assert torch.equal(encode(mimi, pcm, Streams(mimi.encoding, 3)), mimi.encode(pcm))


def test_decoding_frame_by_frame_equals_decoding_the_whole(mimi: Mimi) -> None:
    codes = random_codes(3, FRAMES)
    whole = mimi.decode(codes)
    assert whole.std() > 0.01
    torch.testing.assert_close(decode(mimi, codes, Streams(mimi.decoding, 3)), whole, atol=1e-5, rtol=0)


def test_the_features_before_quantization_agree_too(mimi: Mimi, pcm: Tensor) -> None:
    streams = Streams(mimi.encoding, 3)
    parts = [run(mimi.encoding, streams, pcm[:, None, n * HOP : (n + 1) * HOP]) for n in range(FRAMES)]
    torch.testing.assert_close(torch.cat(parts, dim=-1), mimi.encoding(pcm[:, None]), atol=1e-5, rtol=0)


def test_a_stream_is_the_same_bit_for_bit_whatever_its_neighbours_do(mimi: Mimi) -> None:
    codes = random_codes(3, 12)
    other = random_codes(3, 12, seed=6)
    other[1] = codes[1]
    alone = decode(mimi, codes, Streams(mimi.decoding, 3))
    streams = Streams(mimi.decoding, 3)
    frames = []
    for n in range(12):
        if n == 4:
            streams.reset(torch.tensor([True, False, True]))
        mask = torch.tensor([n % 2 == 0, True, n < 6])
        frames.append(run(mimi.decode, streams, other[..., n : n + 1], mask))
    assert torch.equal(torch.cat(frames, dim=-1)[1], alone[1])


def test_a_paused_stream_goes_on_where_it_was(mimi: Mimi) -> None:
    codes = random_codes(2, 10)
    straight = decode(mimi, codes, Streams(mimi.decoding, 2))
    streams = Streams(mimi.decoding, 2)
    before = decode(mimi, codes, streams, 0, 5)
    for _ in range(3):
        run(mimi.decode, streams, random_codes(2, 1, seed=9), torch.tensor([True, False]))
    after = decode(mimi, codes, streams, 5)
    assert torch.equal(torch.cat([before, after], dim=-1)[1], straight[1])
    assert not torch.equal(torch.cat([before, after], dim=-1)[0], straight[0])


def test_a_reset_stream_is_a_fresh_one_even_after_nan(mimi: Mimi, pcm: Tensor) -> None:
    fresh = encode(mimi, pcm, Streams(mimi.encoding, 3), 0, 8)
    streams = Streams(mimi.encoding, 3)
    poisoned = torch.full((3, HOP), 0.1)
    poisoned[1] = torch.nan
    for _ in range(3):
        run(mimi.encoding, streams, poisoned[:, None])
    assert torch.isnan(run(mimi.encoding, streams, poisoned[:, None])[1]).all()
    assert torch.isfinite(run(mimi.encoding, streams, poisoned[:, None])[0]).all()
    streams.reset(everyone(3))
    features = run(mimi.encoding, streams, torch.zeros(3, 1, HOP))
    assert torch.isfinite(features).all()
    streams.reset(everyone(3))
    assert torch.equal(encode(mimi, pcm, streams, 0, 8), fresh)


@pytest.mark.parametrize("back", [1, 4, 6])
def test_a_rewound_decoder_goes_on_as_if_the_last_frames_had_not_been(mimi: Mimi, back: int) -> None:
    codes, other = random_codes(2, 40), random_codes(2, 40, seed=8)
    straight = decode(mimi, codes, Streams(mimi.decoding, 2, margin=6))
    streams = Streams(mimi.decoding, 2, margin=6)
    decode(mimi, codes, streams, 0, 30)
    decode(mimi, other, streams, 0, back)
    streams.rewind(torch.tensor([back, 0]))
    assert streams.position.tolist() == [30, 30 + back]
    after = decode(mimi, codes, streams, 30)
    assert torch.equal(after[0], straight[0, 30 * HOP :])


def test_a_stream_can_be_rewound_to_its_beginning(mimi: Mimi) -> None:
    codes = random_codes(2, 4)
    streams = Streams(mimi.decoding, 2, margin=6)
    first = decode(mimi, codes, streams)
    streams.rewind(torch.tensor([4, 4]))
    assert torch.equal(decode(mimi, codes, streams), first)


def test_a_rewound_stream_never_gets_what_a_former_tenant_left(mimi: Mimi) -> None:
    codes = random_codes(2, 7)
    streams = Streams(mimi.decoding, 2, margin=6)
    # Seven frames: every place of the history has been written.
    decode(mimi, codes, streams)
    streams.reset(everyone(2))
    first = decode(mimi, codes, streams, 0, 4)
    streams.rewind(torch.tensor([4, 4]))
    assert torch.equal(decode(mimi, codes, streams, 0, 4), first)


def test_fewer_codebooks_are_the_first_of_more() -> None:
    eight, four = Mimi.random(CONFIG, 8), Mimi(CONFIG, 4)
    state = eight.state_dict()
    state["quantizer.acoustic.codebooks"] = state["quantizer.acoustic.codebooks"][:3]
    four.load_state_dict(state)
    pcm = 0.2 * torch.randn(1, HOP * 4, generator=torch.Generator().manual_seed(2))
    assert torch.equal(four.encode(pcm), eight.encode(pcm)[:, :4])
    assert four.identity != eight.identity


def test_the_identity_follows_the_codebooks(mimi: Mimi) -> None:
    other = Mimi.random(CONFIG, seed=4)
    assert mimi.identity == Mimi.random(CONFIG, seed=3).identity
    assert mimi.identity.version != other.identity.version
    assert (mimi.identity.sample_rate, mimi.identity.hop, mimi.identity.codebooks) == (24_000, 1920, 8)


def test_wrong_shapes_are_refused(mimi: Mimi) -> None:
    with pytest.raises(ValueError, match="1920"):
        mimi.encode(torch.zeros(1, 1919))
    with pytest.raises(ValueError, match="8, frames"):
        mimi.decode(torch.zeros(1, 7, 1, dtype=torch.int64))
    with pytest.raises(ConfigInvalid, match="codebooks"):
        Mimi(CONFIG, 9)


def test_the_published_geometry_has_the_published_size() -> None:
    with torch.device("meta"):
        mimi = Mimi(MimiConfig(), 32)
    sizes = {name: weight.numel() for name, weight in mimi.named_parameters()}
    codebooks = sum(size for name, size in sizes.items() if name.endswith("codebooks"))
    assert codebooks == 32 * 2048 * 256
    assert 79e6 < sum(sizes.values()) - codebooks < 80e6
    assert MimiConfig().hop == 1920
