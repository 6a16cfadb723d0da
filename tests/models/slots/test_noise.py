"""Noise that depends on the session, the frame, the stream and the token, and on nothing else."""

from __future__ import annotations

import pytest
import torch

from models.slots import noise
from models.slots.noise import keys, sample


def gumbel(seed: torch.Tensor, frame: torch.Tensor, stream: int, tokens: torch.Tensor) -> torch.Tensor:
    return noise.gumbel(keys(seed, frame, stream + 1)[stream], tokens)


def column(*values: int) -> torch.Tensor:
    return torch.tensor(values)


def test_a_session_draws_the_same_in_every_slot_and_company() -> None:
    alone = gumbel(column(7), column(42), 3, torch.arange(2048))
    among = gumbel(column(1, 2, 7, 9), column(5, 42, 42, 42), 3, torch.arange(2048))
    assert torch.equal(alone[0], among[2])
    assert not torch.equal(among[1], among[2])


@pytest.mark.parametrize(("seed", "frame", "stream"), [(8, 42, 3), (7, 43, 3), (7, 42, 4)])
def test_another_session_frame_or_stream_draws_something_else(seed: int, frame: int, stream: int) -> None:
    one, other = (
        gumbel(column(7), column(42), 3, torch.arange(2048))[0],
        gumbel(column(seed), column(frame), stream, torch.arange(2048))[0],
    )
    assert (one == other).float().mean() < 0.01
    assert abs(torch.corrcoef(torch.stack([one, other]))[0, 1]) < 0.1


def test_the_noise_is_gumbels() -> None:
    every = torch.cat([gumbel(column(seed), column(seed * 31), 1, torch.arange(50_000)) for seed in range(4)]).flatten()
    assert every.mean().item() == pytest.approx(0.5772, abs=0.01)
    assert every.var().item() == pytest.approx(torch.pi**2 / 6, abs=0.03)


def test_tokens_are_drawn_as_often_as_they_are_likely() -> None:
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0]).expand(4000, -1)
    seeds, frames = torch.arange(4000) * 7919, torch.arange(4000) % 97
    drawn = torch.bincount(sample(logits, keys(seeds, frames, 3)[2]), minlength=4) / 4000
    torch.testing.assert_close(drawn, logits[0].softmax(-1), atol=0.03, rtol=0)


def test_a_few_tokens_get_the_noise_that_they_have_among_all() -> None:
    few = torch.tensor([[5, 700, 31], [2047, 0, 5]])
    every = gumbel(column(7, 8), column(42, 43), 3, torch.arange(2048))
    assert torch.equal(gumbel(column(7, 8), column(42, 43), 3, few), every.gather(1, few))


def test_top_k_draws_among_the_likeliest_and_temperature_zero_takes_the_first() -> None:
    logits = torch.randn(500, 64, generator=torch.Generator().manual_seed(0))
    seeds, frames = torch.arange(500), torch.arange(500)
    ranks = (
        logits.argsort(descending=True).argsort().gather(1, sample(logits, keys(seeds, frames, 2)[1], top_k=3)[:, None])
    )
    assert set(ranks.flatten().tolist()) == {0, 1, 2}
    assert torch.equal(sample(logits, keys(seeds, frames, 2)[1], temperature=0.0), logits.argmax(-1))


def test_large_seeds_and_frames_of_days_still_differ() -> None:
    largest = 2**31 - 1
    rows = gumbel(
        column(largest, largest, largest - 1), column(10_000_000, 10_000_001, 10_000_000), 8, torch.arange(512)
    )
    assert len({tuple(row.tolist()) for row in rows}) == 3
