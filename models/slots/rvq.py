"""The small codec of our own for a batch of slots."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from codec.identity import CodecIdentity
from codec.rvq.checkpoint import Checkpoint
from codec.rvq.stream import StreamingRvqDecoder, StreamingRvqEncoder

_SETTLING = 25
"""Frames of silence after which its codes are taken for those of silence: two seconds."""


class RvqSlots:
    """`SlotCodec` over a trained RVQ checkpoint, on the CPU.

    Its decoder is not rewound: it is convolutional and forgets what was said within a few frames, and an agent that was
    cut is silent for longer than that.
    """

    def __init__(self, checkpoint: Checkpoint, slots: int, *, codebooks: int = 8) -> None:
        self._encoder = StreamingRvqEncoder(checkpoint, slots, codebooks=codebooks)
        self._decoder = StreamingRvqDecoder(checkpoint, slots, codebooks=codebooks)
        self._encoder.trace()
        self._decoder.trace()
        self.identity: CodecIdentity = self._encoder.identity
        self._encoder_anew = np.zeros(slots, np.bool_)
        self._decoder_anew = np.zeros(slots, np.bool_)
        self.silence: Tensor = _silence(checkpoint, codebooks)

    def reset(self, mask: Tensor) -> None:
        """Takes effect with the next frame of each direction."""
        anew = mask.cpu().numpy()
        self._encoder_anew |= anew
        self._decoder_anew |= anew

    def rewind(self, back: Tensor) -> None:
        """Nothing to take back; see the class."""

    def encode(self, pcm: Tensor, run: Tensor) -> tuple[Tensor, Tensor]:
        samples = pcm.cpu().numpy()
        finite = np.isfinite(samples).all(axis=1)
        moving = run.cpu().numpy() & finite
        codes = self._encoder.encode(samples, moving, self._encoder_anew)
        self._encoder_anew[:] = False
        return torch.from_numpy(codes), torch.from_numpy(finite)

    def decode(self, codes: Tensor, run: Tensor) -> tuple[Tensor, Tensor]:
        pcm = self._decoder.decode(codes.cpu().numpy(), run.cpu().numpy(), self._decoder_anew)
        self._decoder_anew[:] = False
        return torch.from_numpy(pcm), torch.from_numpy(np.isfinite(pcm).all(axis=1))


def _silence(checkpoint: Checkpoint, codebooks: int) -> Tensor:
    encoder = StreamingRvqEncoder(checkpoint, 1, codebooks=codebooks)
    frame = np.zeros((1, encoder.identity.hop), np.float32)
    run = np.ones(1, np.bool_)
    for first in range(_SETTLING):
        codes = encoder.encode(frame, run, run & (first == 0))
    return torch.from_numpy(codes[0])
