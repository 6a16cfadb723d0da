"""The codec: log spectra in, sixteen numbers per 80 ms, harmonic-plus-noise synthesis out.

* Encoder: per 10 ms hop, from the last 40 ms: 100 log-mel bands, the part of the cepstrum where pitch lies, and two
  pitch candidates; causal ConvNeXt at 50 Hz, then at 12.5 Hz.
* Quantizer: residual, up to 16 codebooks of 1024 entries.
* Decoder: causal ConvNeXt at 12.5 Hz, then at 50 Hz; per hop the envelopes of a harmonic and of a noise filter.
* Pitch: a small branch of the decoder, one value per hop.
* Synthesis: see `synthesis`.

All is causal. Frame t of the decoder is the sound of samples [1920 t - 480, 1920 (t + 1) - 480) of the encoder's input:
the delay of two hops lets the encoder see what the last hops of a frame are becoming. Without it they come out worst.

`RvqCodec` works on whole sequences, for training and as the reference; `stream` on frames.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..identity import CodecIdentity
from .layers import CausalConv, ConvNextBlock, Patches, SlotState
from .quantizer import ResidualQuantizer
from .synthesis import (
    FRAME,
    HOP,
    HOPS,
    NOISE_FRAMES,
    SAMPLE_RATE,
    SEGMENT,
    envelope_matrix,
    filter_segments,
    filters,
    mel_bands,
    noise_table,
    overlap_add,
    pulse_train,
)

NAME = "talkover-rvq"

DELAY_HOPS: int = 2
DELAY: int = DELAY_HOPS * HOP
"""Samples by which decoded sound trails the encoder's input, the waiting for a whole frame not counted."""

FIRST_PITCH: float = 120.0
"""Hz, of the hop before the first, which no code describes."""

