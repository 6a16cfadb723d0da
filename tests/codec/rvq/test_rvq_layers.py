from __future__ import annotations

import torch
from torch import nn

from codec.rvq.layers import CausalConv, ConvNextBlock, DepthwiseConv, Patches, SlotState

ALL = torch.ones(3, dtype=torch.bool)
NONE = ~ALL


def in_pieces(layer: nn.Module, x: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    state = SlotState(len(x))
    out, at = [], 0
    for size in sizes:
        state.begin(torch.zeros(len(x), dtype=torch.bool))
        out.append(layer(x[:, at : at + size], state))
        state.commit(torch.ones(len(x), dtype=torch.bool))
        at += size
    assert at == x.shape[1]
    return torch.cat(out, 1)


def test_pieces_of_any_size_give_what_the_whole_gives() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 17, 6)
    with torch.no_grad():
        for layer in (CausalConv(6, 4, 5), DepthwiseConv(6, 3), ConvNextBlock(6, 12, 5)):
            whole = layer(x)
            assert torch.allclose(in_pieces(layer, x, [1, 1, 4, 2, 9]), whole, atol=1e-6)
            assert torch.allclose(in_pieces(layer, x, [17]), whole, atol=1e-6)


def test_a_causal_layer_does_not_see_what_comes_later() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 12, 6)
    later = x.clone()
    later[:, 7:] += 1.0
    with torch.no_grad():
        for layer in (CausalConv(6, 4, 5), DepthwiseConv(6, 3), ConvNextBlock(6, 12, 5)):
            assert torch.equal(layer(x)[:, :7], layer(later)[:, :7])
            assert not torch.allclose(layer(x)[:, 7:], layer(later)[:, 7:])


def test_products_are_the_convolutions_that_their_weights_are_of() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 12, 5)
    before = nn.functional.pad(x, (0, 0, 2, 0))
    with torch.no_grad():
        for layer, seen in ((Patches(5, 7, 4), x), (CausalConv(5, 7, 3), before), (DepthwiseConv(5, 3), before)):
            convolved = nn.Conv1d.forward(layer, seen.transpose(1, 2)).transpose(1, 2)
            assert torch.allclose(layer(x), convolved, atol=1e-6)


def test_a_slot_that_does_not_run_keeps_its_state() -> None:
    torch.manual_seed(0)
    layer = CausalConv(2, 2, 3)
    x, other = torch.randn(3, 4, 2), torch.randn(3, 4, 2)
    state = SlotState(3)
    with torch.no_grad():
        state.begin(NONE)
        layer(x, state)
        state.commit(ALL)
        kept = state.read(layer, x, 2).clone()
        state.begin(NONE)
        layer(other, state)
        state.commit(torch.tensor([True, False, True]))
    assert torch.equal(state.read(layer, x, 2)[1], kept[1])
    assert torch.equal(state.read(layer, x, 2)[[0, 2]], other[[0, 2], -2:])


def test_what_is_not_committed_is_forgotten() -> None:
    layer = CausalConv(2, 2, 3)
    x = torch.ones(3, 4, 2)
    state = SlotState(3)
    state.begin(NONE)
    layer(x, state)
    state.begin(NONE)
    state.commit(ALL)
    assert not state.read(layer, x, 2).any()


def test_a_reset_gives_zeros_even_after_a_broken_number() -> None:
    layer = CausalConv(2, 2, 3)
    x = torch.ones(3, 4, 2)
    x[1] = float("nan")
    state = SlotState(3)
    state.begin(NONE)
    layer(x, state)
    state.commit(ALL)
    assert state.read(layer, x, 2)[1].isnan().all()
    state.begin(torch.tensor([False, True, False]))
    state.commit(ALL)
    assert not state.read(layer, x, 2)[1].any()
    assert state.read(layer, x, 2)[0].all()
