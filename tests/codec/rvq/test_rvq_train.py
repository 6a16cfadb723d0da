from __future__ import annotations

import json
import math
import time
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from codec.rvq import train as training
from codec.rvq.checkpoint import load_checkpoint
from codec.rvq.data import Clip, Source, TrainingSet, continuous, write_source
from codec.rvq.losses import SpectralLosses
from codec.rvq.synthesis import HOP, SAMPLE_RATE
from codec.rvq.train import LAST_RATE, WIND_DOWN, Recipe, Schedule, Trainer, TrainingError, draw_levels, train
from tests.codec.rvq.tiny import TINY, tiny_codec


@pytest.fixture(autouse=True)
def few_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen entries need no thousands of vectors to start from."""
    monkeypatch.setattr(training, "_KMEANS_VECTORS", 64)


SHORT = Recipe(1e9, rate=2e-3, batch=2, frames=4, unquantized_steps=2)


def clip(seconds: int = 12) -> Clip:
    """A gliding sawtooth with gaps: something to learn."""
    hops = seconds * SAMPLE_RATE // HOP
    pitch = (150 + 50 * np.sin(np.arange(hops) / 30)).astype(np.float32)
    wave = 0.2 * (2 * (np.cumsum(np.repeat(pitch, HOP) / SAMPLE_RATE) % 1) - 1)
    quiet = np.arange(hops) % 100 > 70
    wave[np.repeat(quiet, HOP)] = 0
    pitch[quiet] = 0
    return Clip(wave.astype(np.float32), pitch)


def data(seed: int = 0) -> TrainingSet:
    wave, heard = clip()
    pitch, voiced = continuous(heard)
    return TrainingSet({"saw": Source((32767 * wave).astype(np.int16), pitch, voiced)}, {}, seed)


def new_trainer(recipe: Recipe = SHORT) -> Trainer:
    codec = tiny_codec()
    torch.manual_seed(1)
    return Trainer(codec, data(), recipe)


def weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in trainer.codec.state_dict().items()}


def test_the_rate_rises_over_steps_and_falls_over_time() -> None:
    schedule = Schedule(1000.0)
    assert schedule.factor(0.0, 0) == pytest.approx(0.01)
    assert schedule.factor(0.0, 99) == pytest.approx(1.0)
    assert schedule.factor(500.0, 1000) == pytest.approx((1 + LAST_RATE) / 2)
    assert schedule.factor(1000.0, 1000) == pytest.approx(LAST_RATE)
    assert schedule.factor(2000.0, 1000) == pytest.approx(LAST_RATE)


def test_an_early_end_brings_the_rate_down_from_where_it_is() -> None:
    schedule = Schedule(5000.0)
    before = schedule.factor(1000.0, 1000)
    schedule.stop_early(1000.0)
    schedule.stop_early(1100.0)  # the file is still there: nothing new
    assert schedule.end == 1000.0 + WIND_DOWN
    assert schedule.factor(1000.0, 1000) == pytest.approx(before)
    assert schedule.factor(1000.0 + WIND_DOWN / 2, 1000) == pytest.approx((before + LAST_RATE) / 2)
    assert schedule.factor(schedule.end, 1000) == pytest.approx(LAST_RATE)


def test_near_the_end_there_is_nothing_to_stop() -> None:
    schedule = Schedule(1000.0)
    schedule.stop_early(1000.0 - WIND_DOWN / 2)
    assert schedule.end == 1000.0


def test_half_the_items_use_all_codebooks_and_none_uses_none() -> None:
    torch.manual_seed(0)
    levels = draw_levels(4000, 16)
    assert int(levels.min()) == 1
    assert int(levels.max()) == 16
    assert 0.49 < float((levels == 16).float().mean()) < 0.57
    assert 0.13 < float((levels == 8).float().mean()) < 0.21
    assert set(draw_levels(50, 2).tolist()) == {1, 2}


def distances(trainer: Trainer) -> tuple[float, float]:
    """Of the log-mel spectra and of the pitch in octaves, on audio that is the same whenever this is asked."""
    batch = data(seed=9).draw(8, 4)
    codec = trainer.codec.eval()
    with torch.no_grad():
        heard = codec(batch.samples, batch.pitch, torch.full((8,), TINY.codebooks) if trainer.quantizing else None)
        log_mel = SpectralLosses()(heard.wave, batch.target, 0).log_mel
        octaves = (heard.log_pitch - batch.pitch[:, 1:].log2()).abs()[batch.voiced[:, 1:] > 0].mean()
    codec.train()
    return float(log_mel), float(octaves)


def test_training_learns() -> None:
    trainer = new_trainer(Recipe(1e9, rate=1e-2, batch=2, frames=4, unquantized_steps=12))
    before = distances(trainer)
    parts = [trainer.train_step(1.0) for _ in range(24)]
    after = distances(trainer)
    assert trainer.step == 24
    assert trainer.quantizing
    assert after[0] < 0.95 * before[0]
    assert after[1] < 0.8 * before[1]
    assert all(math.isfinite(value) for part in parts for value in part)


def test_a_state_goes_on_bit_for_bit() -> None:
    straight = new_trainer()
    for _ in range(3):
        straight.train_step(1.0)
    state: Any = straight.state()
    copied = {key: value for key, value in state.items() if key != "codec"}
    copied["codec"] = weights(straight)
    copied["use"], copied["sums"] = state["use"].clone(), state["sums"].clone()
    copied["optimizer"] = json_like(state["optimizer"])
    expected = [straight.train_step(0.5) for _ in range(3)]
    resumed = new_trainer()
    resumed.train_step(1.0)
    resumed.restore(copied)
    assert resumed.step == 3
    assert [resumed.train_step(0.5) for _ in range(3)] == expected
    for name, value in weights(straight).items():
        assert torch.equal(value, resumed.codec.state_dict()[name]), name


def json_like(value: Any) -> Any:
    """A deep copy of nested dicts, lists and tensors, as a file would give it back."""
    if isinstance(value, dict):
        return {key: json_like(each) for key, each in value.items()}
    if isinstance(value, list):
        return [json_like(each) for each in value]
    return value.clone() if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize(
    "change", [{"recipe": {}}, {"config": {"fine": 9}}, {"codec": {}}, {"step": None}, {"data": "{"}]
)
def test_a_state_of_something_else_is_refused(change: dict[str, Any]) -> None:
    trainer = new_trainer()
    with pytest.raises(TrainingError, match="state"):
        trainer.restore({**trainer.state(), **change})


def test_a_state_may_go_on_for_longer() -> None:
    trainer = new_trainer()
    longer = new_trainer(Recipe(2e9, rate=2e-3, batch=2, frames=4, unquantized_steps=2))
    longer.restore(trainer.state())


def test_decoder_only_leaves_what_gives_codes_their_meaning() -> None:
    recipe = Recipe(1e9, rate=2e-3, batch=2, frames=4, decoder_only=True)
    trainer = new_trainer(recipe)
    before = weights(trainer)
    for _ in range(4):
        trainer.train_step(1.0)
    changed = {name.split(".")[0] for name, value in weights(trainer).items() if not torch.equal(value, before[name])}
    assert changed == {"decoder", "pitch"}


def test_gradients_that_stay_broken_end_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "_PATIENCE", 4)
    trainer = new_trainer(Recipe(1e9, batch=1, frames=2))
    before = weights(trainer)
    with torch.no_grad():
        trainer.codec.decoder.norm.weight.fill_(float("nan"))
    for _ in range(4):
        trainer.train_step(1.0)
    with pytest.raises(TrainingError, match="finite"):
        trainer.train_step(1.0)
    assert torch.equal(trainer.codec.state_dict()["encoder.leave.weight"], before["encoder.leave.weight"])


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processor time that goes on by one second whenever it is read."""
    seconds = count()
    monkeypatch.setattr(time, "process_time", lambda: float(next(seconds)))


