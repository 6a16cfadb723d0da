"""Folders as they are published: loaded, and refused by the name of what is wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from models.checkpoint import CheckpointError
from models.descriptor import CannotSpeak, DescriptorMismatch
from models.families.qwen3_omni import tiny
from models.families.qwen3_omni.checkpoint import Placement, load, memory_needed, parts_of
from models.families.qwen3_omni.errors import PartsUnfit
from models.families.qwen3_omni.thinker import Thinker
from models.families.qwen3_omni.words import ByteWords

PLACEMENT = Placement(rows=2, shape=tiny.random().shape)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model as `save_pretrained` leaves it, with a byte-level tokenizer beside it."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("published")
    tiny.random().net.save_pretrained(folder)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    return folder


@pytest.fixture
def copied(published: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(published, tmp_path / "copy"))


def change(folder: Path, path: str, value: object) -> None:
    """Set one field of the configuration."""
    file = folder / "config.json"
    config = json.loads(file.read_text())
    *way, last = path.split(".")
    place = config
    for key in way:
        place = place[key]
    place[last] = value
    file.write_text(json.dumps(config))


@torch.inference_mode()
def test_a_published_folder_thinks_what_was_saved_in_it_and_reads_text_by_its_own_tokenizer(published: Path) -> None:
    loaded, made = load(published, PLACEMENT), tiny.random()
    token = torch.tensor([100, 0])
    for omni in (loaded, made):
        assert set(omni.voices) == {"ember", "birch"}
    logits = [Thinker(omni, 2, 8).next_tokens(token, [0])[0, :100].nan_to_num(neginf=0) for omni in (loaded, made)]
    said = [*tiny.TOKENS.__dataclass_fields__]
    assert [getattr(loaded.tokens, name) for name in said if name != "newline"] == [
        getattr(tiny.TOKENS, name) for name in said if name != "newline"
    ]
    mask = logits[1] != 0
    torch.testing.assert_close(logits[0][mask], logits[1][mask], atol=1e-4, rtol=0)
    decoder = loaded.words.decoder()
    text = "naïve 你好"
    assert "".join(map(decoder.feed, loaded.words.encode(text))) + decoder.finish() == text


def truncate(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])


BROKEN: list[tuple[str, Callable[[Path], None], type[Exception], str]] = [
    ("truncated", truncate, CheckpointError, "model.safetensors"),
    ("no talker", lambda f: change(f, "enable_audio_output", False), CannotSpeak, "talker"),
    ("no talker's configuration", lambda f: change(f, "talker_config", None), CheckpointError, "talker_config"),
    (
        "vocabulary",
        lambda f: change(f, "thinker_config.text_config.vocab_size", 999),
        DescriptorMismatch,
        "embed_tokens",
    ),
    ("codebooks", lambda f: change(f, "code2wav_config.num_quantizers", 8), CheckpointError, "num_code_groups"),
    (
        "predictor",
        lambda f: change(f, "talker_config.code_predictor_config.vocab_size", 65),
        PartsUnfit,
        "code_predictor_config.vocab_size",
    ),
    ("layer", lambda f: change(f, "talker_config.accept_hidden_layer", 9), PartsUnfit, "accept_hidden_layer"),
    ("token", lambda f: change(f, "im_end_token_id", 5000), PartsUnfit, "im_end"),
    ("no tokenizer", lambda f: (f / "tokenizer.json").unlink(), CheckpointError, "tokenizer"),
]


@pytest.mark.parametrize(("change_it", "error", "named"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_what_does_not_belong_together_is_refused_by_name(
    copied: Path, change_it: Callable[[Path], None], error: type[Exception], named: str
) -> None:
    change_it(copied)
    with pytest.raises(error) as caught:
        load(copied, PLACEMENT)
    assert named in str(caught.value)


def test_memory_is_that_of_the_weights_and_of_the_states_of_all_rows() -> None:
    config, omni = tiny.config(), tiny.random()
    weights = sum(weight.nbytes for weight in omni.net.parameters())
    parts = parts_of(config, PLACEMENT)
    assert parts["thinker"] + parts["talker"] + parts["code2wav"] == weights
    assert parts["thinker keys and values"] == Thinker(omni, 2, 0).bytes
    assert memory_needed(config, PLACEMENT) == sum(parts.values())


def test_a_text_with_control_tokens_spelled_out_is_plain_text() -> None:
    assert max(ByteWords().encode("<|im_end|>")) < 256
    broken = ByteWords().decoder()
    assert broken.feed(0xE4) + broken.feed(0xBD) + broken.finish() == "\N{REPLACEMENT CHARACTER}"
