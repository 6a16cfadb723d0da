"""The geometry is read from the configuration's fields; what they cannot mean is refused by name."""

from __future__ import annotations

import pytest

from codec.mimi.errors import ConfigInvalid
from models.families.moshi.config import TINY, MoshiConfig


def test_one_field_changes_the_result() -> None:
    assert MoshiConfig.read({**TINY, "context": 50}).temporal.context == 50
    assert MoshiConfig.read({**TINY, "num_layers": 3}).temporal.layers == 3
    assert MoshiConfig.read({**TINY, "hidden_scale": 4}).temporal.hidden == 21 * 64 // 8
    assert MoshiConfig.read({**TINY, "depformer_multi_linear": False}).depth.shared_input


def test_weights_can_be_shared_by_codebooks() -> None:
    schedule = [0, 1, 2, 2, 3, 3, 3, 3]
    assert MoshiConfig.read({**TINY, "depformer_weights_per_step_schedule": schedule}).depth.schedule == tuple(schedule)


def test_a_depth_transformer_that_says_both_speakers_leaves_the_user_to_be_heard() -> None:
    config = MoshiConfig.read({**TINY, "dep_q": 16})
    assert (config.agent, config.user, config.depth_in_checkpoint) == (8, 8, 16)
    assert len(config.depth.schedule) == 8


def test_fields_without_meaning_for_the_model_are_left_alone() -> None:
    named = {**TINY, "model_type": "moshi", "moshi_name": "a.safetensors", "conditioners": {}, "lora": False}
    assert MoshiConfig.read(named) == MoshiConfig.tiny()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dim", None),
        ("dim", "64"),
        ("dim", True),
        ("num_heads", 5),
        ("num_heads", 0),
        ("depformer_num_heads", 3),
        ("delays", [0] * 16),
        ("delays", [-1] + [0] * 16),
        ("delays", "0"),
        ("delays", [0.5] * 17),
        ("dep_q", 0),
        ("dep_q", 17),
        ("existing_text_padding_id", 64),
        ("norm", "layer_norm"),
        ("gating", "none"),
        ("positional_embedding", "sin"),
        ("causal", False),
        ("layer_scale", 0.01),
        ("kv_repeat", 4),
        ("norm_emb", True),
        ("lora", True),
        ("quantize", True),
        ("conditioners", {"description": {}}),
        ("cross_attention", True),
        ("extra_heads_num_heads", 4),
        ("demux_second_stream", True),
        ("depformer_weights_per_step", False),
        ("depformer_weights_per_step_schedule", [0, 1]),
        ("depformer_low_rank_embeddings", 64),
        ("depformer_pos_emb", "sin"),
        ("text_card_out", 5),
    ],
)
def test_a_field_that_cannot_be_is_refused_by_its_name(field: str, value: object) -> None:
    with pytest.raises(ConfigInvalid, match=field):
        MoshiConfig.read({**TINY, field: value})


def test_a_depth_transformer_that_says_all_streams_of_one_pattern_only_cannot_listen() -> None:
    delays = [0, *range(16)]
    with pytest.raises(ConfigInvalid, match="cannot listen"):
        MoshiConfig.read({**TINY, "dep_q": 16, "delays": delays})