@pytest.mark.usefixtures("ticking")
def test_a_run_writes_its_log_its_state_and_its_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "_LOG_EVERY", 5)
    monkeypatch.setattr(training, "_STATE_EVERY", 4.0)
    trainer = new_trainer(Recipe(20.0, rate=2e-3, batch=1, frames=2, unquantized_steps=2))
    train(trainer, tmp_path, version="9", snapshot_seconds=10.0, show=False)
    entries = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in entries] == [5, 10, 15]
    assert entries[0]["rate"] > 0
    assert {"cpu", "log_mel", "convergence", "pitch", "commitment", "gradient"} <= entries[0].keys()
    names = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    assert names == ["final.safetensors", "minute-000.safetensors"]
    checkpoint = load_checkpoint(tmp_path / "final.safetensors")
    assert checkpoint.identity == TINY.identity("9")

    # The same call goes on where it was, and finds that its time is over.
    again = new_trainer(trainer.recipe)
    train(again, tmp_path, version="9", snapshot_seconds=10.0, show=False)
    assert trainer.step <= again.step <= trainer.step + 1


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"no state at all"])
def test_a_damaged_state_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state.pt").write_bytes(content)
    with pytest.raises(TrainingError, match="begin anew"):
        train(new_trainer(), tmp_path, version="1", snapshot_seconds=60.0, show=False)


@pytest.mark.usefixtures("ticking")
def test_a_stop_file_ends_a_run_in_good_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "WIND_DOWN", 6.0)
    trainer = new_trainer(Recipe(1000.0, rate=2e-3, batch=1, frames=2, unquantized_steps=2))
    (tmp_path / "STOP").touch()
    train(trainer, tmp_path, version="1", snapshot_seconds=1e9, show=False)
    assert 3 <= trainer.step <= 8
    assert (tmp_path / "final.safetensors").exists()


def test_the_command_trains_and_then_its_decoder_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "RvqConfig", lambda: TINY)
    write_source(tmp_path / "data" / "saw.npz", [clip()])
    common = [str(tmp_path / "data"), "--batch", "1", "--seed", "3"]
    seconds = count(step=0.1)
    monkeypatch.setattr(time, "process_time", lambda: next(seconds))
    assert training.main([*common, str(tmp_path / "a"), "--cpu-minutes", "0.02", "--share", "saw=2"]) == 0
    first = tmp_path / "a" / "final.safetensors"
    options = ["--cpu-minutes", "0.01", "--decoder-of", str(first)]
    assert training.main([*common, str(tmp_path / "b"), *options]) == 0
    before, after = (load_checkpoint(path).codec.state_dict() for path in (first, tmp_path / "b" / "final.safetensors"))
    assert torch.equal(before["quantizer.entries"], after["quantizer.entries"])
    assert not torch.equal(before["decoder.leave.weight"], after["decoder.leave.weight"])


@pytest.mark.parametrize("options", [["--share", "other=1"], ["--decoder-of", "none.safetensors"]])
def test_the_command_says_what_is_wrong(tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    write_source(tmp_path / "data" / "saw.npz", [clip()])
    assert training.main([str(tmp_path / "data"), str(tmp_path / "out"), "--cpu-minutes", "1", *options]) == 2
    assert options[1].split("=")[0] in capsys.readouterr().err
