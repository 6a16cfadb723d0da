"""`models.families.catalog.qwen3_omni`."""

from __future__ import annotations

from pathlib import Path

import pytest

from codec.identity import CodecIdentity
from models.checkpoint import CheckpointError
from models.descriptor import UNDETERMINED, Absent, CannotSpeak, DescriptorMismatch, Stated
from models.graph.parts import Batching, Medium, Readiness
from models.registry import load, load_for_voice, models

from ...checkpoints import QWEN, Config, changed, weights, write

SMALL: Config = changed(
    changed(changed(QWEN, "thinker_config.text_config.vocab_size", 40), "thinker_config.text_config.hidden_size", 8),
    "talker_config.text_config",
    {"hidden_size": 4, "num_hidden_layers": 2, "vocab_size": 20},
)
SHAPES = {
    "thinker.model.embed_tokens.weight": (40, 8),
    "talker.model.codec_embedding.weight": (20, 4),
    "talker.codec_head.weight": (20, 4),
    "code2wav.code_embedding.weight": (16 * 2048, 1024),
}


def test_instruct_speaks_with_sixteen_codebooks_at_12_and_a_half_frames(tmp_path: Path) -> None:
    model = load_for_voice(write(tmp_path, {"config.json": QWEN}))
    assert isinstance(model.descriptor.codec, Stated)
    codec = model.descriptor.codec.value
    assert (codec.sample_rate, codec.hop, codec.codebooks, codec.codebook_size) == (24_000, 1920, 16, 2048)
    assert model.descriptor.variant == Stated("thinker and talker", "config.json: enable_audio_output")
    assert str(model.graph.shape(model.graph.edge("talker.codes -> code2wav.codes"))) == "B,F,16"
    [audio] = model.graph.delivery(Medium.AUDIO)
    assert audio.ready is Readiness.EACH_FRAME


def test_a_checkpoint_without_a_talker_is_refused_for_speech_and_told_what_is_missing(tmp_path: Path) -> None:
    # A thinker-only checkpoint keeps the decoder's configuration; the switch decides, not the table.
    folder = write(tmp_path / "Instruct", {"config.json": changed(QWEN, "enable_audio_output", False)})
    with pytest.raises(CannotSpeak, match=r"it has no talker \(config.json: enable_audio_output is false\)") as caught:
        load_for_voice(folder)
    assert caught.value.missing == ("talker", "speech_decoder", "output_rate")
    model = load(folder)
    assert model.graph.delivery(Medium.AUDIO) == ()
    assert isinstance(model.descriptor.codec, Absent)


def test_a_checkpoint_that_does_not_say_whether_it_speaks_is_refused_too(tmp_path: Path) -> None:
    with pytest.raises(CannotSpeak, match="no source states its talker"):
        load_for_voice(write(tmp_path, {"config.json": changed(QWEN, "enable_audio_output", ...)}))


def test_talker_and_decoder_must_agree_on_the_codebooks(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="makes 8 codes a frame and the decoder plays 16"):
        load(write(tmp_path, {"config.json": changed(QWEN, "talker_config.num_code_groups", 8)}))


@pytest.mark.parametrize("part", ["talker_config", "code2wav_config"])
def test_a_talker_that_is_promised_must_be_configured(part: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is missing although enable_audio_output is true") as caught:
        load(write(tmp_path, {"config.json": changed(QWEN, part, ...)}))
    assert caught.value.where == f"config.json: {part}"


def test_the_input_rate_is_that_of_its_own_feature_extractor(tmp_path: Path) -> None:
    silent = load(write(tmp_path / "a", {"config.json": QWEN})).descriptor
    told = load(write(tmp_path / "b", {"config.json": QWEN, "preprocessor_config.json": {"sampling_rate": 16000}}))
    assert silent.input_rate is UNDETERMINED
    assert told.descriptor.input_rate == Stated(16_000, "preprocessor_config.json: sampling_rate")


def test_a_tokenizer_is_bound_by_its_contents(tmp_path: Path) -> None:
    files = {"config.json": QWEN, "tokenizer_config.json": {"tokenizer_class": "Qwen2Tokenizer"}}
    one = load(write(tmp_path / "a", {**files, "tokenizer.json": {"v": 1}})).descriptor
    other = load(write(tmp_path / "b", {**files, "tokenizer.json": {"v": 2}})).descriptor
    assert isinstance(one.tokenizer, Stated)
    assert one.tokenizer.value.startswith("Qwen2Tokenizer ")
    assert one.tokenizer != other.tokenizer


def test_weights_with_the_shapes_of_the_configuration_are_taken(tmp_path: Path) -> None:
    folder = write(tmp_path, {"config.json": SMALL})
    weights(folder / "model.safetensors", SHAPES)
    assert load(folder).compared == 4


@pytest.mark.parametrize("tensor", SHAPES)
def test_weights_with_another_shape_are_refused(tensor: str, tmp_path: Path) -> None:
    folder = write(tmp_path, {"config.json": SMALL})
    rows, width = SHAPES[tensor]
    weights(folder / "model.safetensors", {**SHAPES, tensor: (rows + 1, width)})
    with pytest.raises(DescriptorMismatch, match="do not belong together") as caught:
        load(folder)
    assert caught.value.tensor == tensor


def test_weights_without_the_talker_that_the_configuration_promises_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, {"config.json": SMALL})
    weights(folder / "model.safetensors", {name: shape for name, shape in SHAPES.items() if "talker" not in name})
    with pytest.raises(DescriptorMismatch, match="the weights do not hold it"):
        load(folder)


def test_a_thinker_alone_needs_no_talker_in_its_weights(tmp_path: Path) -> None:
    folder = write(tmp_path, {"config.json": changed(SMALL, "enable_audio_output", False)})
    weights(folder / "model.safetensors", {"thinker.model.embed_tokens.weight": (40, 8)})
    assert load(folder).compared == 1


def test_three_caches_never_mix() -> None:
    graph = models()["qwen3-omni-instruct"].graph
    loops = {edge.name: graph.state(edge).value for edge in graph.edges if edge.loop}
    assert loops["thinker.kv -> thinker.past"] == loops["talker.kv -> talker.past"] == "kv"
    assert loops["code2wav.played -> code2wav.played"] == "session"
    assert graph.batching("code2wav") == (Batching.CHUNK_DEADLINE,)


def test_the_captioner_hears_and_does_not_see() -> None:
    captioner = models()["qwen3-omni-captioner"]
    assert captioner.descriptor.hears == (Medium.AUDIO,)
    assert "vision_encoder" not in [node.name for node in captioner.graph.nodes]


def test_the_version_of_the_codec_follows_its_configuration(tmp_path: Path) -> None:
    def codec(config: Config, name: str) -> CodecIdentity:
        fact = load(write(tmp_path / name, {"config.json": config})).descriptor.codec
        assert isinstance(fact, Stated)
        return fact.value

    one, other = codec(QWEN, "a"), codec(changed(QWEN, "code2wav_config.hidden_size", 512), "b")
    assert one.version != other.version
