"""Geometry of a Mimi codec, read from the configuration that its checkpoint came with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from .errors import ConfigInvalid
from .fields import Fields
from .transformer import TransformerConfig

_SIZES = (
    *("sample_rate", "filters", "dimension", "layers", "heads", "feedforward", "context", "resample"),
    *("codebook_size", "codebook_dimension", "codebooks", "semantic", "compress", "residual_layers"),
    *("kernel", "residual_kernel", "last_kernel", "dilation_base"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MimiConfig:
    """All sizes of a Mimi codec; the defaults are those of the published one. Rates in Hz.

    Raises ConfigInvalid.
    """

    sample_rate: int = 24_000
    ratios: tuple[int, ...] = (8, 6, 5, 4)
    """Rate changes of the decoder, in its order."""
    filters: int = 64
    dimension: int = 512
    kernel: int = 7
    residual_kernel: int = 3
    last_kernel: int = 3
    residual_layers: int = 1
    dilation_base: int = 2
    compress: int = 2
    layers: int = 8
    heads: int = 8
    feedforward: int = 2048
    context: int = 250
    """Transformer steps that attention reaches back, 10 s."""
    rope_period: float = 10_000.0
    resample: int = 2
    """Transformer steps per frame."""
    codebook_size: int = 2048
    codebook_dimension: int = 256
    codebooks: int = 32
    """Codebooks in the checkpoint, the semantic one included."""
    semantic: int = 1

    def __post_init__(self) -> None:
        for name in _SIZES:
            if getattr(self, name) < 1:
                raise ConfigInvalid(f"mimi config {name}", f"{getattr(self, name)} must be at least 1")
        if not self.ratios or min(self.ratios) < 1:
            raise ConfigInvalid("mimi config ratios", f"{self.ratios} must hold whole numbers from 1 on")
        if self.dimension % (2 * self.heads):
            raise ConfigInvalid("mimi config heads", f"{self.heads} heads cannot share {self.dimension} dimensions")
        if self.semantic >= self.codebooks:
            raise ConfigInvalid("mimi config codebooks", f"{self.codebooks} leaves none beside the semantic ones")

    @property
    def hop(self) -> int:
        """Samples per frame, 1920."""
        return math.prod(self.ratios) * self.resample

    @property
    def transformer(self) -> TransformerConfig:
        return TransformerConfig(
            dimension=self.dimension,
            heads=self.heads,
            layers=self.layers,
            hidden=self.feedforward,
            context=self.context,
            period=self.rope_period,
            norm="layer",
            epsilon=1e-5,
            gated=False,
            scaled=True,
            steps=self.resample,
        )

    @classmethod
    def tiny(cls) -> MimiConfig:
        """The true architecture, narrow: for tests and demonstrations."""
        return cls(
            filters=4,
            dimension=32,
            layers=2,
            heads=2,
            feedforward=64,
            context=24,
            codebook_size=64,
            codebook_dimension=16,
            codebooks=8,
        )

    @classmethod
    def from_native(cls, config: Mapping[str, object]) -> MimiConfig:
        """From the mapping that the `moshi` package builds Mimi from: `seanet`, `transformer`, `quantizer`."""
        seanet, transformer, quantizer = (_section(config, name) for name in ("seanet", "transformer", "quantizer"))
        for reader in (seanet, transformer):
            reader.demand("causal", True)
        seanet.demand("norm", "none")
        seanet.demand("pad_mode", "constant")
        seanet.demand("true_skip", True)
        seanet.demand("activation", "ELU")
        transformer.demand("gating", "none")
        transformer.demand("norm", "layer_norm")
        transformer.demand("positional_embedding", "rope")
        dimension = seanet.whole("dimension")
        for name, reader in (("d_model", transformer), ("input_dimension", transformer)):
            reader.demand(name, dimension)
        ratios = seanet.wholes("ratios")
        rate, frames = config.get("sample_rate", 24_000), config.get("frame_rate", 12.5)
        if not isinstance(rate, int) or not isinstance(frames, int | float) or rate % (math.prod(ratios) * frames):
            raise ConfigInvalid("mimi config frame_rate", f"{frames} does not divide {rate} Hz by the ratios")
        return cls(
            sample_rate=rate,
            ratios=ratios,
            filters=seanet.whole("n_filters"),
            dimension=dimension,
            kernel=seanet.whole("kernel_size"),
            residual_kernel=seanet.whole("residual_kernel_size"),
            last_kernel=seanet.whole("last_kernel_size"),
            residual_layers=seanet.whole("n_residual_layers"),
            dilation_base=seanet.whole("dilation_base"),
            compress=seanet.whole("compress"),
            layers=transformer.whole("num_layers"),
            heads=transformer.whole("num_heads"),
            feedforward=transformer.whole("dim_feedforward"),
            context=transformer.whole("context"),
            rope_period=float(transformer.whole("max_period")),
            resample=round(rate / frames) // math.prod(ratios),
            codebook_size=quantizer.whole("bins"),
            codebook_dimension=quantizer.whole("dimension"),
            codebooks=quantizer.whole("n_q"),
        )

    @classmethod
    def from_transformers(cls, config: Mapping[str, object]) -> MimiConfig:
        """From the `config.json` of a transformers checkpoint (`model_type` "mimi")."""
        reader = Fields("mimi config", config)
        reader.demand("model_type", "mimi")
        reader.demand("use_causal_conv", True)
        reader.demand("use_conv_shortcut", False)
        reader.demand("pad_mode", "constant")
        reader.demand("hidden_act", "gelu")
        heads = reader.whole("num_attention_heads")
        reader.demand("num_key_value_heads", heads)
        dimension = reader.whole("hidden_size")
        reader.demand("upsample_groups", dimension)
        rope = config.get("rope_parameters") or config
        period = rope.get("rope_theta", 10_000.0) if isinstance(rope, Mapping) else None
        if not isinstance(period, int | float):
            raise ConfigInvalid("mimi config rope_theta", f"{period!r} is not a number")
        return cls(
            sample_rate=reader.whole("sampling_rate"),
            ratios=reader.wholes("upsampling_ratios"),
            filters=reader.whole("num_filters"),
            dimension=dimension,
            kernel=reader.whole("kernel_size"),
            residual_kernel=reader.whole("residual_kernel_size"),
            last_kernel=reader.whole("last_kernel_size"),
            residual_layers=reader.whole("num_residual_layers"),
            dilation_base=reader.whole("dilation_growth_rate"),
            compress=reader.whole("compress"),
            layers=reader.whole("num_hidden_layers"),
            heads=heads,
            feedforward=reader.whole("intermediate_size"),
            context=reader.whole("sliding_window"),
            rope_period=float(period),
            codebook_size=reader.whole("codebook_size"),
            codebook_dimension=reader.whole("codebook_dim"),
            codebooks=reader.whole("num_quantizers"),
            semantic=reader.whole("num_semantic_quantizers"),
        )


def _section(config: Mapping[str, object], name: str) -> Fields:
    section = config.get(name)
    if not isinstance(section, Mapping):
        raise ConfigInvalid(f"mimi config {name}", "this section is missing")
    return Fields(f"mimi config {name}", section)
