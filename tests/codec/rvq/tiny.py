"""A codec of the true architecture that is too small to be of use, for tests of what does not depend on its weights."""

from __future__ import annotations

import torch

from codec.rvq.checkpoint import Checkpoint
from codec.rvq.model import RvqCodec, RvqConfig

TINY = RvqConfig(codebooks=4, codebook_size=16, latent=8, fine=8, coarse=12)


def tiny_codec(seed: int = 0) -> RvqCodec:
    """Random weights, with codebooks that the random latents make use of."""
    torch.manual_seed(seed)
    codec = RvqCodec(TINY)
    samples = 0.1 * torch.randn(4, 1920 * 20) * torch.rand(4, 1).exp()
    with torch.no_grad():
        latent = codec.encoder(samples).transpose(1, 2).reshape(-1, TINY.latent)
    codec.quantizer.start_from(latent)
    return codec.eval().requires_grad_(False)


def tiny_checkpoint(seed: int = 0) -> Checkpoint:
    return Checkpoint(tiny_codec(seed), TINY.identity("test"))
