"""Causal convolutions, over a whole sequence or frame by frame.

Without `streams` a call is a whole sequence. With them it is the next frame of every stream, and the left context comes
from, and goes to, the stream's state; both ways give the same numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .streams import Buffers, Layout, Streaming, Streams


class CausalConv1d(Streaming):
    """A convolution that sees the past only. Maps [B, `inputs`, T] to [B, `outputs`, T / `stride`].

    `replicate`: before the beginning lies the first sample repeated, not silence. T must be a multiple of `stride`.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        stride: int = 1,
        dilation: int = 1,
        bias: bool = True,
        replicate: bool = False,
    ) -> None:
        super().__init__()
        self.stride = stride
        self.dilation = dilation
        self.replicate = replicate
        self.context = (kernel - 1) * dilation + 1 - stride
        self.weight = nn.Parameter(torch.zeros(outputs, inputs, kernel))
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None

    def buffers_for(self, layout: Layout) -> Buffers:
        shape = (layout.batch, self.weight.shape[1], self.context)
        return Buffers({"tail": torch.zeros(shape, device=layout.device, dtype=layout.dtype)}, {})

    def forward(self, x: Tensor, streams: Streams | None = None) -> Tensor:
        if self.context:
            x = torch.cat([self._left(x, streams), x], dim=-1)
            if streams is not None:
                streams.keep(streams.of(self).tails["tail"], x[..., -self.context :])
        return F.conv1d(x, self.weight, self.bias, self.stride, 0, self.dilation)

    def _left(self, x: Tensor, streams: Streams | None) -> Tensor:
        first = x[..., :1].expand(-1, -1, self.context)
        if streams is None:
            return first if self.replicate else torch.zeros_like(first)
        tail = streams.of(self).tails["tail"]
        if not self.replicate:
            return tail
        return torch.where((streams.position == 0).view(-1, 1, 1), first, tail)


class CausalConvTranspose1d(Streaming):
    """A transposed convolution cut at the right. Maps [B, `inputs`, T] to [B, `outputs`, T * `stride`].

    One matrix product and an overlap-add: on a CPU that is twice as fast as torch's own kernel for a few steps.
    `kernel` is a multiple of `stride`. `matrix` is the usual weight [inputs, outputs, kernel] laid out as
    [outputs * kernel, inputs]; `depthwise`: every channel for itself, `matrix` [channels, kernel].
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, *, bias: bool, depthwise: bool) -> None:
        super().__init__()
        self.outputs = outputs
        self.stride = stride
        self.overlap = kernel // stride - 1
        self.depthwise = depthwise
        self.matrix = nn.Parameter(torch.zeros((inputs, kernel) if depthwise else (outputs * kernel, inputs)))
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None

    def buffers_for(self, layout: Layout) -> Buffers:
        shape = (layout.batch, self.outputs, self.overlap, self.stride)
        return Buffers({"partial": torch.zeros(shape, device=layout.device, dtype=layout.dtype)}, {})

    def forward(self, x: Tensor, streams: Streams | None = None) -> Tensor:
        batch, _, steps = x.shape
        every = self.matrix[:, :, None] * x[:, :, None] if self.depthwise else torch.matmul(self.matrix, x)
        # [B, outputs, block of the kernel, sample of the block, T]
        blocks = every.view(batch, self.outputs, self.overlap + 1, self.stride, steps)
        total = x.new_zeros(batch, self.outputs, steps + self.overlap, self.stride)
        for block in range(self.overlap + 1):
            total[:, :, block : block + steps] += blocks[:, :, block].transpose(2, 3)
        if streams is not None and self.overlap:
            partial = streams.of(self).tails["partial"]
            total[:, :, : self.overlap] += partial
            streams.keep(partial, total[:, :, steps:])
        out = total[:, :, :steps].reshape(batch, self.outputs, steps * self.stride)
        return out if self.bias is None else out + self.bias[:, None]
