"""Errors that cross the border of a process stay what they are."""

from __future__ import annotations

import pickle

import pytest

from codec.mimi.errors import CheckpointError, CheckpointTruncated, ConfigInvalid, ShapeMismatch, WeightsMissing
from models.families.moshi.errors import CodecUnfit, OutOfMemory
from models.workers.errors import WorkerError, describe, restored


@pytest.mark.parametrize(
    "error",
    [
        CheckpointTruncated("model.safetensors", "is cut off"),
        ConfigInvalid("config.json: dim", "is missing"),
        WeightsMissing("model.safetensors", ["a", "b"], ["c"]),
        ShapeMismatch("model.safetensors", "emb.0.weight", (1, 2), (3, 4)),
        CodecUnfit("codec", "codebooks", 6, 8),
        OutOfMemory("model.safetensors", 16_000_000_000, 4, "cuda:1"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_of_ours_comes_back_as_itself(error: CheckpointError) -> None:
    back = restored(pickle.loads(pickle.dumps(describe(error))))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert vars(back) == vars(error)


def test_any_other_comes_back_as_a_workers_error_with_its_name() -> None:
    for error in (KeyError("dim"), UnicodeDecodeError("utf-8", b"x", 0, 1, "bad")):
        back = restored(describe(error))
        assert type(back) is WorkerError
        assert type(error).__name__ in str(back)


def test_what_names_no_error_class_makes_none() -> None:
    failed = describe(CheckpointError("x", "y"))
    for name in ("Sequence", "annotations", "nothing"):
        back = restored(type(failed)(failed.module, name, "m", {}))
        assert type(back) is WorkerError
