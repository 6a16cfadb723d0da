"""Silero's network for many windows at once: the same weights and sums as in the published file, in another order.

The published graph convolves one window after the other, four positions at a time, so that every weight is read from
memory again for every window; reading, not multiplying, is where its time goes. Here each layer is one product with the
windows of a batch as its rows. And the Fourier basis is even or odd about the middle of its frame, so that sums and
differences of samples need half as many multiplications.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Floats = NDArray[np.float32]
Weights: TypeAlias = dict[str, Floats]
_Shapes: TypeAlias = dict[str, list[str | int | None]]

FRAME: int = 256
"""Samples of a frame of the Fourier transform."""
HOP: int = 128
FRAMES: int = 4
"""Frames of a window: its 576 samples and 64 more, its own end mirrored."""
STATE: int = 128
"""Size of each of the two parts of the recurrent state."""

_BINS = FRAME // 2 + 1
_STRIDES = (1, 2, 2, 1)
"""Of the four convolutions, three positions wide each."""
_OPSET = 18
_IR = 10


class NotSilero(ValueError):
    """The file is not the network that this module knows."""


def batched(path: Path) -> bytes:
    """The network of 16 kHz in the published file `path` (Silero VAD 5), as an ONNX model for batches.

    Inputs, float32: `even` and `odd`, [B * 4, 128], see `fold`; `hidden` and `cell`, [B, 128]. Outputs: `probability`
    [B, 1], and `hidden_after` and `cell_after` [B, 128]. Raises NotSilero.
    """
    weights = _weights(path)
    graph = _Graph()
    features = _convolutions(graph, weights, _magnitudes(graph, weights))
    _recurrence(graph, weights, features)
    inputs: _Shapes = {
        "even": ["frames", HOP],
        "odd": ["frames", HOP],
        "hidden": ["batch", STATE],
        "cell": ["batch", STATE],
    }
    outputs: _Shapes = {"probability": ["batch", 1], "hidden_after": ["batch", STATE], "cell_after": ["batch", STATE]}
    made = helper.make_graph(
        graph.nodes,
        "silero",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
        graph.constants,
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR)
    return bytes(model.SerializeToString())


def fold(heard: Floats) -> tuple[Floats, Floats]:
    """Sums and differences, each [B * 4, 128], of the samples that lie alike before and behind the middle of a frame.

    `heard`, [B, 576]: 64 samples of the window before, and the window. Sample 0 of a frame has the weight 0.
    """
    batch, length = heard.shape
    mirrored = FRAME + (FRAMES - 1) * HOP - length
    samples = np.concatenate((heard, heard[:, -2 : -2 - mirrored : -1]), axis=1)
    step = samples.strides[1]
    frames = np.lib.stride_tricks.as_strided(
        samples, (batch, FRAMES, FRAME), (samples.strides[0], HOP * step, step), writeable=False
    )
    before, behind = frames[:, :, 1 : HOP + 1], frames[:, :, : HOP - 1 : -1]
    return (before + behind).reshape(-1, HOP), (before - behind).reshape(-1, HOP)


class _Graph:
    """Nodes and constants as they are added; each value is known by its name."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, values: NDArray[np.generic]) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def add(self, kind: str, *inputs: str, to: str = "") -> str:
        """A node with one output, called `to` or by its number."""
        name = to or f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name]))
        return name

    def join(self, *values: str) -> str:
        """`values` behind each other along their second axis."""
        name = "_and_".join(values)
        self.nodes.append(helper.make_node("Concat", list(values), [name], axis=1))
        return name

    def split(self, value: str, parts: int) -> list[str]:
        """`value` in equal parts along its second axis."""
        names = [f"{value}_part_{number}" for number in range(parts)]
        self.nodes.append(helper.make_node("Split", [value], names, axis=1, num_outputs=parts))
        return names


def _magnitudes(graph: _Graph, weights: Weights) -> str:
    """[B, 4 * 129]: the absolute value of each bin of each frame."""
    basis = weights["stft.forward_basis_buffer"].reshape(2 * _BINS, FRAME)
    even, odd = basis[:_BINS, 1 : HOP + 1].copy(), basis[_BINS:, 1 : HOP + 1]
    if (
        basis[:, 0].any()
        or (basis[:_BINS, :HOP:-1] != even[:, :-1]).any()
        or (basis[_BINS:, :HOP:-1] != -odd[:, :-1]).any()
    ):
        raise NotSilero("its Fourier basis is not even and odd about the middle of a frame")
    even[:, -1] /= 2  # the middle is its own mirror image, and so is counted twice
    powers = []
    for name, half in (("even", even), ("odd", odd)):
        value = graph.add("MatMul", name, graph.constant(half.T))
        powers.append(graph.add("Mul", value, value))
    magnitudes = graph.add("Sqrt", graph.add("Add", *powers))
    return graph.add("Reshape", magnitudes, graph.constant(np.array([-1, FRAMES * _BINS], np.int64)))


