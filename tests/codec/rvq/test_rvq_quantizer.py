from __future__ import annotations

import numpy as np
import torch

from codec.rvq.quantizer import ResidualQuantizer


def started(levels: int = 4, size: int = 16, width: int = 3) -> tuple[ResidualQuantizer, torch.Tensor]:
    torch.manual_seed(0)
    quantizer = ResidualQuantizer(levels, size, width)
    data = torch.randn(2000, width) * torch.tensor([2.0, 1.0, 0.5])
    quantizer.start_from(data)
    return quantizer, data


def test_every_codebook_leaves_less_over() -> None:
    quantizer, data = started()
    latent = data.T[None]
    errors = [
        float(((quantizer.decode(quantizer.encode(latent, levels)) - latent) ** 2).mean()) for levels in (1, 2, 3, 4)
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] < 0.3 * float((data**2).mean())
    assert errors[3] < 0.1 * errors[0]


def test_the_first_codes_do_not_depend_on_how_many_follow() -> None:
    quantizer, data = started()
    latent = data[:50].T[None]
    assert torch.equal(quantizer.encode(latent)[:, :2], quantizer.encode(latent, 2))


def test_a_code_names_the_nearest_entry() -> None:
    quantizer, data = started()
    codes = quantizer.encode(data.T[None], 1)[0, 0]
    distances = torch.cdist(data, quantizer.entries[0])
    assert torch.equal(codes, distances.argmin(1))


def test_training_uses_as_many_codebooks_as_an_item_has() -> None:
    quantizer, data = started()
    quantizer.eval()
    latent = data[:40].view(2, 20, 3).transpose(1, 2)
    quantized, commitment, codes = quantizer(latent, torch.tensor([1, 4]))
    assert torch.allclose(quantized[0], quantizer.decode(codes[:, :1])[0], atol=1e-5)
    assert torch.allclose(quantized[1], quantizer.decode(codes)[1], atol=1e-5)
    assert torch.allclose(commitment, ((latent - quantized) ** 2).mean())


def test_gradients_go_straight_through() -> None:
    quantizer, data = started()
    quantizer.eval()
    latent = data[:10].T[None].clone().requires_grad_()
    quantized, _, _ = quantizer(latent, torch.tensor([4]))
    (3.0 * quantized).sum().backward()
    assert latent.grad is not None
    assert torch.equal(latent.grad, torch.full_like(latent, 3.0))


def test_in_training_codebooks_follow_the_data_and_dead_entries_come_back() -> None:
    quantizer, data = started(levels=1)
    quantizer.train()
    moved = (data[:200] + 10.0).view(20, 10, 3).transpose(1, 2)
    levels = torch.ones(20, dtype=torch.int64)
    for _ in range(400):
        quantizer(moved, levels)
    codes = quantizer.encode(moved)
    error = ((quantizer.decode(codes) - moved) ** 2).mean()
    assert float(error) < 0.3 * float((data**2).mean())
    assert len(np.unique(codes)) >= 12


def test_outside_training_codebooks_stay() -> None:
    quantizer, data = started()
    before = quantizer.entries.clone()
    quantizer.eval()
    quantizer((data + 10.0).T[None], torch.tensor([4]))
    assert torch.equal(quantizer.entries, before)


def test_it_can_start_from_fewer_vectors_than_it_has_entries() -> None:
    quantizer = ResidualQuantizer(1, 64, 3)
    quantizer.start_from(torch.randn(10, 3))
    assert quantizer.entries.isfinite().all()
