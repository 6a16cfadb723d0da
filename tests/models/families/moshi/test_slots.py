"""Moshi in slots: what a session says depends on its user and its seed, and on nothing else."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import pytest
import torch
from torch import Tensor

from codec.identity import CodecIdentity
from codec.mimi.config import MimiConfig
from codec.mimi.model import Mimi
from models.families.moshi.config import MoshiConfig
from models.families.moshi.errors import CodecUnfit
from models.families.moshi.language import MoshiLM
from models.families.moshi.slots import MoshiSlots, Sampling
from models.slots.mimi import MimiSlots
from models.slots.model import StepInput, StepOutput
from tests.models.families.moshi.building import CONFIG, HOP, begin, build, give, seeds, user_audio, weights

FRAMES = 16


def of(outputs: list[StepOutput], slot: int) -> tuple[Tensor, Tensor, Tensor]:
    """Text, codes and PCM of one slot."""
    return (
        torch.stack([output.text[slot] for output in outputs]),
        torch.stack([output.said[slot] for output in outputs]),
        torch.stack([output.pcm[slot] for output in outputs]),
    )


def same(one: tuple[Tensor, Tensor, Tensor], other: tuple[Tensor, Tensor, Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def conversation(slot: int, batch: int, *, neighbours: int, seed: int = 11, disturb: bool = False) -> list[StepOutput]:
    model = build(batch, margin=4)
    begin(model, *[seed if place == slot else neighbours + place for place in range(batch)])
    mine = user_audio(FRAMES, 100)
    others = [user_audio(FRAMES, neighbours + place) for place in range(batch)]
    dice = torch.Generator().manual_seed(neighbours)
    outputs = []
    for frame in range(FRAMES):
        pcm = torch.stack([mine[frame] if place == slot else others[place][frame] for place in range(batch)])
        run, hush = torch.ones(batch, dtype=torch.bool), torch.zeros(batch, dtype=torch.bool)
        if disturb:
            run, hush = torch.rand(batch, generator=dice) < 0.7, torch.rand(batch, generator=dice) < 0.3
            left = torch.rand(batch, generator=dice) < 0.1
            run[slot], hush[slot], left[slot] = True, False, False
            if left.any():
                model.reset(left, seeds(*range(batch)))
            back = torch.minimum((torch.rand(batch, generator=dice) < 0.1).long(), model.streams.position)
            back[slot] = 0
            model.rewind(back)
        outputs.append(give(model, pcm, run=run, hush=hush))
    return outputs


def test_it_speaks_with_many_tokens_and_real_audio() -> None:
    text, codes, pcm = of(conversation(0, 2, neighbours=5), 0)
    assert (text[0], codes[0].unique().tolist()) == (-1, [-1])
    assert not pcm[0].any()
    assert text[1:].min() >= 0
    assert all(codes[1:, codebook].unique().numel() > 8 for codebook in range(8))
    assert pcm[1:].std() > 0.005


def test_a_session_is_the_same_bit_for_bit_in_any_company_and_slot() -> None:
    wanted = of(conversation(1, 4, neighbours=200), 1)
    assert same(wanted, of(conversation(1, 4, neighbours=300), 1))
    assert same(wanted, of(conversation(3, 4, neighbours=200), 3))
    assert same(wanted, of(conversation(1, 4, neighbours=200, disturb=True), 1))


def test_another_seed_says_something_else() -> None:
    assert not same(of(conversation(1, 4, neighbours=200), 1), of(conversation(1, 4, neighbours=200, seed=12), 1))


def test_a_slot_that_was_let_again_is_a_fresh_one() -> None:
    model = build(2)
    begin(model, 3, 4)
    pcm = user_audio(FRAMES, 7)[:, None].expand(-1, 2, -1)
    first = [give(model, frame) for frame in pcm]
    model.reset(torch.tensor([True, False]), seeds(3, 4))
    again = [give(model, frame) for frame in pcm]
    assert same(of(first, 0), of(again, 0))
    assert not same(of(first, 1), of(again, 1))


def test_nan_in_a_slot_is_told_stays_there_and_ends_with_the_reset() -> None:
    model = build(3)
    begin(model, 1, 2, 3)
    pcm = user_audio(12, 7)[:, None].repeat(1, 3, 1)
    clean = [give(model, frame) for frame in pcm]
    begin(model, 1, 2, 3)
    pcm[4, 1] = torch.nan
    ill = [give(model, frame) for frame in pcm]
    assert [output.finite.tolist() for output in ill[3:6]] == [[True] * 3, [True, False, True], [True, False, True]]
    for slot in (0, 2):
        assert same(of(clean, slot), of(ill, slot))
    # In the language model too, whose caches a reset of positions alone would leave as they are.
    layer = model.streams.of(model.lm.transformer.layers[1].self_attn)  # type: ignore[union-attr, arg-type]
    layer.rings["values"][1] = torch.nan
    assert not give(model, torch.zeros(3, HOP)).finite[1]
    model.reset(torch.tensor([False, True, False]), seeds(0, 2, 0))
    pcm[4, 1] = pcm[4, 0]
    assert same(of(clean, 1), of([give(model, frame) for frame in pcm], 1))


def test_a_silenced_agent_says_the_codes_of_silence() -> None:
    model = build(1)
    begin(model, 5)
    pcm = user_audio(20, 8)[:, None]
    for frame in pcm[:8]:
        give(model, frame)
    hushed = [give(model, frame, hush=torch.tensor([True])) for frame in pcm[8:16]]
    text, codes, _ = of(hushed, 0)
    assert (text == CONFIG.text_pad).all()
    assert (codes == model.codec.silence).all()
    after = [give(model, frame) for frame in pcm[16:]]
    assert not (of(after, 0)[1] == model.codec.silence).all()


@pytest.mark.parametrize("back", [1, 3, 6])
def test_a_rewind_and_replay_equals_never_having_said_it(back: int) -> None:
    """Rewound by some frames and given the user again, silent: as if the agent had been silent from there on."""
    pcm = user_audio(30, 9)[:, None].expand(-1, 2, -1)
    model = build(2, margin=6)

    def run(heard_until: int, rewind: bool) -> tuple[Tensor, Tensor, Tensor]:
        begin(model, 5, 6)
        outputs: list[StepOutput] = []
        hush = torch.tensor([True, False])
        for frame in range(30):
            silent = heard_until <= frame < 20
            if not rewind or frame >= 20 or frame < heard_until:
                outputs.append(give(model, pcm[frame], hush=hush & (silent and not rewind)))
                continue
            outputs.append(give(model, pcm[frame]))
            if frame == 19:
                model.rewind(seeds(20 - heard_until, 0))
                for past in range(heard_until, 20):
                    give(
                        model,
                        torch.zeros(2, HOP),
                        run=hush,
                        hush=hush,
                        codes=outputs[past].heard,
                    )
        return of(outputs[20:], 0)

    assert same(run(20 - back, rewind=True), run(20 - back, rewind=False))


def test_a_rewind_to_the_first_frame_begins_anew() -> None:
    model = build(1, margin=6)
    begin(model, 5)
    pcm = user_audio(5, 3)[:, None]
    first = [give(model, frame) for frame in pcm]
    model.rewind(seeds(5))
    again = [give(model, torch.zeros(1, HOP), codes=output.heard) for output in first]
    assert same(of(first, 0), of(again, 0))


def test_after_three_hours_it_says_what_it_says_at_the_beginning() -> None:
    """Windows slide and only distances count, so tick 135,000 is like any other.

    The late slot begins with zeros where the early one sees nothing; both are kept silent until no window of any layer
    reaches back to that.
    """
    short = replace(CONFIG, temporal=replace(CONFIG.temporal, context=8))
    mimi = Mimi.random(replace(MimiConfig.tiny(), context=8), seed=2)
    greedy = Sampling(temperature=0, text_temperature=0)
    model = MoshiSlots(MoshiLM.random(short, seed=1), MimiSlots(mimi, 2), 2, sampling=greedy)
    begin(model, 1, 1)
    three_hours = 135_000
    assert isinstance(model.codec, MimiSlots)
    for streams in (model.streams, model.codec.encoding, model.codec.decoding):
        streams.position[1] = three_hours
    pcm = user_audio(50, 4)[:, None].expand(-1, 2, -1)
    for frame in pcm[:36]:
        assert give(model, frame, hush=torch.tensor([True, True])).finite.all()
    outputs = [give(model, frame) for frame in pcm[36:]]
    early, late = of(outputs, 0), of(outputs, 1)
    assert early[1].unique().numel() > 20
    assert torch.equal(early[0], late[0])
    assert torch.equal(early[1], late[1])
    torch.testing.assert_close(early[2], late[2], atol=1e-4, rtol=0)


def test_a_codec_that_the_model_was_not_trained_on_is_refused_by_its_field() -> None:
    lm, mimi = weights()
    with pytest.raises(CodecUnfit, match="codebooks is 6"):
        MoshiSlots(lm, MimiSlots(Mimi.random(MimiConfig.tiny(), 6), 1), 1)
    wide = Mimi.random(replace(MimiConfig.tiny(), codebook_size=128))
    with pytest.raises(CodecUnfit, match="codebook_size is 128") as refused:
        MoshiSlots(lm, MimiSlots(wide, 1), 1)
    assert refused.value.field == "codebook_size"
    MoshiSlots(lm, MimiSlots(mimi, 1), 1)


def test_half_precision_works_as_on_a_gpu() -> None:
    lm = MoshiLM.random(CONFIG, seed=1).to(torch.bfloat16)
    mimi = Mimi.random(MimiConfig.tiny(), seed=2).to(torch.bfloat16)
    model = MoshiSlots(lm, MimiSlots(mimi, 2, margin=2), 2, margin=2)
    begin(model, 1, 2)
    outputs = [give(model, frame) for frame in user_audio(6, 4)[:, None].expand(-1, 2, -1)]
    model.rewind(seeds(2, 0))
    outputs += [give(model, frame) for frame in user_audio(3, 5)[:, None].expand(-1, 2, -1)]
    assert torch.stack([output.finite for output in outputs]).all()
    assert of(outputs, 0)[1][1:].min() >= 0
    assert outputs[-1].pcm.dtype == torch.float32


def test_a_step_of_the_published_size_stays_on_its_device_and_asks_it_nothing() -> None:
    """On the device without data every mix of devices and every look at a number fails: what a CUDA graph forbids."""
    identity = CodecIdentity("mimi", "none", 24_000, 1920, 8, 2048)
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("meta"), mock.patch.object(Mimi, "identity", identity):
            lm, mimi = MoshiLM(MoshiConfig.published()), Mimi(MimiConfig())
            model = MoshiSlots(lm, MimiSlots(mimi, 64, margin=25), 64, margin=25)
    finally:
        torch.set_default_dtype(torch.float32)
    begin(model, *range(64))
    model.rewind(torch.zeros(64, dtype=torch.int64))
    output = give(model, torch.zeros(64, 1920))
    assert output.pcm.shape == (64, 1920)
    assert {tensor.device.type for tensor in (output.pcm, output.text, output.said, output.finite)} == {"meta"}
    assert 100e9 < model.streams.bytes < 103e9


def test_a_recorded_step_gives_what_the_step_gives_bit_for_bit() -> None:
    """Also for slots that pause, are hushed, given their words, rewound, or begin anew."""
    plain, recorded = build(3, margin=4), build(3, margin=4)
    recorded.record()
    for model in (plain, recorded):
        begin(model, 1, 2, 3)
    generator = torch.Generator().manual_seed(9)
    frames = 36
    for frame in range(frames):
        run = torch.rand(3, generator=generator) < 0.9
        hush = torch.rand(3, generator=generator) < 0.2
        forced = torch.rand(3, generator=generator) < (0.3 if frame < 5 else 0.0)
        text = torch.randint(0, CONFIG.text_tokens, (3,), generator=generator)
        codes = torch.randint(0, CONFIG.codebook_size, (3, plain.codebooks), generator=generator)
        pcm = 0.2 * torch.randn(3, HOP, generator=generator)
        given = StepInput(run, run, pcm, codes, hush, forced, text, codes)
        expected, found = plain.step(given), recorded.step(given)
        for name in ("pcm", "text", "heard", "said", "finite"):
            assert torch.equal(getattr(expected, name)[run], getattr(found, name)[run]), (frame, name)
        if frame == frames // 2:
            for model in (plain, recorded):
                model.rewind(seeds(0, 3, 1))
        if frame == frames // 2 + 3:
            for model in (plain, recorded):
                model.reset(torch.tensor([False, True, False]), seeds(0, 77, 0))
    assert len(set(found.said.flatten().tolist())) > 4
