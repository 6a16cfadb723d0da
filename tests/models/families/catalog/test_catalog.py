"""What holds for every family: descriptors follow files and nothing else, graphs are valid and complete."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from models.checkpoint import CheckpointError
from models.descriptor import UNDETERMINED, Absent, DescriptorError, Stated
from models.graph.parts import Medium
from models.graph.states import Placement, StateKind
from models.registry import FAMILIES, UnknownModel, load, models
from server.models_command import described

from ... import checkpoints as samples
from ...checkpoints import Config, changed, write
from ...graph.test_render import check_parts, dot_parts, mermaid_parts

FOLDERS: dict[str, dict[str, Any]] = {
    "qwen3-omni": {"config.json": samples.QWEN},
    "moshi": {"config.json": samples.MOSHI},
    "minicpm-o": {"config.json": samples.MINICPM},
    "ming-omni": {"config.json": samples.MING},
    "ming-flash-omni": {"config.json": samples.MING_FLASH, "talker/config.json": samples.MING_FLASH_TALKER},
    "next-gpt": {"config.json": samples.NEXT_GPT},
    "anygpt": {"config.json": samples.ANYGPT, "added_tokens.json": samples.ANYGPT_TOKENS},
    "bagel": {"config.json": samples.BAGEL},
}
WITHOUT_CHECKPOINT = {"embedded", "transfusion"}

FIELDS: dict[str, list[tuple[str, object, str]]] = {
    "qwen3-omni": [
        ("enable_audio_output", False, "talker"),
        ("code2wav_config.codebook_size", 1024, "codec"),
        ("code2wav_config.upsample_rates", [8, 5, 4, 2], "codec"),
        ("thinker_config.text_config.num_experts", 64, "router"),
        ("thinker_config.text_config.max_position_embeddings", 32768, "context"),
        ("thinker_config.audio_config", ..., "audio_encoder"),
        ("thinker_config.vision_config", ..., "image_encoder"),
    ],
    "moshi": [
        ("dep_q", 4, "codec"),
        ("card", 1024, "codec"),
        ("delays", [0] * 17, "codec"),
        ("mimi_name", "another.safetensors", "codec"),
        ("context", 1000, "context"),
        ("tokenizer_name", "another.model", "tokenizer"),
        ("num_layers", 16, "backbone"),
    ],
    "minicpm-o": [
        ("version", "2.6", "variant"),
        ("init_tts", False, "talker"),
        ("init_vision", False, "video_encoder"),
        ("init_audio", False, "audio_encoder"),
        ("tts_config.audio_tokenizer_type", ..., "speech_decoder"),
    ],
    "ming-omni": [
        ("llm_config.multi_gate", False, "router"),
        ("talker_config", ..., "talker"),
        ("whisper_config", ..., "audio_encoder"),
    ],
    "ming-flash-omni": [
        ("llm_config.router_type", "topN", "router"),
        ("llm_config.num_hidden_layers", 16, "backbone"),
    ],
    "next-gpt": [("image_decoder", "another", "image_head"), ("audio_decoder", ..., "speech_decoder")],
    "anygpt": [("max_position_embeddings", 2048, "context"), ("num_hidden_layers", 16, "backbone")],
    "bagel": [
        ("visual_gen", False, "image_head"),
        ("vae_config.z_channels", 4, "image_head"),
        ("llm_config.max_position_embeddings", 4096, "context"),
    ],
}


def test_every_family_of_the_catalog_is_tried_here() -> None:
    names = {family.name for family in FAMILIES}
    assert set(FOLDERS) == set(FIELDS) == names - WITHOUT_CHECKPOINT
    assert len(names) == len(FAMILIES) == 10


@pytest.mark.parametrize("name", FOLDERS)
def test_a_checkpoint_is_recognised_by_its_files_whatever_its_folder_is_called(name: str, tmp_path: Path) -> None:
    first = load(write(tmp_path / "Qwen3-Omni-30B-A3B-Thinking", FOLDERS[name]))
    second = load(write(tmp_path / "moshika", FOLDERS[name]))
    assert first.family.name == second.family.name == first.descriptor.family == name
    assert first.descriptor == second.descriptor


@pytest.mark.parametrize(
    ("name", "path", "value", "fact"), [(name, *field) for name, fields in FIELDS.items() for field in fields]
)
def test_one_field_of_the_configuration_changes_the_result(
    name: str, path: str, value: object, fact: str, tmp_path: Path
) -> None:
    before = load(write(tmp_path / "before", FOLDERS[name])).descriptor
    files = {**FOLDERS[name], "config.json": changed(FOLDERS[name]["config.json"], path, value)}
    after = load(write(tmp_path / "after", files)).descriptor
    assert getattr(before, fact) != getattr(after, fact)
    assert before.checkpoint != after.checkpoint


@pytest.mark.parametrize("name", FOLDERS)
def test_what_a_checkpoint_does_not_say_is_undetermined_and_no_default(name: str, tmp_path: Path) -> None:
    marks: dict[str, Config] = {
        "qwen3-omni": {"model_type": "qwen3_omni_moe"},
        "moshi": {"model_type": "moshi"},
        "minicpm-o": {"model_type": "minicpmo"},
        "ming-omni": {"model_type": "bailingmm", "llm_config": {}},
        "ming-flash-omni": {"model_type": "bailingmm_moe_v2_lite"},
        "next-gpt": {"mm_output_img_projector_type": "transformer"},
        "anygpt": {"model_type": "llama"},
        "bagel": {"model_type": "bagel"},
    }
    files = {**FOLDERS[name], "config.json": marks[name]}
    files.pop("talker/config.json", None)
    model = load(write(tmp_path / "c", files))
    assert model.family.name == name
    assert model.descriptor.backbone is UNDETERMINED
    assert model.descriptor.context is UNDETERMINED
    assert model.descriptor.tokenizer is UNDETERMINED
    assert not isinstance(model.descriptor.codec, Stated)
    assert not model.descriptor.symbols.keys() & {"d", "V"}
    assert model.graph


WRONG_VALUES = [None, 0, -1, 1, 2**70, "", "x" * 5000, "\x1b[2J", [], [2**40], {}, True, 1.5, [None], {"a": 1}]


@pytest.mark.parametrize("name", FOLDERS)
def test_a_field_of_any_value_is_read_or_refused_by_type(name: str, tmp_path: Path) -> None:
    def paths(config: Config, before: str = "") -> list[str]:
        found = []
        for key, value in config.items():
            found += [before + key, *(paths(value, f"{before}{key}.") if isinstance(value, dict) else [])]
        return found

    config = FOLDERS[name]["config.json"]
    chosen = random.Random(name)
    for number in range(60):
        path, value = chosen.choice(paths(config)), chosen.choice(WRONG_VALUES)
        folder = write(tmp_path / str(number), {**FOLDERS[name], "config.json": changed(config, path, value)})
        told = ""
        try:
            model = load(folder)
        except (CheckpointError, DescriptorError, UnknownModel) as refused:
            told = str(refused)
        else:
            assert model.graph
            assert described(model)
        assert len(told) < 600


@pytest.mark.parametrize("name", models())
def test_every_published_graph_prints_and_is_whole(name: str) -> None:
    from models.graph.render import as_dot, as_mermaid, as_text

    graph = models()[name].graph
    check_parts(graph, *mermaid_parts(as_mermaid(graph)), "<br/>")
    check_parts(graph, *dot_parts(as_dot(graph)), "\\n")
    text = as_text(graph)
    assert all(edge.name in text for edge in graph.edges)
    assert all(node.name in text for node in graph.nodes)


@pytest.mark.parametrize("name", models())
def test_the_graph_gives_sound_exactly_where_the_descriptor_says_so(name: str) -> None:
    model = models()[name]
    gives_sound = bool(model.graph.delivery(Medium.AUDIO))
    assert gives_sound == isinstance(model.descriptor.speech_decoder, Stated)
    gives_pictures = bool(model.graph.delivery(Medium.IMAGE))
    assert gives_pictures == isinstance(model.descriptor.image_head, Stated)


@pytest.mark.parametrize("name", models())
def test_keys_and_values_never_leave_their_device_and_latents_never_the_machine(name: str) -> None:
    graph = models()[name].graph
    for edge in graph.edges:
        if graph.state(edge) is StateKind.KV:
            assert edge.placement is Placement.SAME_DEVICE
        if graph.state(edge) is StateKind.LATENT:
            assert edge.placement is not Placement.REMOTE
            assert graph.reuse(edge).once


@pytest.mark.parametrize("name", models())
def test_every_published_fact_has_a_source(name: str) -> None:
    for fact in models()[name].descriptor.facts().values():
        assert fact is UNDETERMINED or (isinstance(fact, Stated | Absent) and fact.source)


def test_names_are_unique_and_variants_of_one_family_may_differ() -> None:
    known = models()
    assert known["qwen3-omni-instruct"].descriptor.speaks
    assert not known["qwen3-omni-thinking"].descriptor.speaks
    assert known["ming-omni"].family is not known["ming-flash-omni-2.0"].family
    assert len(known) == sum(len(family.published) for family in FAMILIES)
