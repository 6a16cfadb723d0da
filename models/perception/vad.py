"""Silero VAD: the probability that a 32 ms window holds speech.

The network is recurrent: each session carries a state and the last 4 ms of its previous window. Windows of many
sessions go through in one call, because a batch of 16 costs five times one window, not sixteen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from .mel import SAMPLE_RATE

WINDOW: int = 512
"""Samples per window at 16 kHz."""

_CONTEXT = 64
_STATE = 128


@dataclass(slots=True)
class SpeechState:
    """What the detector remembers of one session between windows."""

    hidden: NDArray[np.float32] = field(default_factory=lambda: np.zeros((2, _STATE), np.float32))
    context: NDArray[np.float32] = field(default_factory=lambda: np.zeros(_CONTEXT, np.float32))


class SpeechDetector:
    """One Silero model, shared by all sessions; used by one thread at a time."""

    def __init__(self, directory: Path) -> None:
        """`directory` holds `silero_vad.onnx`."""
        options = onnxruntime.SessionOptions()
        # One thread: a window takes 0.2 ms, less than it takes to wake a second core.
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        self._model = onnxruntime.InferenceSession(
            directory / "silero_vad.onnx", options, providers=["CPUExecutionProvider"]
        )
        self._rate = np.array(SAMPLE_RATE, np.int64)

    def detect(self, windows: NDArray[np.float32], states: Sequence[SpeechState]) -> NDArray[np.float32]:
        """Speech probabilities, float32 [B], of float32 [B, 512] windows in -1..1; moves the B states on."""
        heard = np.concatenate([np.stack([state.context for state in states]), windows], axis=1)
        hidden = np.stack([state.hidden for state in states], axis=1)
        probabilities, after = self._model.run(None, {"input": heard, "state": hidden, "sr": self._rate})
        for row, state in enumerate(states):
            state.hidden = after[:, row]
            state.context = windows[row, -_CONTEXT:]
        return np.asarray(probabilities[:, 0], np.float32)
