"""`models.families.catalog.moshi`: three layouts of one architecture."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.checkpoint import CheckpointError
from models.descriptor import UNDETERMINED, Absent, CannotSpeak, DescriptorMismatch, Stated
from models.graph.parts import Batching, Medium
from models.registry import load, load_for_voice

from ...checkpoints import MOSHI, MOSHI_TRANSFORMERS, PERSONAPLEX, Config, changed, weights, write

SMALL: Config = {
    **MOSHI, "dim": 16, "text_card": 32, "card": 8, "n_q": 4, "dep_q": 2, "depformer_dim": 4, "delays": [0, 0, 1, 0, 1]
}  # fmt: skip
SHAPES: dict[str, tuple[int, ...]] = {
    "text_emb.weight": (33, 16),
    "text_linear.weight": (32, 16),
    **{f"emb.{stream}.weight": (9, 16) for stream in range(4)},
    **{f"linears.{codebook}.weight": (8, 4) for codebook in range(2)},
}


def test_the_codec_is_bound_with_its_delays(tmp_path: Path) -> None:
    descriptor = load_for_voice(write(tmp_path, {"config.json": MOSHI})).descriptor
    assert isinstance(descriptor.codec, Stated)
    codec = descriptor.codec.value
    assert (codec.name, codec.version) == ("mimi", "tokenizer-e351c8d8-checkpoint125")
    assert (codec.sample_rate, codec.hop, codec.codebooks, codec.codebook_size) == (24_000, 1920, 8, 2048)
    assert codec.delays == (0, 1, 1, 1, 1, 1, 1, 1)


def test_a_codec_that_brings_its_own_configuration_is_timed_by_it(tmp_path: Path) -> None:
    config = {**MOSHI, "mimi_config_name": "mimi.json"}
    files = {"config.json": config, "mimi.json": {"sample_rate": 16_000, "frame_rate": 25}}
    codec = load(write(tmp_path / "a", files)).descriptor.codec
    assert isinstance(codec, Stated)
    assert (codec.value.sample_rate, codec.value.hop) == (16_000, 640)
    assert codec.source.endswith("mimi.json: frame_rate")
    with pytest.raises(CheckpointError, match="do not divide"):
        load(write(tmp_path / "b", {**files, "mimi.json": {"sample_rate": 16_000, "frame_rate": 7}}))


def test_a_frame_may_leave_once_its_slowest_codebook_is_there(tmp_path: Path) -> None:
    late = load(write(tmp_path / "a", {"config.json": MOSHI})).graph.delivery(Medium.AUDIO)
    at_once = load(write(tmp_path / "b", {"config.json": changed(MOSHI, "delays", [0] * 17)})).graph
    assert late[0].delay_frames == 1
    assert at_once.delivery(Medium.AUDIO)[0].delay_frames == 0


def test_both_layouts_of_the_same_model_say_the_same(tmp_path: Path) -> None:
    ours = load(write(tmp_path / "a", {"config.json": MOSHI})).descriptor
    theirs = load(write(tmp_path / "b", {"config.json": MOSHI_TRANSFORMERS})).descriptor
    assert ours.symbols == theirs.symbols
    assert isinstance(ours.backbone, Stated)
    assert isinstance(theirs.backbone, Stated)
    assert ours.backbone.value == theirs.backbone.value
    assert (ours.context, theirs.context) == (
        Stated(3000, "config.json: context"),
        Stated(3000, "config.json: sliding_window"),
    )


def test_a_window_moves_so_a_session_need_not_end(tmp_path: Path) -> None:
    descriptor = load(write(tmp_path, {"config.json": MOSHI})).descriptor
    assert isinstance(descriptor.bounded, Stated)
    assert descriptor.bounded.value is False


def test_one_without_generated_codebooks_listens_only(tmp_path: Path) -> None:
    folder = write(tmp_path, {"config.json": changed(MOSHI, "dep_q", 0)})
    with pytest.raises(CannotSpeak, match="dep_q is 0"):
        load_for_voice(folder)
    model = load(folder)
    assert isinstance(model.descriptor.codec, Absent)
    assert model.graph.delivery(Medium.AUDIO) == ()


@pytest.mark.parametrize(("field", "value"), [("dep_q", 17), ("delays", [0, 1]), ("n_q", "16"), ("card", True)])
def test_a_configuration_that_contradicts_itself_is_refused(field: str, value: object, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError) as caught:
        load(write(tmp_path, {"config.json": changed(MOSHI, field, value)}))
    assert caught.value.where == f"config.json: {field}"


def test_weights_are_compared_codebook_by_codebook(tmp_path: Path) -> None:
    folder = write(tmp_path, {"config.json": SMALL})
    weights(folder / "model.safetensors", SHAPES)
    assert load(folder).compared == len(SHAPES)
    weights(folder / "model.safetensors", {**SHAPES, "emb.3.weight": (17, 16)})
    with pytest.raises(DescriptorMismatch) as caught:
        load(folder)
    assert caught.value.tensor == "emb.3.weight"


def test_weights_that_lack_a_codebook_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, {"config.json": SMALL})
    weights(folder / "model.safetensors", {n: s for n, s in SHAPES.items() if n != "linears.1.weight"})
    with pytest.raises(DescriptorMismatch, match=r"linears\.1\.weight"):
        load(folder)


def test_personaplex_says_nothing_so_its_weights_do(tmp_path: Path) -> None:
    folder = write(tmp_path, {"config.json": PERSONAPLEX})
    bare = load(folder).descriptor
    assert bare.backbone is UNDETERMINED
    assert bare.codec is UNDETERMINED
    assert bare.talker is UNDETERMINED
    weights(folder / "model.safetensors", {**SHAPES, "transformer.layers.1.norm1.alpha": (1, 1, 16)})
    weights(folder / "tokenizer-e351c8d8-checkpoint125.safetensors", {"quantizer": (1,)})
    descriptor = load_for_voice(folder).descriptor
    assert descriptor.variant == Stated("PersonaPlex", "PersonaPlex repository")
    assert isinstance(descriptor.backbone, Stated)
    assert descriptor.backbone.value == "2 layers, width 16"
    assert isinstance(descriptor.codec, Stated)
    assert (descriptor.codec.value.codebooks, descriptor.codec.value.codebook_size) == (2, 8)


@pytest.mark.parametrize("kind", ["personaplex", "moshi"])
def test_half_of_what_is_predicted_are_the_users_codebooks_where_all_are(kind: str, tmp_path: Path) -> None:
    config = {**SMALL, "model_type": kind, "dep_q": 4}
    descriptor = load(write(tmp_path, {"config.json": config})).descriptor
    assert isinstance(descriptor.codec, Stated)
    assert descriptor.codec.value.codebooks == 2


def test_a_checkpoint_that_the_engine_loads_is_described_and_compared(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from codec.mimi.config import MimiConfig
    from models.families.moshi.config import TINY
    from tests.models.families.moshi import published
    from tests.models.families.moshi.building import weights as tiny

    model = load_for_voice(published.write(tmp_path / "any name", *tiny(), TINY))
    assert model.family.name == "moshi"
    assert model.compared > 10
    assert isinstance(model.descriptor.codec, Stated)
    codec = model.descriptor.codec.value
    assert codec.codebook_size == MimiConfig.tiny().codebook_size
    assert (codec.sample_rate, codec.hop) == (MimiConfig.tiny().sample_rate, MimiConfig.tiny().hop)
    assert len(codec.delays) == TINY["dep_q"]


def test_a_first_checkpoint_without_any_configuration_is_known_by_its_weights(tmp_path: Path) -> None:
    weights(tmp_path / "model.safetensors", SHAPES)
    model = load(tmp_path)
    assert model.family.name == "moshi"
    assert model.descriptor.symbols == {"d": 16, "Q": 2, "Q_in": 4, "K": 8, "V": 32}


def test_everything_goes_by_one_clock_and_in_slots(tmp_path: Path) -> None:
    graph = load(write(tmp_path, {"config.json": MOSHI})).graph
    assert graph.batching("temporal") == (Batching.SLOTS,)
    assert graph.batching("depth") == ()
    clocks = {port.clock for port in graph.node("temporal").inputs.values()}
    assert len(clocks) == 1
