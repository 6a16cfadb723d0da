"""`models.registry`: by name, or by what lies in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.checkpoint import CheckpointError
from models.registry import UnknownModel, find, load, models

from .checkpoints import MOSHI, QWEN, write


def test_a_name_finds_what_is_published() -> None:
    assert find("moshi").descriptor == models()["moshi"].descriptor


def test_a_path_finds_what_lies_there(tmp_path: Path) -> None:
    assert find(str(write(tmp_path / "x", {"config.json": QWEN}))).family.name == "qwen3-omni"


def test_a_folder_that_is_called_like_a_family_is_still_read_by_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "bagel", {"config.json": MOSHI})
    monkeypatch.chdir(tmp_path)
    assert find("bagel").family.name == "bagel"
    assert find("./bagel").family.name == "moshi"


def test_an_unknown_name_is_answered_with_those_that_there_are() -> None:
    with pytest.raises(UnknownModel, match="neither a folder nor one of embedded, moshi"):
        find("gpt-17")


def test_an_unknown_architecture_is_answered_with_its_own_words(tmp_path: Path) -> None:
    folder = write(tmp_path / "moshi", {"config.json": {"model_type": "mamba"}})
    with pytest.raises(UnknownModel, match="model_type 'mamba'"):
        load(folder)


def test_an_empty_folder_is_told_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="give the folder that holds it"):
        load(tmp_path)


def test_a_file_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="is no folder"):
        find(str(tmp_path / "model.safetensors"))
