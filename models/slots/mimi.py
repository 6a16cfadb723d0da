"""Mimi for a batch of slots."""

from __future__ import annotations

import torch
from torch import Tensor

from codec.identity import CodecIdentity
from codec.mimi.model import Mimi
from codec.mimi.streams import Streams

_SETTLING = 25
"""Frames of silence after which its codes are taken for those of silence: two seconds."""


class MimiSlots:
    """`SlotCodec` over a `Mimi`. `margin`: frames by which the decoder can be rewound."""

    def __init__(self, mimi: Mimi, batch: int, *, margin: int = 0) -> None:
        self._mimi = mimi
        self.identity: CodecIdentity = mimi.identity
        self.encoding = Streams(mimi.encoding, batch)
        self.decoding = Streams(mimi.decoding, batch, margin=margin)
        self.silence: Tensor = _silence(mimi)

    @property
    def bytes(self) -> int:
        """Memory that the state of all slots takes."""
        return self.encoding.bytes + self.decoding.bytes

    def reset(self, mask: Tensor) -> None:
        self.encoding.reset(mask)
        self.decoding.reset(mask)

    def rewind(self, back: Tensor) -> None:
        self.decoding.rewind(torch.minimum(back, self.decoding.position))

    def encode(self, pcm: Tensor, run: Tensor) -> tuple[Tensor, Tensor]:
        self.encoding.begin(run)
        features = self._mimi.encoding(pcm[:, None].to(self._mimi.dtype), self.encoding)[..., 0]
        self.encoding.end()
        return self._mimi.quantizer.encode(features), torch.isfinite(features).all(-1)

    def decode(self, codes: Tensor, run: Tensor) -> tuple[Tensor, Tensor]:
        self.decoding.begin(run)
        pcm = self._mimi.decode(codes[..., None], self.decoding).float()
        self.decoding.end()
        return pcm, torch.isfinite(pcm).all(-1)


def _silence(mimi: Mimi) -> Tensor:
    pcm = torch.zeros(1, mimi.config.hop * _SETTLING, device=mimi.quantizer.semantic.codebooks.device)
    return mimi.encode(pcm)[0, :, -1].contiguous()
