from __future__ import annotations

import torch

from codec.rvq.losses import SpectralLosses


def test_a_wave_is_no_distance_from_itself() -> None:
    wave = torch.randn(2, 4800)
    for turn in (0, 1):
        loss = SpectralLosses()(wave, wave.clone(), turn)
        assert float(loss.log_mel) == float(loss.convergence) == 0.0


def test_half_the_level_is_log_two_in_every_band() -> None:
    wave = torch.randn(2, 9600)
    for turn in (0, 1):
        loss = SpectralLosses()(0.5 * wave, wave, turn)
        assert abs(float(loss.log_mel) - 0.6931) < 1e-3
        assert abs(float(loss.convergence) - 0.5) < 1e-4


def test_turns_compare_at_other_resolutions() -> None:
    torch.manual_seed(0)
    losses, wave, target = SpectralLosses(), torch.randn(1, 9600), torch.randn(1, 9600)
    distances = [float(losses(wave, target, turn).log_mel) for turn in range(4)]
    assert distances[0] == distances[2] != distances[1] == distances[3]


def test_gradients_reach_the_wave_and_are_finite_in_silence() -> None:
    wave = torch.zeros(1, 4800, requires_grad=True)
    loss = SpectralLosses()(wave + 0.01 * torch.randn(1, 4800), torch.zeros(1, 4800), 0)
    (loss.log_mel + loss.convergence).backward()
    assert wave.grad is not None
    assert bool(wave.grad.isfinite().all())
    assert float(wave.grad.abs().sum()) > 0
