"""The ring cache: window, several steps per frame, positions of three hours."""

from __future__ import annotations

import pytest
import torch

from codec.mimi.streams import Streams
from codec.mimi.transformer import Transformer, TransformerConfig

torch.set_num_threads(1)

BASE = {"dimension": 32, "heads": 2, "layers": 2, "hidden": 48, "context": 10, "period": 10_000.0, "epsilon": 1e-5}


def make(steps: int = 1, **changes: object) -> Transformer:
    options = {**BASE, "norm": "rms", "gated": True, "scaled": False, "steps": steps, **changes}
    transformer = Transformer(TransformerConfig(**options))
    generator = torch.Generator().manual_seed(4)
    for weight in transformer.parameters():
        weight.data = torch.randn(weight.shape, generator=generator) * (0.2 if weight.dim() > 1 else 1)
    return transformer.requires_grad_(False)


def streamed(transformer: Transformer, x: torch.Tensor, streams: Streams) -> torch.Tensor:
    out = []
    for frame in x.split(transformer.config.steps, dim=1):
        streams.begin(torch.ones(len(x), dtype=torch.bool))
        out.append(transformer(frame, streams))
        streams.end()
    return torch.cat(out, dim=1)


def noise(batch: int, steps: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(batch, steps, 32, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("norm", ["rms", "layer"])
def test_steps_through_the_ring_equal_the_whole_long_after_it_has_wrapped(steps: int, norm: str) -> None:
    transformer = make(steps, norm=norm, gated=norm == "rms", scaled=norm == "layer")
    x = noise(2, 48)
    torch.testing.assert_close(streamed(transformer, x, Streams(transformer, 2)), transformer(x), atol=1e-5, rtol=0)


def test_the_window_ends_where_it_says() -> None:
    # With one layer, a step sees exactly the last ten inputs.
    transformer = make(layers=1)
    x = noise(1, 30)
    changed = x.clone()
    changed[:, 14] += 1.0
    before, after = transformer(x)[0], transformer(changed)[0]
    differs = (before - after).abs().amax(-1) > 1e-6
    assert differs.nonzero().flatten().tolist() == list(range(14, 24))


def test_positions_of_three_hours_change_nothing_but_the_position() -> None:
    """Attention knows only distances: at tick 135,000 the same inputs give what they gave at tick 0."""
    transformer = make()
    x = noise(2, 40)
    streams = Streams(transformer, 2)
    three_hours = 3 * 3600 * 25 // 2
    streams.position += torch.tensor([0, three_hours])
    # A ring that is full of something, as it would be by then.
    warm = noise(2, 20, seed=5)
    late = streamed(transformer, torch.cat([warm, x], dim=1), streams)[1]
    early = streamed(transformer, torch.cat([warm, x], dim=1), Streams(transformer, 2))[1]
    assert streams.position[1] == three_hours + 60
    # The late stream began in the middle of its session, with keys of zeros before it.
    torch.testing.assert_close(late[30:], early[30:], atol=1e-4, rtol=0)


def test_the_margin_of_a_rewind_keeps_the_whole_window() -> None:
    transformer = make()
    x, other = noise(2, 40), noise(2, 7, seed=6)
    wanted = streamed(transformer, x, Streams(transformer, 2, margin=7))
    streams = Streams(transformer, 2, margin=7)
    streamed(transformer, x[:, :25], streams)
    streamed(transformer, other, streams)
    streams.rewind(torch.tensor([7, 7]))
    assert torch.equal(streamed(transformer, x[:, 25:], streams), wanted[:, 25:])


def test_memory_of_the_streams_is_counted() -> None:
    transformer = make()
    assert Streams(transformer, 3).bytes == 2 * 2 * 3 * 32 * 10 * 4
    assert Streams(transformer, 3, margin=5).bytes == 2 * 2 * 3 * 32 * 15 * 4


def test_impossible_sizes_of_streams_are_refused() -> None:
    with pytest.raises(ValueError, match="batch"):
        Streams(make(), 0)
    with pytest.raises(ValueError, match="margin"):
        Streams(make(), 1, margin=-1)
