from __future__ import annotations

import time
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch

from codec.rvq import tune_pitch
from codec.rvq.checkpoint import load_checkpoint, save_checkpoint
from codec.rvq.data import DataError, Source, TrainingSet
from codec.rvq.synthesis import FRAME, HOP, HOPS, SAMPLE_RATE
from codec.rvq.tune_pitch import Coded, coded, main, tune
from tests.codec.rvq.tiny import TINY, tiny_codec

SECONDS = 12


def gliding() -> Source:
    """A sawtooth whose pitch tells every hop from its neighbours, voiced but for every tenth hop."""
    hops = SECONDS * SAMPLE_RATE // HOP
    pitch = (90 + 0.2 * np.arange(hops)).astype(np.float32)
    saw = 0.3 * (2 * (np.cumsum(np.repeat(pitch, HOP) / SAMPLE_RATE) % 1) - 1)
    return Source((32767 * saw).astype(np.int16), pitch, np.arange(hops) % 10 != 0)


def test_codes_are_those_of_the_whole_and_stand_beside_the_pitch_that_training_gives_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tune_pitch, "_PIECE", 20)
    codec, source = tiny_codec(), gliding()
    made = coded(codec, source, 50)
    wave = torch.from_numpy(source.wave[: 50 * FRAME].astype(np.float32) / 32768)
    assert torch.equal(made.codes, codec.encode(wave[None])[0])

    batch = TrainingSet({"a": source}, {}, 0).draw(40, 3)
    for samples, pitch, voiced in zip(batch.samples, batch.pitch, batch.voiced, strict=True):
        # The encoder's first hop lies two after the decoder's. Only stretches that begin with a frame can be found.
        frame, offset = divmod(round((float(pitch[0]) - 90) / 0.2) + 2, HOPS)
        if offset == 0 and frame + 3 <= 50:
            assert len(samples) == 3 * FRAME
            assert torch.allclose(2 ** made.log_pitch[frame : frame + 3].flatten(), pitch[1:], rtol=1e-5)
            assert torch.equal(made.voiced[frame : frame + 3].flatten(), voiced[1:])
            break
    else:
        pytest.fail("no stretch began with a frame")


def test_less_audio_than_was_asked_for_is_all_taken() -> None:
    made = coded(tiny_codec(), gliding(), 10_000)
    assert made.codes.shape == (4, SECONDS * SAMPLE_RATE // FRAME - 1)
    assert made.log_pitch.shape == made.voiced.shape == (made.codes.shape[1], HOPS)


def test_the_branch_learns_and_nothing_else_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = count()
    monkeypatch.setattr(time, "process_time", lambda: float(next(seconds)))
    torch.manual_seed(0)
    codec = tiny_codec()
    before = {name: value.clone() for name, value in codec.state_dict().items()}
    made = coded(codec, gliding(), 140)
    first = tune(codec, [made], 3.0, rate=0.0, show=False)
    last = tune(codec, [made], 60.0, rate=2e-2, show=False)
    assert last < 0.7 * first
    changed = {name.split(".")[0] for name, value in codec.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"pitch"}
    assert not any(parameter.requires_grad for parameter in codec.parameters())


def test_sources_that_are_too_short_are_refused() -> None:
    short = Coded(torch.zeros(4, 48, dtype=torch.int64), torch.zeros(48, HOPS), torch.zeros(48, HOPS))
    with pytest.raises(DataError, match="48 frames"):
        tune(tiny_codec(), [short], 1.0)


def test_the_command_keeps_the_identity(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = gliding()
    np.savez(tmp_path / "glide.npz", wave=source.wave, pitch=source.pitch, voiced=source.voiced)
    before, after = tmp_path / "before.safetensors", tmp_path / "after.safetensors"
    save_checkpoint(before, tiny_codec(), "5")
    assert main([str(tmp_path), str(before), str(after), "--cpu-minutes", "0.005"]) == 0
    assert "cents" in capsys.readouterr().out
    assert load_checkpoint(after).identity == TINY.identity("5")
    old, new = (load_checkpoint(path).codec.state_dict() for path in (before, after))
    assert not torch.equal(old["pitch.leave.weight"], new["pitch.leave.weight"])
    assert torch.equal(old["decoder.leave.weight"], new["decoder.leave.weight"])
    assert main([str(tmp_path), str(tmp_path / "none"), str(after)]) == 2
