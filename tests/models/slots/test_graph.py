"""Without a CUDA device a graphed model is the model itself."""

from __future__ import annotations

import torch

from models.slots.graph import GraphedModel
from tests.models.families.moshi.building import begin, build, give, seeds, user_audio


def test_on_a_cpu_every_call_goes_to_the_model() -> None:
    plain, inner = build(2, margin=3), build(2, margin=3)
    graphed = GraphedModel(inner, torch.device("cpu"))
    begin(plain, 1, 2)
    graphed.reset(torch.ones(2, dtype=torch.bool), seeds(1, 2))
    for frame in user_audio(4, 1)[:, None].expand(-1, 2, -1):
        one, other = give(plain, frame), give(graphed, frame)  # type: ignore[arg-type]
        assert torch.equal(one.said, other.said)
    for model in (plain, graphed):
        model.rewind(seeds(2, 0))
    assert inner.streams.position.tolist() == [2, 4]
    assert (graphed.batch, graphed.hop, graphed.margin) == (2, 1920, 3)
