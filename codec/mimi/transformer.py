"""A causal transformer with a bounded window, over a whole sequence or step by step with ring caches.

Mimi's two transformers and Moshi's temporal one are made of it: they differ in norms, gating and LayerScale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .streams import Buffers, Layout, Streaming, Streams


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerConfig:
    """Sizes. `hidden` is the width inside the feed-forward part (with `gated`: of each of its two halves)."""

    dimension: int
    heads: int
    layers: int
    hidden: int
    context: int
    """Steps that attention reaches back, the present one included."""
    period: float
    """Longest period of the rotary embedding."""
    norm: Literal["layer", "rms"]
    epsilon: float
    gated: bool
    """SiLU gate, else GELU."""
    scaled: bool
    """LayerScale on both branches."""
    steps: int = 1
    """Steps that one frame brings."""


@dataclass(frozen=True, slots=True)
class Attend:
    """Where this call stands: the same for all layers."""

    turn: Tensor
    """By what the rotary embedding turns pairs: complex64 [B or 1, 1, T, head / 2], of magnitude 1."""
    mask: Tensor
    """What is added to scores, [B or 1, 1, T, keys]: 0, and minus infinity for what is not seen."""
    rows: Tensor | None
    """int64 [B, 1]; None for a whole sequence."""
    cells: Tensor | None
    """int64 [B, T]: ring cells that the new keys go to."""


class RMSNorm(nn.Module):
    """Root-mean-square norm, computed in float32 whatever the dtype of [..., dimension]."""

    def __init__(self, dimension: int, epsilon: float) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(dimension))
        self.epsilon = epsilon
        self._dimension = dimension
        self._floor = torch.tensor(epsilon, dtype=torch.float32, device="cpu")

    def forward(self, x: Tensor) -> Tensor:
        if x.device.type != "cpu":
            return F.rms_norm(x.float(), self.alpha.shape, self.alpha.float(), self.epsilon).to(x.dtype)
        # The same in half the time: there `rms_norm` is no operation of its own but eleven small ones.
        norm = torch.linalg.vector_norm(x.float(), dim=-1, keepdim=True)
        scale = torch.addcmul(self._floor, norm, norm, value=1 / self._dimension).rsqrt()
        return (x * scale * self.alpha).to(x.dtype)


class Gated(nn.Module):
    """Feed-forward with a SiLU gate, [..., dimension] to the same."""

    def __init__(self, dimension: int, hidden: int) -> None:
        super().__init__()
        self.linear_in = nn.Linear(dimension, 2 * hidden, bias=False)
        self.linear_out = nn.Linear(hidden, dimension, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.linear_in(x).chunk(2, dim=-1)
        out: Tensor = self.linear_out(F.silu(gate) * value)
        return out


class FeedForward(nn.Module):
    """Feed-forward with GELU, [..., dimension] to the same."""

    def __init__(self, dimension: int, hidden: int) -> None:
        super().__init__()
        self.linear1 = nn.Linear(dimension, hidden, bias=False)
        self.linear2 = nn.Linear(hidden, dimension, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear2(F.gelu(self.linear1(x)))
        return out


class Attention(Streaming):
    """Self-attention. The ring holds the window, the steps of one frame, and the margin of a rewind."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.head = config.dimension // config.heads
        self.in_proj = nn.Linear(config.dimension, 3 * config.dimension, bias=False)
        self.out_proj = nn.Linear(config.dimension, config.dimension, bias=False)

    def buffers_for(self, layout: Layout) -> Buffers:
        cells = ring_cells(self.config, layout.margin)
        values = torch.zeros(
            (layout.batch, self.config.heads, cells, self.head), device=layout.device, dtype=layout.dtype
        )
        # Keys lie across: one query against many keys is then read in order, which halves its time on a CPU.
        return Buffers({}, {"keys": values.transpose(2, 3).contiguous(), "values": values})

    def forward(self, x: Tensor, attend: Attend, streams: Streams | None) -> Tensor:
        batch, steps, _ = x.shape
        projected = self.in_proj(x).view(batch, steps, 3, self.config.heads, self.head)
        query_key, value = projected.permute(2, 0, 3, 1, 4).split([2, 1])
        (query, key), value = _turn(query_key, attend).unbind(0), value[0]
        if streams is None or attend.rows is None or attend.cells is None:
            out = F.scaled_dot_product_attention(query, key, value, attn_mask=attend.mask)
        else:
            rings = streams.of(self).rings
            keys, values = rings["keys"], rings["values"]
            # A stream that does not run writes too, but only to cells that its next real step will overwrite.
            keys[attend.rows, :, :, attend.cells] = key.transpose(1, 2).to(keys.dtype)
            values[attend.rows, :, attend.cells] = value.transpose(1, 2).to(values.dtype)
            scores = torch.matmul(query * self.head**-0.5, keys).add_(attend.mask)
            out = torch.matmul(scores.softmax(-1, dtype=torch.float32).to(values.dtype), values)
        mixed: Tensor = self.out_proj(out.transpose(1, 2).reshape(batch, steps, self.config.dimension))
        return mixed


