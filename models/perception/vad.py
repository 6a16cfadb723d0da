"""Silero VAD: the probability that a 32 ms window holds speech.

The network is recurrent: each session carries a state and the last 4 ms of its previous window. Windows of many
sessions go through in one call: of a batch each window costs a quarter of what one alone does.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from .silero import STATE, batched, fold

WINDOW: int = 512
"""Samples per window at 16 kHz."""

_CONTEXT = 64


class SpeechState:
    """What the detector remembers of one session between windows."""

    __slots__ = ("memory",)

    def __init__(self) -> None:
        self.memory: NDArray[np.float32] = _NOTHING
        """Shape (320,): the end of the last window, hidden part, cell. Never written to."""


_NOTHING: NDArray[np.float32] = np.zeros(_CONTEXT + 2 * STATE, np.float32)
_NOTHING.setflags(write=False)


class SpeechDetector:
    """One Silero model, shared by all sessions; used by one thread at a time."""

    def __init__(self, directory: Path) -> None:
        """`directory` holds `silero_vad.onnx`. Raises NotSilero."""
        options = onnxruntime.SessionOptions()
        # One thread: a window takes 0.1 ms, less than it takes to wake a second core.
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        self._model = onnxruntime.InferenceSession(
            batched(directory / "silero_vad.onnx"), options, providers=["CPUExecutionProvider"]
        )

    def detect(self, windows: NDArray[np.float32], states: Sequence[SpeechState]) -> NDArray[np.float32]:
        """Speech probabilities, float32 [B], of float32 [B, 512] windows in -1..1; moves the B states on."""
        before = np.concatenate([state.memory for state in states]).reshape(len(states), -1)
        even, odd = fold(np.concatenate((before[:, :_CONTEXT], windows), axis=1))
        probabilities, hidden, cell = self._model.run(
            None,
            {"even": even, "odd": odd, "hidden": before[:, _CONTEXT:-STATE], "cell": before[:, -STATE:]},
        )
        after = np.concatenate((windows[:, -_CONTEXT:], hidden, cell), axis=1)
        for state, memory in zip(states, after, strict=True):
            state.memory = memory
        return np.asarray(probabilities[:, 0], np.float32)
