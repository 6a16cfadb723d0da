"""A checkpoint's folder loads whole, or is refused with what is wrong with it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
import torch

from codec.mimi.config import MimiConfig
from codec.mimi.errors import CheckpointMissing, CheckpointTruncated, ConfigInvalid, ShapeMismatch, WeightsMissing
from codec.mimi.model import Mimi
from codec.mimi.weights import read_weights
from models.families.moshi import checkpoint
from models.families.moshi.checkpoint import (
    CODEC_FILE,
    CONFIG_FILE,
    TOKENIZER_FILE,
    WEIGHTS_FILE,
    Placement,
    load,
    memory_needed,
    random,
)
from models.families.moshi.config import PUBLISHED, TINY, MoshiConfig
from models.families.moshi.errors import CodecUnfit, OutOfMemory, TokenizerUnfit
from tests.models.families.moshi import published
from tests.models.families.moshi.building import begin, build, give, user_audio, weights

ONE = Placement(slots=1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return published.write(tmp_path / "any name at all", *weights(), TINY)


def change(folder: Path, **fields: object) -> None:
    path = folder / CONFIG_FILE
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_a_published_folder_gives_the_model_that_was_saved(folder: Path) -> None:
    loaded = load(folder, Placement(slots=2)).model
    kept = build(2)
    pcm = user_audio(10, 1)[:, None].expand(-1, 2, -1)
    for model in (loaded, kept):
        begin(model, 4, 5)
    for frame in pcm:
        one, other = give(loaded, frame), give(kept, frame)
        assert torch.equal(one.said, other.said)
        assert torch.equal(one.text, other.text)
        torch.testing.assert_close(one.pcm, other.pcm, atol=1e-5, rtol=0)


def test_the_folders_name_means_nothing_and_its_files_may_be_called_otherwise(folder: Path) -> None:
    (folder / WEIGHTS_FILE).rename(folder / "weights.safetensors")
    (folder / CODEC_FILE).rename(folder / "codec.safetensors")
    change(folder, moshi_name="weights.safetensors", mimi_name="codec.safetensors")
    load(folder.rename(folder.parent / "something-thinking-7b"), ONE)


def test_a_depth_transformer_that_guesses_the_user_gives_the_same_agent(folder: Path) -> None:
    path = folder / WEIGHTS_FILE
    before = load(folder, ONE).model
    published.save(path, published.guessing(read_weights(path), 8))
    change(folder, dep_q=16)
    after = load(folder, ONE).model
    assert (after.lm.config.agent, after.lm.config.user, after.lm.config.depth_in_checkpoint) == (8, 8, 16)
    for model in (before, after):
        begin(model, 4)
    for frame in user_audio(6, 1)[:, None]:
        assert torch.equal(give(before, frame).said, give(after, frame).said)


def test_sampling_is_as_the_checkpoint_wants_it(folder: Path) -> None:
    change(folder, lm_gen_config={"temp": 0.0, "temp_text": 0.0, "top_k": 5})
    one, other = load(folder, Placement(slots=2)).model, load(folder, Placement(slots=2)).model
    begin(one, 1, 2)
    begin(other, 3, 4)
    # Without noise a seed changes nothing.
    for frame in user_audio(6, 1)[:, None].expand(-1, 2, -1):
        assert torch.equal(give(one, frame).said, give(other, frame).said)
    change(folder, lm_gen_config={"top_k": "many"})
    with pytest.raises(ConfigInvalid, match="top_k"):
        load(folder, ONE)


@pytest.mark.parametrize("name", [WEIGHTS_FILE, CODEC_FILE])
def test_a_truncated_file_is_named(folder: Path, name: str) -> None:
    path = folder / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(CheckpointTruncated, match="download it again") as refused:
        load(folder, ONE)
    assert refused.value.where == str(path)


@pytest.mark.parametrize("name", [CONFIG_FILE, WEIGHTS_FILE, CODEC_FILE])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(CheckpointMissing, match="whole checkpoint") as refused:
        load(folder, ONE)
    assert refused.value.where == str(folder / name)


@pytest.mark.parametrize("text", ["{", "[]", '{"dim": 64}'])
def test_a_configuration_that_says_too_little_is_named(folder: Path, text: str) -> None:
    (folder / CONFIG_FILE).write_text(text)
    with pytest.raises(ConfigInvalid):
        load(folder, ONE)


@pytest.mark.parametrize(
    ("field", "value", "tensor"),
    [("dim", 128, "emb.0"), ("depformer_dim", 64, "depformer"), ("card", 128, "emb.0"), ("text_card", 100, "text")],
)
def test_a_configuration_of_other_sizes_is_refused_by_the_first_tensor(
    folder: Path, field: str, value: int, tensor: str
) -> None:
    change(folder, **{field: value})
    with pytest.raises((ShapeMismatch, CodecUnfit)) as refused:
        load(folder, ONE)
    assert isinstance(refused.value, CodecUnfit) == (field == "card")
    if isinstance(refused.value, ShapeMismatch):
        assert tensor.split(".")[0] in refused.value.name or "depth" in refused.value.name


def test_layers_that_lack_or_are_too_many_are_named(folder: Path) -> None:
    change(folder, num_layers=3)
    with pytest.raises(WeightsMissing, match=r"lacks transformer\.layers\.2"):
        load(folder, ONE)
    change(folder, num_layers=1)
    with pytest.raises(WeightsMissing, match=r"does not know transformer\.layers\.1"):
        load(folder, ONE)


def test_another_codec_than_the_one_it_was_trained_on_is_refused_by_its_version(folder: Path) -> None:
    version = load(folder, ONE).model.codec.identity.version
    change(folder, codec_version=version)
    load(folder, ONE)
    published.save(folder / CODEC_FILE, published.published.native(Mimi.random(MimiConfig.tiny(), seed=9)))
    with pytest.raises(CodecUnfit, match="published with the checkpoint") as refused:
        load(folder, ONE)
    assert refused.value.field == "version"


# --- memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: not enough memory"),
    ],
)
def test_too_little_memory_is_said_with_what_is_needed(folder: Path, error: Exception) -> None:
    placement = Placement(slots=3)
    with (
        mock.patch.object(checkpoint, "fill", side_effect=error),
        pytest.raises(OutOfMemory, match=r"fewer --max-sessions") as refused,
    ):
        load(folder, placement)
    assert refused.value.needed == memory_needed(MoshiConfig.tiny(), MimiConfig(), placement)


def test_another_failure_is_not_called_one_of_memory(folder: Path) -> None:
    with (
        mock.patch.object(checkpoint, "fill", side_effect=RuntimeError("no kernel")),
        pytest.raises(RuntimeError, match="no kernel"),
    ):
        load(folder, ONE)


def test_the_memory_of_the_published_model_is_known_before_it_is_loaded() -> None:
    def gigabytes(slots: int) -> float:
        placement = Placement(slots=slots, margin=25, dtype=torch.bfloat16)
        return memory_needed(MoshiConfig.published(), MimiConfig(), placement) / 1e9

    assert gigabytes(1) == pytest.approx(17.1, abs=0.1)
    # 3025 steps of 32 layers, keys and values of 4096, in two bytes each.
    assert gigabytes(2) - gigabytes(1) == pytest.approx(1.6, abs=0.1)


def test_what_is_counted_is_what_is_there() -> None:
    loaded = random(Placement(slots=3, margin=5)).model
    counted = memory_needed(MoshiConfig.tiny(), MimiConfig.tiny(), Placement(slots=3, margin=5))
    codec = loaded.codec
    held = sum(weight.numel() * 4 for weight in loaded.lm.parameters()) + loaded.streams.bytes
    held += sum(weight.numel() * 4 for weight in codec._mimi.parameters()) + codec.bytes  # type: ignore[attr-defined]
    # The tails of convolutions and their history are small beside it.
    assert counted == pytest.approx(held, rel=0.15)


# --- text -------------------------------------------------------------------------------------------------------------


def test_without_a_tokenizer_it_is_served_wordless(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        loaded = load(folder, ONE)
    assert loaded.text().feed(17) == ""
    assert TOKENIZER_FILE in caplog.text


def test_the_tokenizers_pieces_become_words(folder: Path, train: Callable[[int], bytes]) -> None:
    (folder / TOKENIZER_FILE).write_bytes(train(60))
    sentencepiece = pytest.importorskip("sentencepiece")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / TOKENIZER_FILE))
    decoder = load(folder, ONE).text()
    tokens = [3, *processor.encode("we said hello"), 0, 3]
    assert "".join(decoder.feed(token) for token in tokens) == " we said hello"


def test_a_tokenizer_of_another_model_is_refused(folder: Path, train: Callable[[int], bytes]) -> None:
    (folder / TOKENIZER_FILE).write_bytes(train(90))
    with pytest.raises(TokenizerUnfit, match="pieces, but the language model knows 64"):
        load(folder, ONE)
    (folder / TOKENIZER_FILE).write_bytes(b"no model")
    with pytest.raises(TokenizerUnfit, match="download it again"):
        load(folder, ONE)


@pytest.fixture(scope="session")
def train(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], bytes]:
    """A SentencePiece model of about so many pieces."""
    sentencepiece = pytest.importorskip("sentencepiece")

    def make(pieces: int) -> bytes:
        folder = tmp_path_factory.mktemp("pieces")
        (folder / "text").write_text("we said hello and then we said goodbye\nhello to all that we have said\n" * 50)
        sentencepiece.SentencePieceTrainer.train(
            input=str(folder / "text"),
            model_prefix=str(folder / "m"),
            vocab_size=pieces,
            model_type="bpe",
            character_coverage=1.0,
            hard_vocab_limit=False,
            minloglevel=2,
        )
        return (folder / "m.model").read_bytes()

    return make


def test_the_published_geometry_is_the_published_one() -> None:
    config = MoshiConfig.read(PUBLISHED)
    assert config == MoshiConfig.published()
    assert (config.temporal.hidden, config.depth.hidden) == (11_264, 2816)
    assert (config.agent, config.user, config.longest_delay) == (8, 8, 1)
