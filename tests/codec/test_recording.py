"""What is recorded gives what the computation gives, for other sizes and with the state that it is given."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from codec.recording import record


def computation(layer: nn.Linear, x: Tensor, state: Tensor) -> tuple[Tensor, ...]:
    state.add_(x.sum(0))
    return (layer(x) + state[0], x * 2)


def test_it_gives_the_same_for_any_number_of_rows_and_changes_the_state_that_it_is_given() -> None:
    layer = nn.Linear(4, 5).requires_grad_(False)
    example = torch.ones(3, 4)
    recorded = record(lambda x, state: computation(layer, x, state), example, torch.zeros(4))
    assert torch.equal(example, torch.ones(3, 4))
    mine, theirs = torch.zeros(4), torch.zeros(4)
    for rows in (3, 7):
        x = torch.randn(rows, 4, generator=torch.Generator().manual_seed(rows))
        expected, found = computation(layer, x, mine), recorded(x, theirs)
        assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))
    assert torch.equal(mine, theirs)
    assert mine.any()


def test_weights_are_those_of_when_it_was_recorded() -> None:
    layer = nn.Linear(4, 5).requires_grad_(False)
    x, state = torch.ones(3, 4), torch.zeros(4)
    recorded = record(lambda x, state: computation(layer, x, state), x, state)
    before = recorded(x, state.clone())[0]
    layer.weight.zero_()
    assert torch.equal(recorded(x, state.clone())[0], before)
