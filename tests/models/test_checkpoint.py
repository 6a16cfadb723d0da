"""`models.checkpoint`: a folder as it describes itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from models import checkpoint as checkpoint_module
from models.checkpoint import Checkpoint, CheckpointError, Table, TensorInfo

from .checkpoints import weights, write

TABLE = Table("config.json", {"a": {"b": 3, "flag": True, "list": [1, 2], "text": "x", "empty": ""}, "wrong": "3"})


def test_a_path_joins_keys_by_dots() -> None:
    assert TABLE.integer("a.b") == 3
    assert TABLE.truth("a.flag") is True
    assert TABLE.integers("a.list") == (1, 2)
    assert TABLE.text("a.text") == "x"
    assert TABLE.names() == {"a", "wrong"}


@pytest.mark.parametrize("path", ["nothing", "a.nothing", "nothing.at.all"])
def test_what_is_not_there_is_none(path: str) -> None:
    assert TABLE.at(path) is None
    assert TABLE.integer(path) is None
    assert TABLE.table(path) is None


def test_an_empty_text_says_nothing() -> None:
    assert TABLE.text("a.empty") is None


def test_a_table_inside_keeps_its_place() -> None:
    inner = TABLE.table("a")
    assert inner is not None
    assert inner.where("b") == "config.json: a.b"


@pytest.mark.parametrize(
    ("read", "path"),
    [
        ("integer", "wrong"),
        ("integer", "a.flag"),
        ("truth", "a.b"),
        ("text", "a.b"),
        ("table", "a.b"),
        ("integers", "a.b"),
        ("integers", "a.text"),
        ("at", "wrong.deeper"),
    ],
)
def test_a_field_of_another_type_is_refused_by_its_place(read: str, path: str) -> None:
    with pytest.raises(CheckpointError, match="must be") as caught:
        getattr(TABLE, read)(path)
    assert caught.value.where.startswith("config.json: ")


def test_a_number_below_its_least_is_refused() -> None:
    with pytest.raises(CheckpointError, match="from 4 on"):
        TABLE.integer("a.b", least=4)


def test_a_digest_changes_with_any_field() -> None:
    assert Table("f", {"a": 1, "b": 2}).digest() == Table("g", {"b": 2, "a": 1}).digest()
    assert Table("f", {"a": 1}).digest() != Table("f", {"a": 2}).digest()


def test_no_folder_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="give the folder"):
        Checkpoint(tmp_path / "none")


@pytest.mark.parametrize("text", ["{", "[1]", "3", '{"a": 1,}', "\ud83d"])
def test_a_broken_description_says_what_to_do(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(CheckpointError) as caught:
        Checkpoint(tmp_path).table()
    assert caught.value.where == "config.json"


def test_the_deepest_nesting_is_no_crash(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[" * 100_000)
    with pytest.raises(CheckpointError, match="is not JSON"):
        Checkpoint(tmp_path).table()


def test_a_description_of_absurd_length_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_module, "_LONGEST_JSON", 8)
    with pytest.raises(CheckpointError, match="that is no description"):
        Checkpoint(write(tmp_path, {"config.json": {"a": "long enough"}})).table()


def test_a_header_that_is_no_json_object_is_refused(tmp_path: Path) -> None:
    for header in (b"[1]", b"{]"):
        (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
        with pytest.raises(CheckpointError, match="broken header"):
            _ = Checkpoint(tmp_path).tensors


def test_the_version_follows_files_and_not_the_folder(tmp_path: Path) -> None:
    one, other = (
        write(tmp_path / "one", {"config.json": {"a": 1}}),
        write(tmp_path / "other", {"config.json": {"a": 1}}),
    )
    assert Checkpoint(one).version == Checkpoint(other).version
    write(other, {"config.json": {"a": 2}})
    assert Checkpoint(one).version != Checkpoint(other).version
    weights(one / "model.safetensors", {"w": (2, 3)})
    assert Checkpoint(one).version != Checkpoint(write(tmp_path / "third", {"config.json": {"a": 1}})).version


def test_tensors_are_listed_without_being_loaded(tmp_path: Path) -> None:
    weights(tmp_path / "model.safetensors", {"w": (100_000, 4096), "b": ()})
    assert Checkpoint(tmp_path).tensors == {"w": TensorInfo("BF16", (100_000, 4096)), "b": TensorInfo("BF16", ())}


def test_without_safetensors_nothing_is_known_of_the_weights(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    assert Checkpoint(tmp_path).tensors is None


def test_shards_are_found_by_their_index(tmp_path: Path) -> None:
    weights(tmp_path / "a-1.safetensors", {"one": (1,)})
    weights(tmp_path / "a-2.safetensors", {"two": (2,)})
    weights(tmp_path / "other.safetensors", {"three": (3,)})
    write(
        tmp_path, {"model.safetensors.index.json": {"weight_map": {"one": "a-1.safetensors", "two": "a-2.safetensors"}}}
    )
    assert set(Checkpoint(tmp_path).tensors or ()) == {"one", "two"}


@pytest.mark.parametrize("name", ["gone.safetensors", "../elsewhere.safetensors", "sub/a.safetensors"])
def test_a_shard_that_is_not_in_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path / "c", {"model.safetensors.index.json": {"weight_map": {"w": name}}})
    weights(tmp_path / "elsewhere.safetensors", {"w": (1,)})
    with pytest.raises(CheckpointError, match="is not there"):
        _ = Checkpoint(folder).tensors


def test_an_index_without_a_map_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="must name a file"):
        _ = Checkpoint(write(tmp_path, {"model.safetensors.index.json": {}})).tensors


@pytest.mark.parametrize("kept", [0, 4, 8, 20, 60, -1])
def test_weights_that_are_cut_off_are_refused(tmp_path: Path, kept: int) -> None:
    path = weights(tmp_path / "model.safetensors", {"w": (4, 4)})
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(CheckpointError, match=r"cut off|broken header"):
        _ = Checkpoint(tmp_path).tensors


def _corrupt(path: Path, change: dict[str, object]) -> None:
    header = {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **change}}
    encoded = json.dumps(header).encode()
    path.write_bytes(len(encoded).to_bytes(8, "little") + encoded + bytes(8))


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [3]},
        {"dtype": "BF16"},
        {"data_offsets": [0, 16], "shape": [4]},
        {"data_offsets": [-8, 0]},
        {"data_offsets": [0]},
        {"shape": None},
        {"shape": ["x"]},
    ],
)
def test_a_header_that_does_not_add_up_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    _corrupt(tmp_path / "model.safetensors", change)
    with pytest.raises(CheckpointError) as caught:
        _ = Checkpoint(tmp_path).tensors
    assert caught.value.where.startswith("model.safetensors")


def test_a_header_of_an_absurd_length_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes((1 << 60).to_bytes(8, "little") + b"{}")
    with pytest.raises(CheckpointError, match="no safetensors file"):
        _ = Checkpoint(tmp_path).tensors
