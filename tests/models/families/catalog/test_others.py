"""The families that are described and not served: what is particular about each."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.checkpoint import CheckpointError
from models.descriptor import UNDETERMINED, Absent, CannotSpeak, DescriptorMismatch, Stated, require_voice
from models.graph.clocks import ClockMismatch, Rate
from models.graph.parts import Batching, Medium, Readiness
from models.graph.states import StateKind
from models.registry import find, load, load_for_voice, models

from ...checkpoints import (
    ANYGPT,
    ANYGPT_TOKENS,
    BAGEL,
    MING,
    MING_FLASH,
    MING_FLASH_TALKER,
    MINICPM,
    NEXT_GPT,
    changed,
    weights,
    write,
)


def test_ming_omni_and_flash_are_two_descriptors(tmp_path: Path) -> None:
    first = load(write(tmp_path / "a", {"config.json": MING})).descriptor
    flash = load(write(tmp_path / "b", {"config.json": MING_FLASH, "talker/config.json": MING_FLASH_TALKER})).descriptor
    assert (first.family, flash.family) == ("ming-omni", "ming-flash-omni")
    assert isinstance(first.talker, Stated)
    assert "32768 speech tokens" in first.talker.value
    assert isinstance(flash.talker, Stated)
    assert "DiT head" in flash.talker.value
    assert isinstance(flash.codec, Absent)
    assert first.codec is UNDETERMINED


def test_the_preview_of_flash_has_the_same_configuration_and_is_not_taken_for_it(tmp_path: Path) -> None:
    descriptor = load(
        write(tmp_path, {"config.json": MING_FLASH, "talker/config.json": {"audio_vocab_size": 1}})
    ).descriptor
    assert descriptor.variant is UNDETERMINED
    assert descriptor.talker is UNDETERMINED
    with pytest.raises(CannotSpeak):
        require_voice(descriptor)


def test_flash_speaks_by_steps_within_patches() -> None:
    graph = models()["ming-flash-omni-2.0"].graph
    assert graph.batching("dit_head") == (Batching.LATENT_STEP,)
    edge = graph.edge("dit_head.latent -> audio_vae.latent")
    assert graph.state(edge) is StateKind.LATENT
    steps, tokens = graph.source_port(edge).clock, graph.node("ling").outputs["text"].clock
    assert steps is not None
    assert tokens is not None
    with pytest.raises(ClockMismatch):
        _ = Rate(steps, 10) / Rate(tokens, 40)  # type: ignore[arg-type]


def test_streaming_is_not_taken_for_interruptible(tmp_path: Path) -> None:
    descriptor = load(write(tmp_path, {"config.json": MINICPM})).descriptor
    assert descriptor.interruptible is UNDETERMINED
    assert descriptor.rewindable is UNDETERMINED
    assert descriptor.codec is UNDETERMINED
    assert descriptor.variant == Stated("MiniCPM-o 4.5", "config.json: version")


def test_minicpm_without_its_speech_decoder_is_refused_for_speech(tmp_path: Path) -> None:
    folder = write(tmp_path, {"config.json": changed(MINICPM, "init_tts", False)})
    with pytest.raises(CannotSpeak, match="init_tts is false"):
        load_for_voice(folder)
    assert load(folder).graph.delivery(Medium.AUDIO) == ()


def test_integers_are_not_yet_something_that_can_be_played(tmp_path: Path) -> None:
    files = {"config.json": ANYGPT, "added_tokens.json": ANYGPT_TOKENS}
    with pytest.raises(CannotSpeak) as caught:
        load_for_voice(write(tmp_path, files))
    assert "speech_decoder" in caught.value.missing
    assert "talker" not in caught.value.missing


def test_anygpt_is_a_llama_with_its_own_tokens_and_nothing_without_them(tmp_path: Path) -> None:
    tokens = {"added_tokens_decoder": {str(n): {"content": token} for token, n in ANYGPT_TOKENS.items()}}
    newer = load(write(tmp_path / "a", {"config.json": ANYGPT, "tokenizer_config.json": tokens}))
    assert newer.descriptor.symbols["K"] == 1024
    with pytest.raises(LookupError, match="no family recognises"):
        load(write(tmp_path / "AnyGPT-base", {"config.json": ANYGPT}))


def test_anygpt_with_fewer_speech_tokens_is_another(tmp_path: Path) -> None:
    fewer = {token: n for token, n in ANYGPT_TOKENS.items() if n < 33000 + 512}
    descriptor = load(write(tmp_path, {"config.json": ANYGPT, "added_tokens.json": fewer})).descriptor
    assert isinstance(descriptor.talker, Stated)
    assert descriptor.talker.value.startswith("512 ")


def test_weights_of_another_vocabulary_are_refused(tmp_path: Path) -> None:
    small = {**ANYGPT, "vocab_size": 10, "hidden_size": 4}
    folder = write(tmp_path, {"config.json": small, "added_tokens.json": ANYGPT_TOKENS})
    weights(folder / "model.safetensors", {"model.embed_tokens.weight": (10, 4), "lm_head.weight": (11, 4)})
    with pytest.raises(DescriptorMismatch):
        load(folder)


def test_next_gpt_gives_text_long_before_its_images(tmp_path: Path) -> None:
    model = load(write(tmp_path, {"config.json": NEXT_GPT}))
    ready = {delivery.medium: delivery.ready for delivery in model.graph.deliveries}
    assert ready[Medium.TEXT] is Readiness.EACH_TOKEN
    assert ready[Medium.IMAGE] is Readiness.WHOLE
    with pytest.raises(CannotSpeak, match="no talker"):
        require_voice(model.descriptor)


def test_one_transformer_is_two_workloads() -> None:
    graph = models()["transfusion"].graph
    assert graph.batching("transformer") == (Batching.SEQUENCES, Batching.LATENT_STEP)


@pytest.mark.parametrize("name", ["transfusion", "embedded"])
def test_a_family_without_a_checkpoint_of_its_own_reads_none(name: str, tmp_path: Path) -> None:
    from models.checkpoint import Checkpoint

    family = find(name).family
    assert not family.recognises(Checkpoint(tmp_path))
    with pytest.raises(CheckpointError):
        family.describe(Checkpoint(tmp_path))


def test_bagel_is_read_from_its_parts_where_its_config_is_no_json(tmp_path: Path) -> None:
    files = {
        "config.json": '{"model_type": "bagel",}',
        "llm_config.json": BAGEL["llm_config"],
        "vit_config.json": BAGEL["vit_config"],
    }
    descriptor = load(write(tmp_path, files)).descriptor
    whole = load(write(tmp_path / "whole", {"config.json": BAGEL})).descriptor
    assert descriptor.family == "bagel"
    assert descriptor.image_head is UNDETERMINED
    assert isinstance(whole.image_head, Stated)
    assert "16 channels" in whole.image_head.value
    assert descriptor.symbols["d"] == whole.symbols["d"] == 3584


def test_a_broken_config_without_bagels_parts_stays_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is not JSON"):
        load(write(tmp_path, {"config.json": "{"}))


def test_bagel_that_only_understands_draws_nothing(tmp_path: Path) -> None:
    model = load(write(tmp_path, {"config.json": changed(BAGEL, "visual_gen", False)}))
    assert model.graph.delivery(Medium.IMAGE) == ()
    assert isinstance(model.descriptor.image_head, Absent)


def test_the_embedded_cascade_is_bound_by_its_pins() -> None:
    from models.assets import catalogue
    from models.families.catalog.embedded import INPUT_RATE
    from models.perception.mel import SAMPLE_RATE

    descriptor = models()["embedded"].descriptor
    require_voice(descriptor)
    assert descriptor.checkpoint == Stated(catalogue()["smollm2"].fingerprint, "models/assets.toml: smollm2")
    assert INPUT_RATE == SAMPLE_RATE


@pytest.mark.models
def test_the_embedded_rates_are_those_of_its_voice() -> None:
    from models.families.catalog.embedded import OUTPUT_RATE
    from models.families.embedded.talker_hibari import RATE

    assert OUTPUT_RATE == RATE
