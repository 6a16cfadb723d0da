"""Weights by columns: the same layers, read in another order."""

from __future__ import annotations

import copy

import torch
from torch import nn

from codec.columns import by_columns
from codec.rvq.layers import Patches


def test_values_and_shapes_stay_and_weights_of_one_input_lie_together() -> None:
    for layer, x in ((nn.Linear(6, 4), torch.randn(3, 6)), (Patches(3, 5, 2), torch.randn(2, 8, 3))):
        laid = copy.deepcopy(layer)
        by_columns([laid])
        assert torch.equal(laid.weight, layer.weight)
        assert laid.weight.permute(*reversed(range(layer.weight.dim()))).is_contiguous()
        torch.testing.assert_close(laid(x), layer(x))


def test_laying_them_again_changes_nothing() -> None:
    layer = nn.Linear(6, 4)
    by_columns([layer])
    strides, values = layer.weight.stride(), layer.weight.clone()
    by_columns([layer])
    assert (layer.weight.stride(), torch.equal(layer.weight, values)) == (strides, True)