class Layer(nn.Module):
    """One layer, pre-norm: [B, T, dimension] to the same."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.norm1 = make_norm(config)
        self.self_attn = Attention(config)
        self.norm2 = make_norm(config)
        self.feed = (Gated if config.gated else FeedForward)(config.dimension, config.hidden)
        self.scale1 = nn.Parameter(torch.ones(config.dimension)) if config.scaled else None
        self.scale2 = nn.Parameter(torch.ones(config.dimension)) if config.scaled else None

    def forward(self, x: Tensor, attend: Attend, streams: Streams | None) -> Tensor:
        update = self.self_attn(self.norm1(x), attend, streams)
        x = x + (update if self.scale1 is None else update * self.scale1)
        update = self.feed(self.norm2(x))
        out: Tensor = x + (update if self.scale2 is None else update * self.scale2)
        return out


class Transformer(nn.Module):
    """Layers over [B, T, dimension]. With `streams`, T is `config.steps`: the steps of one frame."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))

    def forward(self, x: Tensor, streams: Streams | None = None) -> Tensor:
        steps = x.shape[1]
        attend = whole(self.config, steps, x) if streams is None else step(self.config, streams, x)
        for layer in self.layers:
            x = layer(x, attend, streams)
        return x


def make_norm(config: TransformerConfig) -> nn.Module:
    if config.norm == "rms":
        return RMSNorm(config.dimension, config.epsilon)
    return nn.LayerNorm(config.dimension, eps=config.epsilon)


def ring_cells(config: TransformerConfig, margin: int) -> int:
    """Cells of a ring: a frame of several steps must not overwrite what its own first step still sees."""
    return config.context + config.steps - 1 + margin * config.steps


def whole(config: TransformerConfig, steps: int, like: Tensor) -> Attend:
    """A whole sequence from its beginning."""
    positions = torch.arange(steps, device=like.device)
    distance = positions[:, None] - positions[None, :]
    visible = (distance >= 0) & (distance < config.context)
    return Attend(_turns(config, positions[None]), _mask(visible[None, None], like.dtype), None, None)


def step(config: TransformerConfig, streams: Streams, like: Tensor) -> Attend:
    """The next frame of every stream.

    Position p lies in cell p modulo the ring's length, so the newest position tells which one each cell holds. What a
    rewind left behind reads as older than the window and is not seen.
    """
    cells = ring_cells(config, streams.margin)
    first = streams.position[:, None] * config.steps
    positions = first + torch.arange(config.steps, device=like.device)
    newest = positions[:, -1:]
    age = (newest - torch.arange(cells, device=like.device)) % cells
    held = newest - age
    distance = positions[:, :, None] - held[:, None, :]
    visible = (held[:, None, :] >= 0) & (distance >= 0) & (distance < config.context)
    rows = torch.arange(len(positions), device=like.device)[:, None]
    return Attend(_turns(config, positions), _mask(visible[:, None], like.dtype), rows, positions % cells)


def _mask(visible: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros_like(visible, dtype=dtype).masked_fill_(~visible, -torch.inf)


def _turns(config: TransformerConfig, positions: Tensor) -> Tensor:
    """Rotations, complex64 [B, 1, T, head / 2], for positions [B, T].

    In float64: in float32 an angle at position 135,000 (three hours) is off by up to a hundredth of a radian.
    """
    half = config.dimension // config.heads // 2
    rates = torch.exp(
        torch.arange(half, device=positions.device, dtype=torch.float64) * (-math.log(config.period) / half)
    )
    angles = positions[:, None, :, None].double() * rates
    return torch.complex(angles.cos().float(), angles.sin().float())


def _turn(x: Tensor, attend: Attend) -> Tensor:
    """Rotary embedding (Su et al., 2021, arXiv:2104.09864) of neighbouring pairs, [..., B, heads, T, head]."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * attend.turn).flatten(-2).to(x.dtype)
