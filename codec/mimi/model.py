"""The codec: PCM to codes and codes to PCM, for a whole sequence or frame by frame for a batch of streams."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from codec.identity import CodecIdentity

from .config import MimiConfig
from .convolution import CausalConv1d, CausalConvTranspose1d
from .errors import CheckpointTruncated, ConfigInvalid
from .names import is_transformers, translate
from .quantizer import SplitQuantizer
from .seanet import SeanetDecoder, SeanetEncoder
from .streams import Streams
from .transformer import Transformer
from .weights import fill, read_json, read_weights


class MimiEncoder(nn.Module):
    """PCM [B, 1, frames * hop] in -1..1 to features [B, dimension, frames]."""

    def __init__(self, config: MimiConfig) -> None:
        super().__init__()
        self.encoder = SeanetEncoder(config)
        self.encoder_transformer = Transformer(config.transformer)
        stride = config.resample
        self.downsample = CausalConv1d(
            config.dimension, config.dimension, 2 * stride, stride=stride, bias=False, replicate=True
        )

    def forward(self, pcm: Tensor, streams: Streams | None = None) -> Tensor:
        x = self.encoder(pcm, streams)
        x = self.encoder_transformer(x.transpose(1, 2), streams).transpose(1, 2)
        out: Tensor = self.downsample(x, streams)
        return out


class MimiDecoder(nn.Module):
    """Features [B, dimension, frames] to PCM [B, 1, frames * hop]."""

    def __init__(self, config: MimiConfig) -> None:
        super().__init__()
        stride = config.resample
        self.upsample = CausalConvTranspose1d(
            config.dimension, config.dimension, 2 * stride, stride, bias=False, depthwise=True
        )
        self.decoder_transformer = Transformer(config.transformer)
        self.decoder = SeanetDecoder(config)

    def forward(self, x: Tensor, streams: Streams | None = None) -> Tensor:
        x = self.upsample(x, streams)
        x = self.decoder_transformer(x.transpose(1, 2), streams).transpose(1, 2)
        out: Tensor = self.decoder(x, streams)
        return out


class Mimi(nn.Module):
    """A Mimi codec that uses the first `codebooks` of its checkpoint's.

    Encoder and decoder are streamed apart (`Streams(mimi.encoding, ...)`, `Streams(mimi.decoding, ...)`), since a
    rewind takes back what was said, never what was heard.
    """

    def __init__(self, config: MimiConfig, codebooks: int = 8) -> None:
        super().__init__()
        if not config.semantic < codebooks <= config.codebooks:
            raise ConfigInvalid(
                "mimi codebooks", f"{codebooks} is outside {config.semantic + 1}..{config.codebooks} of this checkpoint"
            )
        self.config = config
        self.codebooks = codebooks
        self.encoding = MimiEncoder(config)
        self.decoding = MimiDecoder(config)
        self.quantizer = SplitQuantizer(config, codebooks - config.semantic)

    @torch.no_grad()
    def encode(self, pcm: Tensor, streams: Streams | None = None) -> Tensor:
        """PCM float [B, frames * hop] in -1..1 to codes int64 [B, codebooks, frames].

        With `streams`: one frame of each. Raises ValueError for a length that is no whole number of frames.
        """
        if pcm.dim() != 2 or pcm.shape[-1] % self.config.hop or not pcm.shape[-1]:
            raise ValueError(f"pcm has shape {list(pcm.shape)}; give [batch, frames * {self.config.hop}] samples")
        features = self.encoding(pcm[:, None].to(self.dtype), streams)
        batch, _, frames = features.shape
        codes: Tensor = self.quantizer.encode(features.transpose(1, 2).reshape(batch * frames, -1))
        return codes.view(batch, frames, -1).transpose(1, 2)

    @torch.no_grad()
    def decode(self, codes: Tensor, streams: Streams | None = None) -> Tensor:
        """Codes int64 [B, codebooks, frames] to PCM float [B, frames * hop]. With `streams`: one frame of each.

        A code outside its codebook is the caller's fault and not checked: that would wait for the device.
        """
        if codes.dim() != 3 or codes.shape[1] != self.codebooks:
            raise ValueError(f"codes have shape {list(codes.shape)}; give [batch, {self.codebooks}, frames]")
        batch, _, frames = codes.shape
        features = self.quantizer.decode(codes.transpose(1, 2).reshape(batch * frames, -1))
        pcm: Tensor = self.decoding(features.view(batch, frames, -1).transpose(1, 2), streams)
        return pcm[:, 0]

    @property
    def dtype(self) -> torch.dtype:
        return self.quantizer.semantic.codebooks.dtype

    @property
    def identity(self) -> CodecIdentity:
        """Its version is a digest of the codebooks in use: codes mean the same exactly where these are the same."""
        digest = hashlib.blake2b(digest_size=6)
        for part in (self.quantizer.semantic, self.quantizer.acoustic):
            digest.update(part.codebooks.detach().float().cpu().numpy().tobytes())
        return CodecIdentity(
            "mimi",
            digest.hexdigest(),
            self.config.sample_rate,
            self.config.hop,
            self.codebooks,
            self.config.codebook_size,
        )

    # --- weights -----------------------------------------------------------------------------------------------------

    @classmethod
    def from_weights(
        cls,
        weights: Mapping[str, Tensor],
        config: MimiConfig,
        codebooks: int = 8,
        *,
        where: str = "mimi",
        dtype: torch.dtype = torch.float32,
    ) -> Mimi:
        """From the tensors of a published checkpoint, native or transformers'. Raises CheckpointError."""
        with torch.device("meta"):
            model = cls(config, codebooks)
        translated = translate(weights, config, codebooks, where)
        fill(model, _beneath(translated), where, dtype)
        return model.eval()

    @classmethod
    def load(
        cls,
        path: Path,
        codebooks: int = 8,
        *,
        config: Path | None = None,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> Mimi:
        """From a safetensors file, and `config` beside it (none: the published geometry). Raises CheckpointError."""
        weights = read_weights(path, device)
        if not weights:
            raise CheckpointTruncated(str(path), "holds no tensors; download it again")
        if config is None:
            geometry = MimiConfig()
        elif is_transformers(weights):
            geometry = MimiConfig.from_transformers(read_json(config))
        else:
            geometry = MimiConfig.from_native(read_json(config))
        return cls.from_weights(weights, geometry, codebooks, where=str(path), dtype=dtype)

    @classmethod
    def random(cls, config: MimiConfig, codebooks: int = 8, *, seed: int = 0) -> Mimi:
        """With random weights whose output is noise of moderate level: for tests and demonstrations."""
        generator = torch.Generator().manual_seed(seed)
        model = cls(config, codebooks)
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                weight.data.normal_(0, 0.02, generator=generator)
            elif weight.dim() >= 2:
                fan_in = weight[0].numel()
                if name.endswith("matrix"):
                    fan_in = weight.shape[1] * (1 if "upsample" in name else 2)
                scale = 1.0 if name.endswith("codebooks") else fan_in**-0.5
                weight.data.normal_(0, scale, generator=generator)
            elif "scale" in name:
                weight.data.fill_(0.5)
        # The last convolution sets the level: about -26 dBFS.
        model.decoding.decoder.last.weight.data.mul_(0.05)
        model.requires_grad_(False)
        return model.eval()


def _beneath(names: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The names as they lie in `Mimi`, whose two directions are modules of their own."""
    places = {"encoder": "encoding", "downsample": "encoding", "decoder": "decoding", "upsample": "decoding"}
    return {
        f"{places[first]}.{name}"
        if (first := name.split(".")[0].removesuffix("_transformer")) in places
        else name: tensor
        for name, tensor in names.items()
    }
