"""The trained codec's shape in slots, and a model that speaks through it."""

from __future__ import annotations

import torch
from torch import Tensor

from models.families.moshi.config import TINY, MoshiConfig
from models.families.moshi.language import MoshiLM
from models.families.moshi.slots import MoshiSlots
from models.slots.codec import SlotCodec
from models.slots.model import StepInput, StepOutput
from models.slots.rvq import RvqSlots
from tests.codec.rvq.tiny import tiny_checkpoint

torch.set_num_threads(1)

HOP = 1920
CHECKPOINT = tiny_checkpoint()


def everyone(slots: int) -> Tensor:
    return torch.ones(slots, dtype=torch.bool)


def audio(frames: int, slots: int, seed: int = 0) -> Tensor:
    return 0.1 * torch.randn(frames, slots, HOP, generator=torch.Generator().manual_seed(seed))


def test_a_slot_that_was_reset_is_a_fresh_one_and_its_neighbour_goes_on() -> None:
    codec: SlotCodec = RvqSlots(CHECKPOINT, 2, codebooks=4)
    sound = audio(4, 2)
    first = [codec.encode(frame, everyone(2))[0] for frame in sound]
    heard = [codec.decode(codes, everyone(2))[0] for codes in first]
    codec.reset(torch.tensor([True, False]))
    again = [codec.encode(frame, everyone(2))[0] for frame in sound]
    heard_again = [codec.decode(codes, everyone(2))[0] for codes in first]
    assert all(torch.equal(one[0], other[0]) for one, other in zip(first, again, strict=True))
    assert all(torch.equal(one[0], other[0]) for one, other in zip(heard, heard_again, strict=True))
    assert not torch.equal(heard[0][1], heard_again[0][1])


def test_a_slot_with_numbers_that_are_not_finite_is_told_and_does_not_move() -> None:
    codec = RvqSlots(CHECKPOINT, 2, codebooks=4)
    ill = audio(1, 2)[0]
    ill[1, 5] = torch.inf
    codes, finite = codec.encode(ill, everyone(2))
    assert finite.tolist() == [True, False]
    assert codes[1].tolist() == [0, 0, 0, 0]


def test_silence_has_codes_of_its_own() -> None:
    codec = RvqSlots(CHECKPOINT, 1, codebooks=4)
    assert codec.silence.shape == (4,)
    assert codec.silence.dtype == torch.int64


def test_a_model_speaks_through_it_and_a_session_depends_on_nobody() -> None:
    fields = {**TINY, "card": 16, "n_q": 8, "dep_q": 4, "delays": [0, 0, 1, 1, 1, 0, 1, 1, 1]}
    lm = MoshiLM.random(MoshiConfig.read(fields), seed=1)

    def run(seed: int) -> list[StepOutput]:
        model = MoshiSlots(lm, RvqSlots(CHECKPOINT, 3, codebooks=4), 3, margin=3)
        model.reset(everyone(3), torch.tensor([seed, 5, seed + 1]))
        out = []
        for frame, other in zip(audio(8, 3), audio(8, 3, seed), strict=True):
            pcm = torch.stack([other[0], frame[1], other[2]])
            given = StepInput.free(everyone(3), everyone(3), pcm, torch.zeros(3, 4, dtype=torch.int64), ~everyone(3))
            out.append(model.step(given))
            model.rewind(torch.tensor([seed % 2, 0, 0]))
        return out

    one, other = run(10), run(11)
    assert all(
        torch.equal(a.said[1], b.said[1]) and torch.equal(a.pcm[1], b.pcm[1]) for a, b in zip(one, other, strict=True)
    )
    assert torch.stack([output.finite for output in one]).all()
    assert torch.stack([output.pcm[1] for output in one[1:]]).std() > 0
