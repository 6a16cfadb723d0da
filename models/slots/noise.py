"""Sampling whose noise depends on who samples, when and what, and on nothing else.

The noise of a token is a hash of (session seed, frame, stream, token), so a session draws the same wherever its slot
lies, whatever its neighbours do, and once more when it is replayed. Adding Gumbel noise to logits and taking the
largest is drawing from their softmax (Gumbel, 1954; Maddison et al., 2014, arXiv:1411.0030).
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

_BITS = 16
"""The noise comes from a table of 2**16 quantiles: exact on every device, where logarithms differ in the last bit. A
token less likely than about 1e-5 is thereby never drawn."""
_SEED, _FRAME, _STREAM, _TOKEN = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F
_MIX = (0x7FEB352D, 0x846CA68B)
"""Multipliers of a 32-bit mixer (Wellons, "Prospecting for Hash Functions", 2018)."""

TEXT_STREAM: int = 0
"""Stream of the inner text; audio codebook q is stream q + 1."""


def keys(seed: Tensor, frame: Tensor, streams: int) -> Tensor:
    """What the noise of one frame hangs on, int32 [streams, batch], for seeds (0..2**31-1) and frames int64 [batch]."""
    numbers = torch.arange(streams, device=seed.device)[:, None]
    return _int32(seed * _SEED + frame * _FRAME + numbers * _STREAM)


def gumbel(key: Tensor, tokens: Tensor) -> Tensor:
    """Standard Gumbel noise, float32 [batch, n], for the `keys` of one stream, int32 [batch].

    `tokens` int64, 0..2**31-1: which tokens it is for, [n] the same for all rows or [batch, n].
    """
    device = key.device
    token, first, second = (_number(_signed(factor), device) for factor in (_TOKEN, *_MIX))
    x = key.unsqueeze(1) ^ tokens.int() * token
    x = (x ^ _shift(x, 16)) * first
    x = (x ^ _shift(x, 15)) * second
    # The mixer's last step, `x ^ _shift(x, 16)`, leaves the upper bits as they are.
    x = _shift(x, 32 - _BITS)
    return torch.index_select(_quantiles(device), 0, x.flatten()).view(x.shape)


def sample(logits: Tensor, key: Tensor, *, temperature: float = 1.0, top_k: int = 0) -> Tensor:
    """One token per row of `logits` [batch, tokens], int64 [batch], with the `keys` of one stream, int32 [batch].

    `temperature` 0: the likeliest. `top_k`: only among so many of the likeliest (0: among all).
    """
    # `max` and not `argmax`: on a CPU it is three times as fast.
    if temperature <= 0:
        return logits.max(-1).indices
    if 0 < top_k < logits.shape[-1]:
        scores, tokens = logits.float().topk(top_k, dim=-1, sorted=False)
    else:
        scores, tokens = logits.float(), torch.arange(logits.shape[-1], device=logits.device)
    # Noise times temperature, as it were logits divided by it.
    chosen = torch.add(scores, gumbel(key, tokens), alpha=temperature).max(-1, keepdim=True).indices
    return tokens.expand_as(scores).gather(-1, chosen).squeeze(1)


def _signed(value: int) -> int:
    return value - (1 << 32) if value >= 1 << 31 else value


@lru_cache(maxsize=32)
def _number(value: int, device: torch.device) -> Tensor:
    """As int32 []: a plain number is made one anew, and converted, each time that it is combined with a tensor."""
    return torch.tensor(value, dtype=torch.int32, device=device)


def _int32(x: Tensor) -> Tensor:
    """The low 32 bits of int64 as int32."""
    low = x & 0xFFFFFFFF
    return torch.where(low >= 1 << 31, low - (1 << 32), low).int()


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical shift to the right: torch's is arithmetic."""
    return (x >> _number(bits, x.device)) & _number((1 << (32 - bits)) - 1, x.device)


@lru_cache(maxsize=8)
def _quantiles(device: torch.device) -> Tensor:
    size = 1 << _BITS
    return torch.tensor([-math.log(-math.log((n + 0.5) / size)) for n in range(size)], device=device)