def _convolutions(graph: _Graph, weights: Weights, value: str) -> str:
    """[B, 128]: what the four convolutions make of `value`, the positions of a window in one row behind each other."""
    positions = FRAMES
    for layer, stride in enumerate(_STRIDES):
        kernel = weights[f"encoder.{layer}.reparam_conv.weight"]
        matrix, positions = _as_product(kernel, positions, stride)
        bias = np.tile(weights[f"encoder.{layer}.reparam_conv.bias"], positions)
        value = graph.add("Relu", graph.add("Gemm", value, graph.constant(matrix), graph.constant(bias)))
    return value


def _as_product(kernel: Floats, positions: int, stride: int) -> tuple[Floats, int]:
    """A convolution padded by one as a matrix from all channels of all positions to those that come out, and how many
    positions those are. `kernel`: [out, in, 3]."""
    out, into, reach = kernel.shape
    after = (positions - 1) // stride + 1
    matrix = np.zeros((positions, into, after, out), np.float32)
    for place in range(after):
        for tap in range(reach):
            if 0 <= (at := place * stride + tap - 1) < positions:
                matrix[at, :, place] = kernel[:, :, tap].T
    return matrix.reshape(positions * into, after * out), after


def _recurrence(graph: _Graph, weights: Weights, features: str) -> None:
    """One step of the LSTM, and the probability that is read from its hidden part."""
    matrix = np.concatenate((weights["decoder.rnn.weight_ih"], weights["decoder.rnn.weight_hh"]), axis=1).T
    bias = weights["decoder.rnn.bias_ih"] + weights["decoder.rnn.bias_hh"]
    known = graph.join(features, "hidden")
    gates = graph.split(graph.add("Gemm", known, graph.constant(matrix), graph.constant(bias)), 4)
    take, keep, new, show = (
        graph.add(kind, gate) for kind, gate in zip(("Sigmoid", "Sigmoid", "Tanh", "Sigmoid"), gates, strict=True)
    )
    cell = graph.add("Add", graph.add("Mul", keep, "cell"), graph.add("Mul", take, new), to="cell_after")
    hidden = graph.add("Mul", show, graph.add("Tanh", cell), to="hidden_after")
    reader = graph.constant(weights["decoder.decoder.2.weight"].reshape(STATE, 1))
    bias_out = graph.constant(weights["decoder.decoder.2.bias"])
    graph.add("Sigmoid", graph.add("Gemm", graph.add("Relu", hidden), reader, bias_out), to="probability")


_SHAPES: dict[str, tuple[int, ...]] = {
    "stft.forward_basis_buffer": (2 * _BINS, 1, FRAME),
    "encoder.0.reparam_conv.weight": (128, _BINS, 3),
    "encoder.1.reparam_conv.weight": (64, 128, 3),
    "encoder.2.reparam_conv.weight": (64, 64, 3),
    "encoder.3.reparam_conv.weight": (128, 64, 3),
    "encoder.0.reparam_conv.bias": (128,),
    "encoder.1.reparam_conv.bias": (64,),
    "encoder.2.reparam_conv.bias": (64,),
    "encoder.3.reparam_conv.bias": (128,),
    "decoder.rnn.weight_ih": (4 * STATE, 128),
    "decoder.rnn.weight_hh": (4 * STATE, STATE),
    "decoder.rnn.bias_ih": (4 * STATE,),
    "decoder.rnn.bias_hh": (4 * STATE,),
    "decoder.decoder.2.weight": (1, STATE, 1),
    "decoder.decoder.2.bias": (1,),
}


def _weights(path: Path) -> Weights:
    """The weights of the branch for 16 kHz, by the names that they had before the file was exported."""
    try:
        model = onnx.load(path)
    except Exception as error:
        raise NotSilero(f"{path} is not an ONNX model: {error}") from error
    branches = [
        attribute.g
        for node in model.graph.node
        if node.op_type == "If"
        for attribute in node.attribute
        if attribute.name == "then_branch"
    ]
    found = {
        node.output[0].rpartition("__")[2]: node.attribute[0].t
        for branch in branches
        for node in branch.node
        if node.op_type == "Constant"
    }
    weights: Weights = {}
    for name, shape in _SHAPES.items():
        if name not in found or tuple(found[name].dims) != shape:
            raise NotSilero(f"{path} has no {name} of shape {shape}; fetch the model anew (talkover models)")
        weights[name] = np.asarray(numpy_helper.to_array(found[name]), np.float32)
    return weights
