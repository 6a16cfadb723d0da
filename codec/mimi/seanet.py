"""SEANet: the convolutional ends of the codec (Tagliasacchi et al., 2020, arXiv:2009.02095), causal."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from .config import MimiConfig
from .convolution import CausalConv1d, CausalConvTranspose1d
from .streams import Streams


class ResidualBlock(nn.Module):
    """Two convolutions over a bottleneck, added to what came in: [B, channels, T] to the same."""

    def __init__(self, channels: int, hidden: int, kernel: int, dilation: int) -> None:
        super().__init__()
        self.first = CausalConv1d(channels, hidden, kernel, dilation=dilation)
        self.second = CausalConv1d(hidden, channels, 1)

    def forward(self, x: Tensor, streams: Streams | None = None) -> Tensor:
        inner: Tensor = self.first(F.elu(x), streams)
        out: Tensor = self.second(F.elu(inner), streams)
        return x + out


class _Stage(nn.Module):
    """One change of rate and its residual blocks."""

    def __init__(self, config: MimiConfig, channels: int, change: nn.Module) -> None:
        super().__init__()
        self.change = change
        self.blocks = nn.ModuleList(
            ResidualBlock(channels, channels // config.compress, config.residual_kernel, config.dilation_base**place)
            for place in range(config.residual_layers)
        )


class EncoderStage(_Stage):
    """Residual blocks, then fewer steps: [B, channels, T] to [B, 2 * channels, T / ratio]."""

    def forward(self, x: Tensor, streams: Streams | None = None) -> Tensor:
        for block in self.blocks:
            x = block(x, streams)
        out: Tensor = self.change(F.elu(x), streams)
        return out


class DecoderStage(_Stage):
    """More steps, then residual blocks: [B, 2 * channels, T] to [B, channels, T * ratio]."""

    def forward(self, x: Tensor, streams: Streams | None = None) -> Tensor:
        x = self.change(F.elu(x), streams)
        for block in self.blocks:
            x = block(x, streams)
        return x


class SeanetEncoder(nn.Module):
    """PCM [B, 1, T] to features [B, dimension, T / product of the ratios]."""

    def __init__(self, config: MimiConfig) -> None:
        super().__init__()
        width = config.filters
        self.first = CausalConv1d(1, width, config.kernel)
        stages = []
        for ratio in reversed(config.ratios):
            stages.append(EncoderStage(config, width, CausalConv1d(width, 2 * width, 2 * ratio, stride=ratio)))
            width *= 2
        self.stages = nn.ModuleList(stages)
        self.last = CausalConv1d(width, config.dimension, config.last_kernel)

    def forward(self, x: Tensor, streams: Streams | None = None) -> Tensor:
        x = self.first(x, streams)
        for stage in self.stages:
            x = stage(x, streams)
        out: Tensor = self.last(F.elu(x), streams)
        return out


class SeanetDecoder(nn.Module):
    """Features [B, dimension, T] to PCM [B, 1, T * product of the ratios]."""

    def __init__(self, config: MimiConfig) -> None:
        super().__init__()
        width = config.filters * 2 ** len(config.ratios)
        self.first = CausalConv1d(config.dimension, width, config.kernel)
        stages = []
        for ratio in config.ratios:
            change = CausalConvTranspose1d(width, width // 2, 2 * ratio, ratio, bias=True, depthwise=False)
            width //= 2
            stages.append(DecoderStage(config, width, change))
        self.stages = nn.ModuleList(stages)
        self.last = CausalConv1d(width, 1, config.last_kernel)

    def forward(self, x: Tensor, streams: Streams | None = None) -> Tensor:
        x = self.first(x, streams)
        for stage in self.stages:
            x = stage(x, streams)
        out: Tensor = self.last(F.elu(x), streams)
        return out
