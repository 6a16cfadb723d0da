"""Residual vector quantization: each codebook names the nearest entry to what the ones before it left over.

As in SoundStream (Zeghidour et al., 2021, arXiv 2107.03312, section III-C): codebooks are moving averages of what fell
to them, they start from k-means, entries out of use are put where data is, and in training a random number of
codebooks is used, so that any first few of them make a codec.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_DECAY = 0.99
_KMEANS_ROUNDS = 8
_DEAD = 0.01
"""An entry is out of use when it gets less than this part of an equal share."""
_REVIVED = 0.3
"""The part of an equal share with which it starts anew."""
_MOST_REVIVED = 8
"""Per codebook and step, so that the codes of most of the space stay what they were."""


class ResidualQuantizer(nn.Module):
    """`levels` codebooks of `size` vectors of `width` values."""

    entries: Tensor
    use: Tensor
    sums: Tensor

    def __init__(self, levels: int, size: int, width: int) -> None:
        super().__init__()
        self.levels, self.size, self.width = levels, size, width
        self.register_buffer("entries", torch.zeros(levels, size, width))
        self.register_buffer("use", torch.ones(levels, size), persistent=False)
        self.register_buffer("sums", torch.zeros(levels, size, width), persistent=False)

    @torch.no_grad()
    def norms(self) -> Tensor:
        """Squared length of every entry, [levels, size]."""
        return (self.entries**2).sum(2)

    @torch.no_grad()
    def encode(self, latent: Tensor, levels: int | None = None, norms: Tensor | None = None) -> Tensor:
        """Latent [batch, width, steps] to codes, int64 [batch, levels, steps], by the first `levels` codebooks.

        Who encodes often gives `norms()`, which take longer than the rest of it for a single vector.
        """
        batch, _, steps = latent.shape
        norms = self.norms() if norms is None else norms
        rest = latent.transpose(1, 2).reshape(-1, self.width)
        codes = []
        for level in range(levels or self.levels):
            nearest = self._nearest(rest, level, norms[level])
            rest = rest - self.entries[level][nearest]
            codes.append(nearest.view(batch, steps))
        return torch.stack(codes, 1)

    def decode(self, codes: Tensor) -> Tensor:
        """Codes, int64 [batch, levels, steps], to latent [batch, width, steps]; any first few levels will do."""
        latent = self.entries[0][codes[:, 0]]
        for level in range(1, codes.shape[1]):
            latent = latent + self.entries[level][codes[:, level]]
        return latent.transpose(1, 2)

    def forward(self, latent: Tensor, levels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """For training: `latent` [batch, width, steps] by the first `levels` [batch] codebooks of each item.

        Gives the quantized latent, whose gradient goes straight through; the commitment loss, a mean square; and the
        codes [batch, all levels, steps]. In training mode the codebooks follow the data.
        """
        batch, width, steps = latent.shape
        rest = latent.detach().transpose(1, 2).reshape(-1, width)
        total = torch.zeros_like(rest)
        codes = []
        for level in range(self.levels):
            used = (levels > level).repeat_interleave(steps)
            nearest = self._nearest(rest, level)
            codes.append(nearest.view(batch, steps))
            chosen = self.entries[level][nearest] * used[:, None]
            if self.training and bool(used.any()):
                self._follow(level, rest[used], nearest[used])
            total, rest = total + chosen, rest - chosen
        quantized = total.view(batch, steps, width).transpose(1, 2)
        return latent + (quantized - latent).detach(), F.mse_loss(latent, quantized), torch.stack(codes, 1)

    @torch.no_grad()
    def start_from(self, latents: Tensor) -> None:
        """k-means, level after level, on `latents` [n, width] (Lloyd's algorithm from random members)."""
        rest = latents.clone()
        for level in range(self.levels):
            enough = len(rest) >= self.size
            members = torch.randperm(len(rest))[: self.size] if enough else torch.randint(len(rest), (self.size,))
            self.entries[level] = rest[members]
            for _ in range(_KMEANS_ROUNDS):
                nearest = self._nearest(rest, level)
                count = torch.bincount(nearest, minlength=self.size).to(rest.dtype)
                sums = torch.zeros_like(self.entries[level]).index_add_(0, nearest, rest)
                stray = rest[torch.randint(len(rest), (self.size,))]
                self.entries[level] = torch.where(count[:, None] > 0, sums / count.clamp_min(1)[:, None], stray)
            rest = rest - self.entries[level][self._nearest(rest, level)]
        self.restart_averages(1.0)

    @torch.no_grad()
    def restart_averages(self, share: float) -> None:
        """Begin the moving averages at the present entries, each with `share` vectors a step."""
        self.use.fill_(share)
        self.sums.copy_(self.entries * share)

    @torch.no_grad()
    def _nearest(self, rest: Tensor, level: int, norms: Tensor | None = None) -> Tensor:
        entries = self.entries[level]
        norms = (entries**2).sum(1) if norms is None else norms
        return torch.addmm(norms, rest, entries.T, alpha=-2.0).argmin(1)

    @torch.no_grad()
    def _follow(self, level: int, rest: Tensor, nearest: Tensor) -> None:
        use, sums = self.use[level], self.sums[level]
        use.mul_(_DECAY).add_(torch.bincount(nearest, minlength=self.size).to(use.dtype), alpha=1 - _DECAY)
        sums.mul_(_DECAY).index_add_(0, nearest, rest, alpha=1 - _DECAY)
        self.entries[level] = sums / (use + 1e-6)[:, None]
        share = len(rest) / self.size
        dead = (use < _DEAD * share).nonzero()[:_MOST_REVIVED, 0]
        if len(dead):
            revived = rest[torch.randint(len(rest), (len(dead),))]
            self.entries[level][dead] = revived
            use[dead] = _REVIVED * share
            sums[dead] = revived * (_REVIVED * share)
