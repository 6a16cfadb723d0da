from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import helper

from models.perception.silero import FRAME, FRAMES, HOP, NotSilero, batched, fold
from models.perception.vad import WINDOW, SpeechDetector, SpeechState

from .speech import clips, hiss, model, silence


def published(windows: NDArray[np.float32]) -> NDArray[np.float32]:
    """What the published graph says of float32 [T, B, 512], shape [T, B]."""
    session = onnxruntime.InferenceSession(model("silero-vad") / "silero_vad.onnx", providers=["CPUExecutionProvider"])
    batch = windows.shape[1]
    state, context = np.zeros((2, batch, 128), np.float32), np.zeros((batch, 64), np.float32)
    heard = []
    for step in windows:
        given = {"input": np.concatenate((context, step), axis=1), "state": state, "sr": np.array(16_000, np.int64)}
        probabilities, state = session.run(None, given)
        context = step[:, -64:]
        heard.append(probabilities[:, 0])
    return np.stack(heard)


def streams() -> NDArray[np.float32]:
    """Four seconds each of people speaking, hiss, silence and a full-scale square wave, shape [T, B, 512]."""
    length = 125 * WINDOW
    square = np.where(np.arange(length) // 40 % 2, 1.0, -1.0).astype(np.float32)
    spoken = [np.resize(clip, length) for clip, _ in clips().values()]
    all_of_them = [*spoken, hiss(length / 16_000, 0.02), hiss(length / 16_000, 3e-4), silence(4.0), square]
    return np.stack(all_of_them).reshape(len(all_of_them), 125, WINDOW).transpose(1, 0, 2)


@pytest.mark.models
def test_the_probabilities_are_those_of_the_published_graph() -> None:
    windows = streams()
    detector, states = SpeechDetector(model("silero-vad")), [SpeechState() for _ in range(windows.shape[1])]
    heard = np.stack([detector.detect(step, states) for step in windows])
    expected = published(windows)
    assert expected.max() > 0.99
    assert expected.min() < 0.01
    np.testing.assert_allclose(heard, expected, atol=1e-4)


@pytest.mark.models
def test_a_network_without_its_usual_basis_is_refused(tmp_path: Path) -> None:
    changed = onnx.load(model("silero-vad") / "silero_vad.onnx")
    for node in changed.graph.node:
        for attribute in node.attribute:
            for inner in attribute.g.node:
                if inner.op_type == "Constant" and inner.output[0].endswith("stft.forward_basis_buffer"):
                    tensor = inner.attribute[0].t
                    basis = onnx.numpy_helper.to_array(tensor).copy()
                    basis[3, 0, 7] += 1.0
                    tensor.CopyFrom(onnx.numpy_helper.from_array(basis))
    onnx.save(changed, tmp_path / "changed.onnx")
    with pytest.raises(NotSilero, match="even and odd"):
        batched(tmp_path / "changed.onnx")


def test_another_network_is_refused_by_the_weight_that_it_lacks(tmp_path: Path) -> None:
    graph = helper.make_graph([], "empty", [], [])
    onnx.save(helper.make_model(graph), tmp_path / "other.onnx")
    with pytest.raises(NotSilero, match=r"stft\.forward_basis_buffer"):
        batched(tmp_path / "other.onnx")


def test_a_file_that_is_no_network_is_refused(tmp_path: Path) -> None:
    (tmp_path / "noise.onnx").write_bytes(b"\xff" * 64)
    with pytest.raises(NotSilero, match="not an ONNX model"):
        batched(tmp_path / "noise.onnx")


def test_sums_and_differences_hold_each_frame_about_its_middle() -> None:
    heard = np.random.default_rng(3).normal(size=(3, 576)).astype(np.float32)
    even, odd = fold(heard)
    for row, samples in enumerate(np.pad(heard, ((0, 0), (0, 64)), mode="reflect")):
        for number in range(FRAMES):
            frame = samples[number * HOP : number * HOP + FRAME]
            for n in range(1, HOP + 1):
                at = row * FRAMES + number, n - 1
                assert even[at] == frame[n] + frame[FRAME - n]
                assert odd[at] == frame[n] - frame[FRAME - n]
