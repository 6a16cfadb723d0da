"""Sound from envelopes: a pulse train and white noise, each through a filter that changes every 10 ms.

Harmonic plus noise synthesis (Serra and Smith, 1990; with filters from a network: Wang et al., "Neural source-filter
waveform models", 2019, arXiv 1904.12088). An envelope is a row of log amplitudes at mel-spaced knots. Its filter is the
minimum-phase one, so no phase has to be learned: that is why little training and no discriminator are enough.

Segments of 480 samples, 240 apart, are cut from the sources with a Hann window, filtered in a 1024-point spectrum and
added up.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

SAMPLE_RATE: int = 24_000
HOP: int = 240
"""Samples between two filters."""
FRAME: int = 1920
"""Samples of a codec frame."""
HOPS: int = FRAME // HOP
SEGMENT: int = 2 * HOP
FFT: int = 1024
BINS: int = FFT // 2 + 1
TAIL: int = 4 * HOP
"""Samples by which filtered segments reach beyond the hop that they begin with."""

NOISE_FRAMES: int = 64
"""The noise of a decoder comes round again after 5.12 s, far beyond what an ear recognizes as a repetition."""
_NOISE_SEED = 1234

_TOP_HARMONIC = 11_800.0
"""Hz. Pulses stay below half the rate, so that they do not alias."""
_TRAIN_POWER = 6_000.0
"""Hz. sqrt(f / 6000) gives a train of cosines up to about 12 kHz a variance of 1, at any pitch."""
_CEPSTRUM = 400
"""Samples of the folded cepstrum that are kept: a minimum-phase response does not wrap around in the FFT."""


def mel(hertz: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """Hz to mel (O'Shaughnessy)."""
    scale: NDArray[np.float64] = 2595.0 * np.log10(1.0 + np.asarray(hertz, np.float64) / 700.0)
    return scale


def mel_bands(bins: int, bands: int) -> Tensor:
    """Triangular bands evenly spaced in mel from 0 to half the rate, each summing to 1: float32 [bins, bands]."""
    edges = 700.0 * (10.0 ** (np.linspace(0.0, mel(SAMPLE_RATE / 2), bands + 2) / 2595.0) - 1.0)
    at = np.linspace(0.0, SAMPLE_RATE / 2, bins)[:, None]
    rise = (at - edges[:-2]) / (edges[1:-1] - edges[:-2])
    fall = (edges[2:] - at) / (edges[2:] - edges[1:-1])
    weights = np.maximum(0.0, np.minimum(rise, fall))
    for band in np.flatnonzero(weights.sum(0) < 0.5):
        # Narrower than a bin: it takes the nearest one instead of nothing.
        weights[np.abs(at[:, 0] - edges[band + 1]).argmin(), band] = 1.0
    return torch.from_numpy((weights / weights.sum(0)).astype(np.float32))


def envelope_matrix(knots: int) -> Tensor:
    """What turns `knots` log amplitudes into log amplitude and phase of a minimum-phase filter: [knots, 2 * BINS].

    Interpolating between knots, going to the cepstrum, folding it onto positive time and going back are all linear, so
    that one product does them (Oppenheim and Schafer, "Discrete-Time Signal Processing", section 12.6 on the
    relation; float32).
    """
    place = mel(np.linspace(0.0, SAMPLE_RATE / 2, BINS)) / mel(SAMPLE_RATE / 2) * (knots - 1)
    left = np.minimum(place.astype(np.int64), knots - 2)
    spread = np.zeros((knots, BINS))
    spread[left, np.arange(BINS)] = 1.0 - (place - left)
    spread[left + 1, np.arange(BINS)] += place - left
    cepstrum = np.fft.irfft(spread)
    cepstrum[:, 1:_CEPSTRUM] *= 2.0
    cepstrum[:, _CEPSTRUM:] = 0.0
    response = np.fft.rfft(cepstrum)
    return torch.from_numpy(np.concatenate((response.real, response.imag), 1).astype(np.float32))


def noise_table() -> Tensor:
    """White noise of variance 1 for a decoder, by frame: float32 [NOISE_FRAMES, FRAME]. The same in every version."""
    # The old generator, because its stream is frozen.
    noise = np.random.RandomState(_NOISE_SEED).standard_normal((NOISE_FRAMES, FRAME))
    return torch.from_numpy(noise.astype(np.float32))


def filters(envelope: Tensor, matrix: Tensor) -> Tensor:
    """Log amplitudes [..., knots] to minimum-phase responses, complex64 [..., BINS]."""
    response = envelope.contiguous() @ matrix
    magnitude, phase = response[..., :BINS].exp(), response[..., BINS:]
    return torch.complex(magnitude * phase.cos(), magnitude * phase.sin())  # a third of the time of torch.polar


def pulse_train(pitch: Tensor, phase: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines of every harmonic of a pitch, together of variance 1.

    `pitch` in Hz per hop, float64 [batch, hops], and `phase` in cycles before the first sample, float64 [batch], give
    float32 [batch, HOP * hops] and the phase after the last sample. In float64: the phase is summed up for as long as
    a slot speaks, and must come out the same in pieces.
    """
    cycles = torch.cumsum((pitch / SAMPLE_RATE).repeat_interleave(HOP, 1), 1) + phase[:, None]
    angle = 2.0 * math.pi * (cycles - cycles.floor())
    # sum of cos(k a) for k = 1..K is sin((K + 1/2) a) / (2 sin(a / 2)) - 1/2, and K at a = 0.
    top = (torch.floor(_TOP_HARMONIC / pitch) + 0.5).repeat_interleave(HOP, 1)
    below = 2.0 * torch.sin(angle / 2.0)
    near = below.abs() < 1e-3
    ratio = torch.where(near, top, torch.sin(top * angle) / torch.where(near, torch.ones_like(below), below))
    train = (ratio - 0.5) * torch.sqrt(pitch / _TRAIN_POWER).repeat_interleave(HOP, 1)
    last = cycles[:, -1]
    return train.float(), last - last.floor()


def filter_segments(harmonic: Tensor, noise: Tensor, pulses: Tensor, hiss: Tensor, window: Tensor) -> Tensor:
    """Both sources through their filters, segment by segment: float32 [batch, hops, FFT].

    `harmonic` and `noise` are responses [batch, hops, BINS]; `pulses` and `hiss` are [batch, HOP * (hops + 1)], one hop
    longer than what is filled; `window` is [SEGMENT].
    """

    def spectra(source: Tensor) -> Tensor:
        spectrum: Tensor = torch.fft.rfft(source.unfold(1, SEGMENT, HOP) * window, n=FFT)
        return spectrum

    segments: Tensor = torch.fft.irfft(spectra(pulses) * harmonic + spectra(hiss) * noise, n=FFT)
    return segments


def overlap_add(segments: Tensor) -> Tensor:
    """Segments [batch, hops, FFT], HOP apart, to a signal [batch, HOP * hops + TAIL]."""
    batch, hops, _ = segments.shape
    parts = -(-FFT // HOP)
    signal = segments.new_zeros(batch, hops + parts - 1, HOP)
    for part in range(parts):
        piece = segments[..., part * HOP : (part + 1) * HOP]
        signal[:, part : part + hops, : piece.shape[-1]] += piece
    return signal.flatten(1)
