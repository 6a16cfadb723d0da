"""Causal convolutions against torch's own, whole and in pieces."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from codec.mimi.convolution import CausalConv1d, CausalConvTranspose1d
from codec.mimi.streams import Streams


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def in_pieces(module: nn.Module, x: torch.Tensor, length: int) -> torch.Tensor:
    streams = Streams(module, x.shape[0])
    out = []
    for piece in x.split(length, dim=-1):
        streams.begin(torch.ones(x.shape[0], dtype=torch.bool))
        out.append(module(piece, streams))
        streams.end()
    return torch.cat(out, dim=-1)


@pytest.mark.parametrize(("kernel", "stride", "dilation"), [(1, 1, 1), (3, 1, 1), (7, 1, 2), (8, 4, 1), (4, 2, 1)])
@pytest.mark.parametrize("replicate", [False, True])
def test_a_causal_convolution_is_torchs_with_left_padding(
    kernel: int, stride: int, dilation: int, replicate: bool
) -> None:
    conv = CausalConv1d(4, 6, kernel, stride=stride, dilation=dilation, replicate=replicate)
    conv.weight.data, bias = noise(6, 4, kernel), noise(6)
    conv.bias = nn.Parameter(bias)
    x = noise(2, 4, 32)
    padded = F.pad(x, (conv.context, 0), mode="replicate" if replicate and conv.context else "constant")
    wanted = F.conv1d(padded, conv.weight, bias, stride, 0, dilation)
    torch.testing.assert_close(conv(x), wanted)
    torch.testing.assert_close(in_pieces(conv, x, 8), wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("kernel", "stride"), [(4, 2), (16, 8), (5, 5), (6, 2)])
@pytest.mark.parametrize("depthwise", [False, True])
def test_a_matrix_product_and_overlap_add_are_a_transposed_convolution(
    kernel: int, stride: int, depthwise: bool
) -> None:
    outputs = 4 if depthwise else 6
    weight, bias = noise(4, 1 if depthwise else outputs, kernel), noise(outputs)
    ours = CausalConvTranspose1d(4, outputs, kernel, stride, bias=True, depthwise=depthwise)
    ours.matrix.data = weight[:, 0] if depthwise else weight.permute(1, 2, 0).reshape(-1, 4)
    ours.bias = nn.Parameter(bias)
    x = noise(2, 4, 12)
    theirs = F.conv_transpose1d(x, weight, bias, stride, groups=4 if depthwise else 1)
    wanted = theirs[..., : 12 * stride]
    torch.testing.assert_close(ours(x), wanted, atol=1e-5, rtol=0)
    torch.testing.assert_close(in_pieces(ours, x, 1), wanted, atol=1e-5, rtol=0)
    torch.testing.assert_close(in_pieces(ours, x, 3), wanted, atol=1e-5, rtol=0)
