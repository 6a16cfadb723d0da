"""`models.plan.families`: sizes from what is published, from checkpoints, and from nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from models.plan.families import planned
from models.plan.figures import PlanError
from models.plan.geometry import Geometry, Part
from tests.models.checkpoints import QWEN, write

from .sizes import published


def part(geometry: Geometry, name: str) -> Part:
    return next(part for part in geometry.parts if part.name == name)


def test_moshis_seven_billion_and_its_window_of_four_minutes() -> None:
    geometry = published("moshi").geometry
    assert 7.5e9 < geometry.weights / 2 < 8e9
    (window,) = part(geometry, "temporal transformer").attention
    assert (window.layers, window.kv_heads, window.head_dim) == (32, 32, 128)
    # 3,000 frames, and the margin of a rewind.
    assert window.cells == 3025
    assert window.moves
    assert window.bytes == 3025 * 32 * 2 * 32 * 128 * 2
    assert geometry.tick == pytest.approx(0.08)


def test_qwen3_omni_has_the_parameters_that_its_card_states_and_grouped_queries() -> None:
    geometry = published("qwen3-omni").geometry
    assert geometry.weights / 2 == pytest.approx(35.3e9, rel=0.01)
    thinker, talker = part(geometry, "thinker"), part(geometry, "talker")
    assert thinker.weights / 2 == pytest.approx(30.5e9, rel=0.01)
    assert (thinker.attention[0].per_position, talker.attention[0].per_position) == (98_304, 20_480)
    # 142 M and 216 M, as counted on the real modules.
    assert part(geometry, "code predictor").weights / 2 == pytest.approx(141.6e6, rel=0.001)
    assert part(geometry, "code2wav").weights / 2 == pytest.approx(216.0e6, rel=0.001)
    assert thinker.experts is not None
    assert (thinker.experts.count, thinker.experts.used) == (128, 8)


def test_a_variant_without_a_talker_takes_none() -> None:
    names = [part.name for part in planned("qwen3-omni-thinking").geometry.parts]
    assert names == ["encoders", "thinker"]


def test_context_and_dtype_change_what_a_session_takes() -> None:
    long, short = (planned("qwen3-omni", tiny=True, context=context).geometry for context in (2048, 1024))
    (whole,), (half,) = (part(geometry, "thinker").attention for geometry in (long, short))
    assert whole.bytes - half.bytes == 1024 * whole.per_position
    narrow = planned("moshi", tiny=True, dtype="bfloat16").geometry
    assert narrow.weights * 2 == planned("moshi", tiny=True).geometry.weights


def test_a_checkpoint_of_another_family_is_planned_by_the_headers_of_its_weights(tmp_path: Path) -> None:
    config = {"model_type": "minicpmo", "hidden_size": 64, "num_hidden_layers": 3, "vocab_size": 7}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 4096}
    (tmp_path / "config.json").write_text(json.dumps(config | heads))
    header = json.dumps(
        {"llm.model.embed_tokens.weight": {"dtype": "BF16", "shape": [7, 64], "data_offsets": [0, 896]}}
    )
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header.encode() + bytes(896))
    geometry = planned("minicpm-o", checkpoint=tmp_path, context=100).geometry
    assert geometry.weights == 7 * 64 * 2
    assert geometry.session == 100 * 3 * 2 * 2 * 16 * 2
    assert geometry.tick is None
    assert "talker and codec state" in geometry.missing


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"name": "moschi"}, "--family"),
        ({"name": "bagel"}, "--checkpoint"),
        ({"name": "moshi", "checkpoint": Path("/nowhere")}, "--checkpoint"),
        ({"name": "moshi", "dtype": "float128"}, "--dtype"),
        ({"name": "moshi", "dtype": "int8"}, "--dtype"),
        ({"name": "moshi", "tiny": True, "context": 0}, "--context"),
        ({"name": "qwen3-omni", "tiny": True, "context": -1}, "--context"),
        ({"name": "bagel", "tiny": True}, "--random-weights"),
    ],
)
def test_what_cannot_be_planned_names_the_option(asked: dict[str, object], field: str) -> None:
    with pytest.raises(PlanError) as refused:
        planned(**asked)  # type: ignore[arg-type]
    assert refused.value.field == field


def test_a_checkpoint_of_another_family_than_asked_for_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, {"config.json": QWEN})
    with pytest.raises(PlanError, match="is qwen3-omni, not moshi"):
        planned("moshi", checkpoint=folder)