_ANALYSIS = 4 * HOP
"""Samples that the encoder looks at for one hop."""
_QUEFRENCY = slice(SAMPLE_RATE // 500, SAMPLE_RATE // 60)
"""Periods of 500 to 60 Hz, in samples."""
_MEL_BANDS = 100
_FINE_HOPS = 2
"""Hops per step of the finer layers (50 Hz)."""
_COARSE = HOPS // _FINE_HOPS
"""Steps of the finer layers per frame."""

_HARMONIC_KNOTS = 120
_NOISE_KNOTS = 60

_CENTRE_OCTAVE = 7.0
"""log2 of 128 Hz: pitch values lie around it."""
_PITCH_OCTAVES = (-1.2, 1.9)
"""56 to 478 Hz."""


class ModelConfigError(ValueError):
    """A model cannot be built like this. `field` names what is wrong."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


@dataclass(frozen=True, slots=True)
class RvqConfig:
    """Sizes of a codec. The defaults are those of the checkpoint that is shipped. Raises ModelConfigError."""

    codebooks: int = 16
    codebook_size: int = 1024
    latent: int = 96
    """Values per frame that are quantized."""
    fine: int = 192
    """Channels at 50 Hz."""
    coarse: int = 384
    """Channels at 12.5 Hz."""

    def __post_init__(self) -> None:
        limits = {"codebooks": 64, "codebook_size": 1 << 16, "latent": 4096, "fine": 4096, "coarse": 4096}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int) or isinstance(value, bool) or not 1 < value <= limits[field.name]:
                raise ModelConfigError(field.name, f"{value!r} is not a whole number from 2 to {limits[field.name]}")

    @classmethod
    def from_record(cls, record: Mapping[str, object]) -> RvqConfig:
        """From plain values, as `dataclasses.asdict` gives them. Raises ModelConfigError naming a wrong field."""
        names = {field.name for field in dataclasses.fields(cls)}
        for name in sorted(names ^ record.keys()):
            raise ModelConfigError(name, "is missing" if name in names else "is not a field of this codec")
        return cls(**record)  # type: ignore[arg-type]  # __post_init__ checks every field

    def identity(self, version: str) -> CodecIdentity:
        """The identity of codes made with these sizes by the weights that `version` names."""
        return CodecIdentity(NAME, version, SAMPLE_RATE, FRAME, self.codebooks, self.codebook_size)


class Reconstruction(NamedTuple):
    """What a training step compares: `wave` [batch, FRAME * frames], `log_pitch` log2 Hz [batch, HOPS * frames], the
    quantizer's `commitment` (a mean square) and its `codes` [batch, codebooks, frames], None before it is in use."""

    wave: Tensor
    log_pitch: Tensor
    commitment: Tensor
    codes: Tensor | None


class Encoder(nn.Module):
    """Samples [batch, FRAME * frames] to latents [batch, latent, frames]."""

    window: Tensor
    bands: Tensor

    def __init__(self, config: RvqConfig) -> None:
        super().__init__()
        fine, coarse = config.fine, config.coarse
        features = _MEL_BANDS + (_QUEFRENCY.stop - _QUEFRENCY.start) + 4
        self.enter = Patches(features, fine, _FINE_HOPS)
        self.fine = nn.ModuleList(ConvNextBlock(fine, 5 * fine // 2, 5) for _ in range(3))
        self.down = Patches(fine, coarse, _COARSE)
        self.coarse = nn.ModuleList(ConvNextBlock(coarse, 2 * coarse, 3) for _ in range(2))
        self.leave = Patches(coarse, config.latent)
        self.register_buffer("window", torch.hann_window(_ANALYSIS), persistent=False)
        self.register_buffer("bands", mel_bands(_ANALYSIS // 2 + 1, _MEL_BANDS), persistent=False)

    def forward(self, samples: Tensor, state: SlotState | None = None) -> Tensor:
        x: Tensor = self.enter(self._features(samples, state))
        for block in self.fine:
            x = block(x, state)
        x = self.down(x)
        for block in self.coarse:
            x = block(x, state)
        latent: Tensor = self.leave(x)
        return latent.transpose(1, 2)

    @torch.no_grad()
    def _features(self, samples: Tensor, state: SlotState | None) -> Tensor:
        """[batch, HOPS * frames, features], each brought to a scale of about 1."""
        before = _ANALYSIS - HOP
        if state is None:
            samples = F.pad(samples, (before, 0))
        else:
            samples = torch.cat((state.read(self, samples[..., None], before)[..., 0], samples), 1)
            state.write(self, samples[:, -before:, None])
        spectrum = torch.fft.rfft(samples.unfold(1, _ANALYSIS, HOP) * self.window)
        magnitude = (spectrum.real.square() + spectrum.imag.square()).sqrt()  # half the time of `abs`
        level = magnitude.clamp_min(1e-3).log()
        cepstrum = torch.fft.irfft(level)[..., _QUEFRENCY]
        # A spectrum to the power of 0.8 has a sharper autocorrelation (Tolonen and Karjalainen, 2000).
        correlation = torch.fft.irfft((0.8 * level).exp())
        correlation = correlation[..., _QUEFRENCY] / correlation[..., :1]
        loudness = ((magnitude @ self.bands).clamp_min(1e-4).log() + 3.0) / 3.0
        candidates = (*_highest_peak(cepstrum, 4.0), *_highest_peak(correlation, 2.0))
        return torch.cat((loudness, cepstrum * 8.0, *candidates), -1)


def _highest_peak(curve: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """A pitch candidate from a curve over `_QUEFRENCY`: octaves above 128 Hz, and the height, each [..., 1].

    The place is refined by a parabola through the peak and its neighbours.
    """
    height, at = curve.max(-1, keepdim=True)
    at = at.clamp(1, curve.shape[-1] - 2)
    left, middle, right = (curve.gather(-1, at + offset) for offset in (-1, 0, 1))
    shift = (0.5 * (left - right) / (left - 2.0 * middle + right).clamp(max=-1e-6)).clamp(-0.5, 0.5)
    return (SAMPLE_RATE / (at + _QUEFRENCY.start + shift)).log2() - _CENTRE_OCTAVE, height * scale


class PitchBranch(nn.Module):
    """Quantized latent [batch, latent, frames] to log2 Hz of each hop, [batch, HOPS * frames].

    The first value of a frame belongs to the hop that begins one hop into it: the one before it is the last frame's.
    """

    def __init__(self, config: RvqConfig, channels: int = 128) -> None:
        super().__init__()
        self.first = CausalConv(config.latent, channels, 3)
        self.second = CausalConv(channels, channels, 2)
        self.leave = Patches(channels, HOPS)

    def forward(self, latent: Tensor, state: SlotState | None = None) -> Tensor:
        x = F.silu(self.first(latent.transpose(1, 2), state))
        x = x + F.silu(self.second(x, state))
        octaves: Tensor = self.leave(x).clamp(*_PITCH_OCTAVES)
        return (octaves + _CENTRE_OCTAVE).flatten(1)


class EnvelopeDecoder(nn.Module):
    """Quantized latent [batch, latent, frames] to the harmonic and the noise filter of each hop.

    Each is complex64 [batch, HOPS * frames, BINS].
    """

    harmonic_matrix: Tensor
    noise_matrix: Tensor

    def __init__(self, config: RvqConfig) -> None:
        super().__init__()
        self._fine = fine = config.fine
        coarse = config.coarse
        self.enter = Patches(config.latent, coarse)
        self.coarse = nn.ModuleList(ConvNextBlock(coarse, 2 * coarse, 3) for _ in range(3))
        self.up = Patches(coarse, _COARSE * fine)
        self.fine = nn.ModuleList(ConvNextBlock(fine, 3 * fine, 5) for _ in range(4))
        self.norm = nn.LayerNorm(fine)
        self.leave = nn.Linear(fine, _FINE_HOPS * (_HARMONIC_KNOTS + _NOISE_KNOTS))
        nn.init.zeros_(self.leave.bias)
        self.register_buffer("harmonic_matrix", envelope_matrix(_HARMONIC_KNOTS), persistent=False)
        self.register_buffer("noise_matrix", envelope_matrix(_NOISE_KNOTS), persistent=False)

    def forward(self, latent: Tensor, state: SlotState | None = None) -> tuple[Tensor, Tensor]:
        x: Tensor = self.enter(latent.transpose(1, 2))
        for block in self.coarse:
            x = block(x, state)
        batch, frames, _ = x.shape
        x = self.up(x).view(batch, _COARSE * frames, self._fine)
        for block in self.fine:
            x = block(x, state)
        knots = self.leave(self.norm(x)).view(batch, HOPS * frames, _HARMONIC_KNOTS + _NOISE_KNOTS)
        # Speech lies around -35 dB; what is above 4 would be a burst of training gone astray.
        knots = (knots * 2.0 - 4.0).clamp(-12.0, 4.0)
        harmonic, noise = knots.split((_HARMONIC_KNOTS, _NOISE_KNOTS), -1)
        return filters(harmonic, self.harmonic_matrix), filters(noise, self.noise_matrix)


class RvqCodec(nn.Module):
    """Encoder, quantizer and decoder."""

    noise: Tensor
    window: Tensor

    def __init__(self, config: RvqConfig | None = None) -> None:
        super().__init__()
        self.config = config = config or RvqConfig()
        self.encoder = Encoder(config)
        self.quantizer = ResidualQuantizer(config.codebooks, config.codebook_size, config.latent)
        self.decoder = EnvelopeDecoder(config)
        self.pitch = PitchBranch(config)
        self.register_buffer("noise", noise_table(), persistent=False)
        self.register_buffer("window", torch.hann_window(SEGMENT), persistent=False)

    def forward(self, samples: Tensor, pitch: Tensor, levels: Tensor | None) -> Reconstruction:
        """One training pass over `samples` [batch, FRAME * frames].

        `pitch` is the true pitch, Hz, [batch, HOPS * frames + 1], from DELAY_HOPS earlier on: with it harmonics lie
        where they lie in the original, so that spectra can be compared; the pitch branch has a loss of its own.
        `levels` [batch] says how many codebooks each item uses; None leaves the latent as it is.
        """
        latent = self.encoder(samples)
        commitment, codes = latent.new_zeros(()), None
        if levels is not None:
            latent, commitment, codes = self.quantizer(latent, levels)
        harmonic, noise = self.decoder(latent)
        phase = torch.rand(len(samples), dtype=torch.float64, device=samples.device)
        pulses, _ = pulse_train(pitch.double(), phase)
        segments = filter_segments(harmonic, noise, pulses, torch.randn_like(pulses), self.window)
        wave = overlap_add(segments)[:, : samples.shape[1]]
        return Reconstruction(wave, self.pitch(latent), commitment, codes)

    @torch.no_grad()
    def encode(self, samples: Tensor, codebooks: int | None = None) -> Tensor:
        """Samples, float32 [batch, FRAME * frames], to codes, int64 [batch, codebooks, frames]."""
        return self.quantizer.encode(self.encoder(samples), codebooks)

    @torch.no_grad()
    def decode(self, codes: Tensor) -> Tensor:
        """Codes, int64 [batch, codebooks, frames], to samples, float32 [batch, FRAME * frames], within -1..1."""
        latent = self.quantizer.decode(codes)
        batch, _, frames = latent.shape
        harmonic, noise = self.decoder(latent)
        pitch = torch.exp2(self.precise_pitch()(latent.double()))
        pitch = torch.cat((pitch.new_full((batch, 1), FIRST_PITCH), pitch), 1)
        pulses, _ = pulse_train(pitch, pitch.new_zeros(batch))
        hiss = self.noise.repeat(-(-frames // NOISE_FRAMES), 1)[:frames].flatten()
        hiss = torch.cat((hiss.new_zeros(HOP), hiss)).expand(batch, -1)
        segments = filter_segments(harmonic, noise, pulses, hiss, self.window)
        return overlap_add(segments)[:, : FRAME * frames].clamp(-1.0, 1.0)

    def precise_pitch(self) -> PitchBranch:
        """A copy of the pitch branch in float64.

        Its values are summed up to the phase of the pulses. In float32 they depend a little on the shape of the batch,
        and the pulses of the same codes would drift apart.
        """
        return copy.deepcopy(self.pitch).double()
