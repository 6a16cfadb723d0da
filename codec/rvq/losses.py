"""What a decoded wave is compared by: log-mel spectra and spectral convergence at several resolutions.

Yamamoto et al., "Parallel WaveGAN" (2020, arXiv 1910.11480), with mel bands for the logarithm.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from .synthesis import mel_bands

FFTS: tuple[int, ...] = (256, 1024, 2048)
MIDDLE: int = 1
"""The resolution that is always compared; the others take turns."""
_BANDS = {256: 40, 1024: 100, 2048: 160}
_FLOOR = 1e-3
"""Magnitude under which differences are not heard."""


class SpectralLoss(NamedTuple):
    """`log_mel`: mean absolute difference in nats; `convergence`: norm of the difference by the target's norm."""

    log_mel: Tensor
    convergence: Tensor


class Spectra(nn.Module):
    """The comparison at one resolution."""

    window: Tensor
    bands: Tensor

    def __init__(self, fft: int) -> None:
        super().__init__()
        self._fft = fft
        self.register_buffer("window", torch.hann_window(fft), persistent=False)
        self.register_buffer("bands", mel_bands(fft // 2 + 1, _BANDS[fft]), persistent=False)

    def forward(self, wave: Tensor, target: Tensor) -> SpectralLoss:
        """Both float32 [batch, samples]."""
        magnitude, log_mel = self._spectra(wave)
        with torch.no_grad():
            wanted, wanted_log_mel = self._spectra(target)
        convergence = (magnitude - wanted).norm() / wanted.norm().clamp_min(_FLOOR)
        return SpectralLoss((log_mel - wanted_log_mel).abs().mean(), convergence)

    def _spectra(self, wave: Tensor) -> tuple[Tensor, Tensor]:
        transform = torch.stft(wave, self._fft, self._fft // 4, window=self.window, return_complex=True)
        magnitude = transform.abs()
        return magnitude, (magnitude.transpose(1, 2) @ self.bands).clamp_min(_FLOOR).log()


class SpectralLosses(nn.Module):
    """The middle resolution and, by turns, one of the others."""

    def __init__(self) -> None:
        super().__init__()
        self.resolutions = nn.ModuleList(Spectra(fft) for fft in FFTS)
        self._others = [index for index in range(len(FFTS)) if index != MIDDLE]

    def forward(self, wave: Tensor, target: Tensor, turn: int) -> SpectralLoss:
        """The mean of two resolutions; `turn` counts steps."""
        first: SpectralLoss = self.resolutions[MIDDLE](wave, target)
        second: SpectralLoss = self.resolutions[self._others[turn % len(self._others)]](wave, target)
        return SpectralLoss((first.log_mel + second.log_mel) / 2.0, (first.convergence + second.convergence) / 2.0)
