"""The depth transformer: the codebooks of one frame, one after the other, with weights of its own for each."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from codec.mimi.transformer import Gated, RMSNorm

from .config import DepthConfig, MoshiConfig

Draw = Callable[[Tensor, int], Tensor]
"""Logits [batch, codebook size] and the codebook's number to codes int64 [batch]."""

_EPSILON = 1e-8


class DepthLayer(nn.Module):
    """One layer; its keys and values live for one frame only."""

    def __init__(self, config: DepthConfig) -> None:
        super().__init__()
        width, sets = config.dimension, max(config.schedule) + 1
        self.heads = config.heads
        self.norm1 = RMSNorm(width, _EPSILON)
        self.norm2 = RMSNorm(width, _EPSILON)
        self.in_projs = nn.ModuleList(nn.Linear(width, 3 * width, bias=False) for _ in range(sets))
        self.out_projs = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(sets))
        self.gating = nn.ModuleList(Gated(width, config.hidden) for _ in range(sets))

    def forward(self, x: Tensor, weights: int, place: int, cache: Tensor) -> Tensor:
        """x [batch, dimension], the `place`th of the frame; `cache` [batch, codebooks, 2, heads, head] gets its key."""
        query, new = self.in_projs[weights](self.norm1(x)).unflatten(1, (3, self.heads, -1)).split([1, 2], dim=1)
        cache.select(1, place).copy_(new)
        keys, values = cache.narrow(1, 0, place + 1).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(query.transpose(1, 2), keys, values)
        x = x + self.out_projs[weights](mixed.flatten(1))
        out: Tensor = x + self.gating[weights](self.norm2(x))
        return out


class DepthTransformer(nn.Module):
    """From what the temporal transformer made of a frame, and its text, to the agent's codes.

    `inputs`: the projections of all codebooks in one matrix, since what they project is known before the first.
    """

    def __init__(self, config: MoshiConfig) -> None:
        super().__init__()
        depth = config.depth
        self.config = depth
        self.agent = config.agent
        sets = 1 if depth.shared_input else max(depth.schedule) + 1
        self.inputs = nn.Linear(config.temporal.dimension, sets * depth.dimension, bias=False)
        self.text_emb = nn.Embedding(config.text_tokens + 1, depth.dimension)
        self.emb = nn.ModuleList(
            nn.Embedding(config.codebook_size + 1, depth.dimension) for _ in range(config.agent - 1)
        )
        self.layers = nn.ModuleList(DepthLayer(depth) for _ in range(depth.layers))
        self.linears = nn.ModuleList(
            nn.Linear(depth.dimension, config.codebook_size, bias=config.biased) for _ in range(config.agent)
        )

    def forward(self, hidden: Tensor, text: Tensor, draw: Draw) -> Tensor:
        """hidden [batch, temporal dimension], text int64 [batch]; returns codes int64 [batch, agent codebooks]."""
        depth, batch = self.config, hidden.shape[0]
        projected = self.inputs(hidden).unflatten(1, (-1, depth.dimension)).unbind(1)
        head = depth.dimension // depth.heads
        caches = hidden.new_empty(depth.layers, batch, self.agent, 2, depth.heads, head)
        codes: list[Tensor] = []
        for place, weights in enumerate(depth.schedule):
            said = self.text_emb(text) if place == 0 else self.emb[place - 1](codes[-1])
            x = projected[0 if depth.shared_input else weights] + said
            for layer, cache in zip(self.layers, caches, strict=True):
                x = layer(x, weights, place, cache)
            codes.append(draw(self.linears[place](x), place))
        return torch.stack(codes, dim=1)
