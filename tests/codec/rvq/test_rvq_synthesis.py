from __future__ import annotations

import numpy as np
import pytest
import torch

from codec.rvq.synthesis import (
    BINS,
    FFT,
    HOP,
    NOISE_FRAMES,
    SAMPLE_RATE,
    SEGMENT,
    TAIL,
    envelope_matrix,
    filter_segments,
    filters,
    mel,
    mel_bands,
    noise_table,
    overlap_add,
    pulse_train,
)

WINDOW = torch.hann_window(SEGMENT)


def test_every_band_weighs_one_and_reaches_something() -> None:
    for bins, bands in ((129, 40), (513, 100), (481, 100)):
        weights = mel_bands(bins, bands)
        assert weights.shape == (bins, bands)
        assert torch.allclose(weights.sum(0), torch.ones(bands))


def test_a_flat_envelope_is_a_gain_without_delay() -> None:
    response = filters(torch.full((1, 60), np.log(0.5)), envelope_matrix(60))
    assert response.shape == (1, BINS)
    assert torch.allclose(response, torch.full((1, BINS), 0.5 + 0j, dtype=torch.complex64), atol=1e-4)


def test_a_filter_has_its_envelope_as_magnitude_and_its_energy_first() -> None:
    torch.manual_seed(0)
    knots = torch.nn.functional.interpolate(torch.randn(1, 1, 12), 120, mode="linear", align_corners=True)[0]
    matrix = envelope_matrix(120)
    response = filters(knots, matrix)[0]
    places = mel(np.linspace(0, SAMPLE_RATE / 2, BINS)) / mel(SAMPLE_RATE / 2) * 119
    wanted = np.interp(places, np.arange(120), knots[0].numpy())
    assert np.abs(response.abs().log().numpy() - wanted).max() < 0.05
    impulse = torch.fft.irfft(response, n=FFT)
    assert float((impulse[:64] ** 2).sum() / (impulse**2).sum()) > 0.95


@pytest.mark.parametrize("pitch", [60.0, 137.5, 440.0])
def test_pulses_have_the_pitch_and_a_variance_of_about_one(pitch: float) -> None:
    hops = 400
    pulses, _ = pulse_train(torch.full((1, hops), pitch, dtype=torch.float64), torch.zeros(1, dtype=torch.float64))
    assert pulses.shape == (1, hops * HOP)
    assert abs(float(pulses.var()) - 1.0) < 0.05
    spectrum = torch.fft.rfft(pulses[0]).abs()
    hertz = torch.fft.rfftfreq(hops * HOP, 1 / SAMPLE_RATE)
    first = spectrum[(hertz > 0.5 * pitch) & (hertz < 1.5 * pitch)]
    assert abs(float(hertz[(hertz > 0.5 * pitch) & (hertz < 1.5 * pitch)][first.argmax()]) - pitch) < 0.5
    assert float(spectrum[hertz > 11_900].max()) < 0.05 * float(spectrum.max())


def test_pulses_in_pieces_are_the_pulses_of_the_whole() -> None:
    pitch = 100.0 + 50.0 * torch.rand(2, 30, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    phase = torch.tensor([0.0, 0.25], dtype=torch.float64)
    whole, end = pulse_train(pitch, phase)
    parts = []
    for piece in torch.split(pitch, 7, 1):
        part, phase = pulse_train(piece, phase)
        parts.append(part)
    assert torch.allclose(torch.cat(parts, 1), whole, atol=1e-6)
    assert torch.allclose(phase, end)


def test_segments_through_a_filter_of_one_add_up_to_the_source() -> None:
    source = torch.randn(2, HOP * 11, generator=torch.Generator().manual_seed(2))
    through, nothing = torch.ones(2, 10, BINS, dtype=torch.complex64), torch.zeros(2, 10, BINS, dtype=torch.complex64)
    signal = overlap_add(filter_segments(through, nothing, source, torch.zeros_like(source), WINDOW))
    assert signal.shape == (2, 10 * HOP + TAIL)
    assert torch.allclose(signal[:, HOP : 10 * HOP], source[:, HOP : 10 * HOP], atol=1e-5)


def test_the_noise_is_white_and_always_the_same() -> None:
    noise = noise_table()
    assert torch.equal(noise, noise_table())
    assert len(noise) == NOISE_FRAMES
    assert abs(float(noise.std()) - 1.0) < 0.01
    assert noise[0, :3].tolist() == pytest.approx([0.47143516, -1.1909757, 1.432707])
