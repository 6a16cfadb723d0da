from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
import torch

from codec.rvq.model import DELAY, ModelConfigError, RvqCodec, RvqConfig
from codec.rvq.synthesis import FRAME, HOP, HOPS, SAMPLE_RATE
from tests.codec.rvq.tiny import TINY, tiny_codec


@pytest.mark.parametrize(
    ("field", "value"), [("codebooks", 1), ("codebooks", 65), ("codebook_size", 2.0), ("latent", True), ("fine", 0)]
)
def test_an_impossible_size_is_refused_by_its_field(field: str, value: Any) -> None:
    with pytest.raises(ModelConfigError) as caught:
        replace(TINY, **{field: value})
    assert caught.value.field == field


def test_a_config_goes_through_a_record_and_back() -> None:
    record = asdict(TINY)
    assert RvqConfig.from_record(record) == TINY
    less = {name: value for name, value in record.items() if name != "latent"}
    for wrong, field in (({**record, "depth": 3}, "depth"), ({**record, "fine": "8"}, "fine"), (less, "latent")):
        with pytest.raises(ModelConfigError) as caught:
            RvqConfig.from_record(wrong)
        assert caught.value.field == field


def test_the_identity_is_that_of_the_sizes() -> None:
    identity = RvqConfig().identity("7")
    assert (identity.sample_rate, identity.hop, identity.codebooks, identity.codebook_size) == (24_000, 1920, 16, 1024)
    assert identity.frame_ticks == 3840
    assert identity.version == "7"


def test_the_shipped_size_has_at_most_six_million_parameters_and_fits_14_megabytes() -> None:
    codec = RvqCodec()
    parameters = sum(parameter.numel() for parameter in codec.parameters())
    assert parameters <= 6_000_000
    assert 2 * (parameters + codec.quantizer.entries.numel()) < 13_990_000


def test_a_sound_becomes_codes_and_as_many_samples_again() -> None:
    codec = tiny_codec()
    wave = 0.1 * torch.randn(2, 5 * FRAME)
    codes = codec.encode(wave)
    assert codes.shape == (2, 4, 5)
    assert len(np.unique(codes)) > 4
    assert codec.encode(wave, 2).shape == (2, 2, 5)
    heard = codec.decode(codes)
    assert heard.shape == wave.shape
    assert heard.abs().max() <= 1.0
    assert not torch.equal(heard, codec.decode(codes.flip(2)))


def test_fewer_codebooks_decode_too() -> None:
    codec = tiny_codec()
    codes = codec.encode(0.1 * torch.randn(1, 5 * FRAME))
    assert codec.decode(codes[:, :2]).shape == (1, 5 * FRAME)


def test_nothing_that_comes_later_is_heard_before() -> None:
    codec = tiny_codec()
    wave = 0.1 * torch.randn(1, 6 * FRAME)
    later = wave.clone()
    later[:, 3 * FRAME :] = 0.3 * torch.randn(1, 3 * FRAME)
    codes, other = codec.encode(wave), codec.encode(later)
    assert torch.equal(codes[:, :, :3], other[:, :, :3])
    assert not torch.equal(codes, other)
    # The layers take the whole at once, so that sums may be grouped otherwise.
    assert torch.allclose(codec.decode(codes)[:, : 3 * FRAME], codec.decode(other)[:, : 3 * FRAME], atol=1e-6)


def test_output_beyond_full_scale_is_clipped() -> None:
    codec = tiny_codec()
    with torch.no_grad():
        codec.decoder.leave.bias.fill_(4.0)
    heard = codec.decode(torch.zeros(1, 4, 4, dtype=torch.int64))
    assert heard.abs().max() == 1.0


def test_the_encoder_hears_the_pitch_of_pulses() -> None:
    """Its two candidates, the last features but one and three, are octaves above 128 Hz.

    Ideal pulses of twice the lowest pitch and more are as periodic an octave lower, so only lower ones are asked for.
    """
    codec = tiny_codec()
    for pitch in (75.0, 90.0, 115.0):
        wave = torch.zeros(1, 4 * FRAME)
        wave[0, np.arange(0, 4 * FRAME, SAMPLE_RATE / pitch).astype(int)] = 0.8
        features = codec.encoder._features(wave, None)[0, HOPS:]
        for candidate in (features[:, -4], features[:, -2]):
            cents = 1200 * (candidate - np.log2(pitch / 128)).abs()
            assert float(cents.median()) < 60


def test_a_training_pass_gives_gradients_everywhere() -> None:
    codec = tiny_codec().train().requires_grad_(True)
    samples = 0.1 * torch.randn(3, 4 * FRAME)
    pitch = torch.full((3, 4 * HOPS + 1), 150.0)
    heard = codec(samples, pitch, torch.tensor([4, 2, 1]))
    assert heard.wave.shape == samples.shape
    assert heard.log_pitch.shape == (3, 4 * HOPS)
    assert heard.codes is not None
    (heard.wave.square().mean() + heard.log_pitch.square().mean() + heard.commitment).backward()
    for name, parameter in codec.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.abs().sum() > 0), name


def test_before_the_codebooks_are_started_the_latent_passes() -> None:
    codec = tiny_codec().train()
    heard = codec(0.1 * torch.randn(1, 2 * FRAME), torch.full((1, 2 * HOPS + 1), 150.0), None)
    assert heard.codes is None
    assert float(heard.commitment) == 0.0


def test_the_delay_is_two_hops() -> None:
    assert DELAY == 2 * HOP == 480
