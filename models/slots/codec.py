"""What a codec must do to serve a batch of slots."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from codec.identity import CodecIdentity


class SlotCodec(Protocol):
    """Hears and speaks for a fixed batch of slots, one frame at a time. Used from one thread.

    The two directions are apart: a rewind takes back what was said, never what was heard.
    """

    @property
    def identity(self) -> CodecIdentity: ...

    @property
    def silence(self) -> Tensor:
        """Codes of silence that has gone on for a while, int64 [codebooks]."""

    def reset(self, mask: Tensor) -> None:
        """Zero all state of the slots where `mask`, bool [batch], is true."""

    def rewind(self, back: Tensor) -> None:
        """Take the decoder of every slot back by so many frames, int64 [batch], but not before its first."""

    def encode(self, pcm: Tensor, run: Tensor) -> tuple[Tensor, Tensor]:
        """PCM float32 [batch, hop] of the slots where `run` to codes int64 [batch, codebooks], and which are finite."""

    def decode(self, codes: Tensor, run: Tensor) -> tuple[Tensor, Tensor]:
        """Codes int64 [batch, codebooks] of the slots where `run` to PCM float32 [batch, hop], and which are finite."""
