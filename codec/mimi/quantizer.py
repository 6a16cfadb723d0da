"""Split residual vector quantization: the semantic codebook beside the acoustic ones, not before them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .config import MimiConfig


class ResidualQuantizer(nn.Module):
    """`count` codebooks, each quantizing what the ones before it left over.

    `codebooks`: [count, size, codebook dimension]. Projections are convolutions of width 1, here matrices.
    """

    def __init__(self, config: MimiConfig, count: int) -> None:
        super().__init__()
        shape = (count, config.codebook_size, config.codebook_dimension)
        self.codebooks = nn.Parameter(torch.zeros(shape))
        self.input_proj = nn.Linear(config.dimension, config.codebook_dimension, bias=False)
        self.output_proj = nn.Linear(config.codebook_dimension, config.dimension, bias=False)

    def encode(self, x: Tensor) -> Tensor:
        """Features [N, dimension] to codes int64 [N, count]."""
        rest = self.input_proj(x)
        codes = []
        for table in self.codebooks:
            # Without the length of x itself, which is the same for all entries.
            nearest = (table.square().sum(-1) - 2 * rest @ table.T).argmin(-1)
            rest = rest - F.embedding(nearest, table)
            codes.append(nearest)
        return torch.stack(codes, dim=-1)

    def decode(self, codes: Tensor) -> Tensor:
        """Codes int64 [N, count] to features [N, dimension]."""
        count, size, dimension = self.codebooks.shape
        offsets = torch.arange(count, device=codes.device) * size
        found = F.embedding(codes + offsets, self.codebooks.view(count * size, dimension)).sum(dim=1)
        out: Tensor = self.output_proj(found)
        return out


class SplitQuantizer(nn.Module):
    """The semantic and the acoustic quantizer; both see the whole signal, and what they say is added.

    `acoustic` may be fewer than the checkpoint has: residual codebooks can be left off at the end.
    """

    def __init__(self, config: MimiConfig, acoustic: int) -> None:
        super().__init__()
        self.semantic = ResidualQuantizer(config, config.semantic)
        self.acoustic = ResidualQuantizer(config, acoustic)

    def encode(self, x: Tensor) -> Tensor:
        """Features [N, dimension] to codes int64 [N, codebooks], semantic first."""
        return torch.cat([self.semantic.encode(x), self.acoustic.encode(x)], dim=-1)

    def decode(self, codes: Tensor) -> Tensor:
        """Codes int64 [N, codebooks] to features [N, dimension]."""
        split = self.semantic.codebooks.shape[0]
        return self.semantic.decode(codes[:, :split]) + self.acoustic.decode(codes[:, split:])
