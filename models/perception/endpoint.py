"""Smart Turn: the probability that what the user has said is a finished turn, from how it sounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from .mel import SAMPLE_RATE, log_mel, normalize

SPAN: int = 8 * SAMPLE_RATE
"""Samples that the model looks at; a shorter turn has silence before it, of a longer one it hears the end."""


class TurnDetector:
    """One Smart Turn model; used by one thread at a time."""

    def __init__(self, directory: Path) -> None:
        """`directory` holds `smart_turn.onnx`."""
        options = onnxruntime.SessionOptions()
        # The second core belongs to the recognizer, which starts at the same moment.
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        self._model = onnxruntime.InferenceSession(
            directory / "smart_turn.onnx", options, providers=["CPUExecutionProvider"]
        )

    def probability(self, turn: NDArray[np.float32]) -> float:
        """Probability (0..1) that `turn`, float32 [N] in -1..1 at 16 kHz up to now, is complete."""
        heard = np.zeros(SPAN, np.float32)
        if turn.size:
            tail = turn[-SPAN:]
            heard[-tail.size :] = tail
        features = log_mel(normalize(heard))[None]
        (probabilities,) = self._model.run(None, {"input_features": features})
        return float(probabilities[0, 0])
