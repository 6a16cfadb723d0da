"""Drawing tokens for many rows at once, each with noise of its own."""

from __future__ import annotations

import torch
from torch import Tensor

from ...slots.noise import gumbel


def draw(logits: Tensor, key: Tensor, temperature: Tensor | float, top_k: int = 0, top_p: float = 1.0) -> Tensor:
    """One token for each row of `logits` [rows, tokens], int64 [rows].

    `key`: int32 [rows], of `models.slots.noise.keys`. `temperature`: [rows] or one for all; 0 takes the likeliest.
    `top_k`: among so many of the likeliest (0: all). `top_p`: among the likeliest that together have this probability.
    """
    scores = logits.float()
    heat = torch.as_tensor(temperature, dtype=torch.float32, device=scores.device).expand(scores.shape[0])
    if bool((heat <= 0).all()):
        return scores.max(-1).indices
    cold = heat <= 0
    scores = scores / torch.where(cold, 1.0, heat)[:, None]
    values, tokens = scores.topk(min(top_k or scores.shape[-1], scores.shape[-1]), dim=-1)
    if top_p < 1:
        shares = values.softmax(-1)
        values = values.masked_fill(shares.cumsum(-1) - shares >= top_p, -torch.inf)
    noisy = values + gumbel(key, tokens) * ~cold[:, None]
    return tokens.gather(-1, noisy.max(-1, keepdim=True).indices)[:, 0]
