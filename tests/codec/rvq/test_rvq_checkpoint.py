from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from codec.rvq.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from codec.rvq.shipped import SHIPPED
from tests.codec.rvq.tiny import TINY, tiny_codec


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "weights" / "tiny.safetensors"
    save_checkpoint(path, tiny_codec(), "3")
    return path


def metadata(path: Path) -> dict[str, str]:
    with safe_open(str(path), framework="numpy") as file:
        return dict(file.metadata())


def test_it_comes_back_as_it_was_but_for_the_precision(saved: Path) -> None:
    checkpoint = load_checkpoint(saved)
    assert checkpoint.identity == TINY.identity("3")
    assert checkpoint.codec.config == TINY
    for name, value in tiny_codec().state_dict().items():
        assert torch.allclose(checkpoint.codec.state_dict()[name], value, atol=1e-3), name
    assert not checkpoint.codec.training
    assert not any(parameter.requires_grad for parameter in checkpoint.codec.parameters())


def test_saving_what_was_loaded_changes_nothing(saved: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.safetensors"
    save_checkpoint(again, load_checkpoint(saved).codec, "3")
    assert metadata(again) == metadata(saved)  # with the SHA-256 of the weights


def test_nothing_but_the_checkpoint_is_left_behind(saved: Path) -> None:
    assert [path.name for path in saved.parent.iterdir()] == ["tiny.safetensors"]


def refused(path: Path) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(path)
    assert str(path) in str(caught.value)
    return caught.value


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert refused(tmp_path / "none.safetensors").reason == "missing"


@pytest.mark.parametrize("kept", [0, 4, 100, 0.5, -1])
def test_a_file_cut_short_is_damaged(saved: Path, kept: float) -> None:
    content = saved.read_bytes()
    saved.write_bytes(content[: int(len(content) * kept) if 0 < kept < 1 else int(kept)])
    assert refused(saved).reason == "damaged"


def test_one_changed_bit_in_a_weight_is_damage(saved: Path) -> None:
    content = bytearray(saved.read_bytes())
    content[-101] ^= 1
    saved.write_bytes(content)
    assert refused(saved).reason == "damaged"


def rewritten(path: Path, change: Callable[[dict[str, str]], None]) -> None:
    about = metadata(path)
    change(about)
    save_file(load_file(path), path, about)


def test_another_version_in_the_metadata_is_damage(saved: Path) -> None:
    def newer(about: dict[str, str]) -> None:
        about["identity"] = about["identity"].replace('"3"', '"4"')

    rewritten(saved, newer)
    assert refused(saved).reason == "damaged"


def test_safetensors_of_another_model_are_foreign(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    save_file({"w": np.zeros(3, np.float16)}, path)
    assert refused(path).reason == "foreign"
    save_file({"w": np.zeros(3, np.float16)}, path, {"format": "talkover-rvq-9"})
    assert "talkover-rvq-9" in str(refused(path))


def forged(path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[dict[str, str]], None]) -> None:
    """The file with other metadata and the digest that belongs to them."""
    from codec.rvq import checkpoint

    def signed(about: dict[str, str]) -> None:
        change(about)
        about["sha256"] = checkpoint._digest(about, load_file(path))

    rewritten(path, signed)


@pytest.mark.parametrize(
    ("key", "field", "value"),
    [
        ("config", "latent", 9),
        ("config", "codebooks", 5),
        ("config", "depth", 1),
        ("config", "fine", 0),
        ("identity", "codebook_size", 17),
        ("identity", "hop", 1),
        ("identity", "name", "mimi"),
    ],
)
def test_sizes_that_do_not_fit_the_weights_are_a_mismatch(
    saved: Path, monkeypatch: pytest.MonkeyPatch, key: str, field: str, value: object
) -> None:
    def change(about: dict[str, str]) -> None:
        about[key] = json.dumps({**json.loads(about[key]), field: value}, sort_keys=True)

    forged(saved, monkeypatch, change)
    assert refused(saved).reason == "mismatch"


def test_a_config_that_is_no_json_is_a_mismatch(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forged(saved, monkeypatch, lambda about: about.update(config="{"))
    assert refused(saved).reason == "mismatch"


def test_too_little_memory_is_said(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("codec.rvq.checkpoint.RvqCodec", exhausted)
    assert refused(saved).reason == "memory"


def test_a_renamed_file_is_the_same_codec(saved: Path, tmp_path: Path) -> None:
    other = tmp_path / "mimi-v2.safetensors"
    shutil.copy(saved, other)
    assert load_checkpoint(other).identity == load_checkpoint(saved).identity


def test_the_shipped_checkpoint_is_whole_and_small() -> None:
    assert SHIPPED.stat().st_size <= 14_000_000
    identity = load_checkpoint().identity
    assert (identity.name, identity.codebooks, identity.codebook_size) == ("talkover-rvq", 16, 1024)
