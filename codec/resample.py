"""A streaming resampler: rational rate, linear phase, a short known delay, and exact counts.

A polyphase FIR (Crochiere and Rabiner, "Multirate Digital Signal Processing", 1983, section 3.3). Block resamplers of
the FFT kind hold back up to 115 ms from 8 to 16 kHz, which an interruption cannot wait for; this one holds back 32
periods of the lower rate: 4 ms at 8 kHz, 2 ms at 16 kHz.

Up and down again is as good as nothing done: the filter's square is a Nyquist filter (-3 dB at the lower Nyquist
frequency, falling as evenly on both sides as root-raised-cosine filters of modems do), so what the way up lets stand
beyond the band's edge, the way down folds back to where it is missing. Telephone audio that crosses a 24 kHz engine
keeps its whole band, up to an error of -75 dB, which no filter of this length that ends before the edge can do. What it
costs: of a tone just above the edge something folds back to just below it.

Coefficients are multiples of 2**-20, kept with the samples in float64, where sums of such products are exact. A sample
therefore does not depend on how the stream was cut into chunks, nor on the order in which a BLAS adds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import erfc, gcd, sqrt

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from .pcm import Samples

Floats = NDArray[np.float64]

MAX_RATE: int = 384_000

_PERIODS = 32
"""Reach of the filter to each side, in periods of the lower rate."""
_EDGE = 0.018
"""Width of the edge in cycles per period of the lower rate. As parts of the lower Nyquist frequency: -0.1 dB at 0.95,
-3 dB at 1, -20 dB at 1.06, -44 dB at 1.1, -80 dB from 1.15 on."""
_EDGE_ENDS = 4.5
"""In such widths, where the edge is taken to have ended to either side: the rest is below -90 dB."""
_NODES = 64
"""Of the sum that stands for the integral over the edge."""
_SCALE_BITS = 20
_FEW_PHASES = 8
_BLOCK = 32
"""About how many outputs one matrix makes: with more the zeros in it cost more than the calls that they save."""
_AT_ONCE = 250_000
"""Multiplications in one product; a larger one a BLAS would share among threads, which costs more than it gains."""


def _impulse(at: Floats) -> Floats:
    """The filter's response at moments given in periods of the lower rate, any shape; zero-phase, so real and even.

    Its spectrum is sqrt(erfc(x) / 2) with x the distance from the Nyquist frequency in widths of the edge; the squares
    at x and -x have the sum 1, which makes the square a Nyquist filter.
    """
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    x = nodes * _EDGE_ENDS
    level = np.array([sqrt(erfc(one) / 2) for one in x]) * weights * _EDGE_ENDS
    flat = 1 - 2 * _EDGE * _EDGE_ENDS
    response: Floats = flat * np.sinc(flat * at)
    for one, height in zip(0.5 + _EDGE * x, level, strict=True):
        response += 2 * _EDGE * height * np.cos(2 * np.pi * one * at)
    return response


@lru_cache(maxsize=64)
def _filter(up: int, down: int) -> tuple[int, Floats]:
    """Half-length in input samples, and coefficients per phase, shape (up, 2 * half).

    Row p weighs the inputs n = i - half + 1 .. i + half for an output that lies p / up after input i.
    """
    band = min(1.0, up / down)
    half = -(-_PERIODS * max(up, down) // up)
    # Distances of outputs from inputs, in parts of an input sample; the response is even.
    steps = np.abs(np.arange(up)[:, None] - up * np.arange(1 - half, half + 1)[None, :])
    ideal = _impulse(np.arange(half * up + 1) / up * band)[steps]
    # Every phase is given the same gain at 0 Hz, or a constant input would come out with a ripple.
    rows: Floats = np.rint(ideal / ideal.sum(axis=1, keepdims=True) * (1 << _SCALE_BITS)) / (1 << _SCALE_BITS)
    rows.setflags(write=False)
    return half, rows


@lru_cache(maxsize=64)
def _block(up: int, down: int) -> tuple[int, Floats]:
    """Outputs of a block, and the matrix that makes them, shape (inputs, outputs), from inputs `down / up` as many.

    The first output is of phase 0. A row is an input; the first is the one that weighs first in output 0.
    """
    _, rows = _filter(up, down)
    periods = max(1, _BLOCK // up)
    matrix = np.zeros(((periods - 1) * down + (up - 1) * down // up + rows.shape[1], periods * up))
    for output in range(periods * up):
        inputs, phase = divmod(output * down, up)
        matrix[inputs : inputs + rows.shape[1], output] = rows[phase]
    matrix.setflags(write=False)
    return periods * up, matrix


@lru_cache(maxsize=256)
def _places(blocks: int, hop: int, width: int) -> NDArray[np.intp]:
    """Where the inputs of so many blocks lie, `hop` apart, shape (blocks, width)."""
    places: NDArray[np.intp] = np.arange(blocks)[:, None] * hop + np.arange(width)
    places.setflags(write=False)
    return places


def _every(step: int, samples: Floats, taps: Floats, count: int) -> Floats:
    """`count` sums of `taps` over `samples`, `step` samples apart, shape (count,).

    Sample and tap meet only where their remainders by `step` are equal, so each remainder is a short correlation of its
    own and nothing is computed that is thrown away. Every sum is exact: the order of adding changes nothing.
    """
    if step == 1:
        return np.correlate(samples, taps, "valid")
    total = np.zeros(count)
    for remainder in range(min(step, len(taps))):
        part = taps[remainder::step]
        total += np.correlate(samples[remainder::step][: count + len(part) - 1], part, "valid")
    return total


@dataclass(frozen=True, slots=True)
class LaneState:
    """What a `Resampler` knows of its stream. `consumed`, `produced`: samples so far."""

    consumed: int
    produced: int
    held: Floats
    held_at: int


class Resampler:
    """One lane of mono PCM from one rate to another.

    Keep one per lane for its whole life and call `reset` only at an epoch's edge: a reset in the stream clicks.
    After `flush` exactly ceil(consumed * out_rate / in_rate) samples have come out; output n lies at the time of input
    n * in_rate / out_rate, so the delay is only waiting time and shifts nothing.
    """

    def __init__(self, in_rate: int, out_rate: int) -> None:
        """`in_rate` and `out_rate` in Hz. Raises ValueError for a rate outside 1..384000."""
        for name, rate in (("in_rate", in_rate), ("out_rate", out_rate)):
            if not 0 < rate <= MAX_RATE:
                raise ValueError(f"{name} is {rate} Hz; give a rate from 1 to {MAX_RATE}")
        common = gcd(in_rate, out_rate)
        self.in_rate = in_rate
        self.out_rate = out_rate
        self._up = out_rate // common
        self._down = in_rate // common
        self._half, self._rows = (0, np.ones((1, 1))) if in_rate == out_rate else _filter(self._up, self._down)
        self._few = self._half > 0 and self._up <= _FEW_PHASES
        self._size, self._matrix = _block(self._up, self._down) if self._few else (0, np.ones((1, 1)))
        self.consumed = 0
        self.produced = 0
        self._held: Floats = np.zeros(0)
        self._held_at = 0
        self.reset()

    @property
    def delay(self) -> int:
        """Input samples that must follow an instant before its output is given."""
        return self._half

    @property
    def pending(self) -> int:
        """Output samples that belong to input already consumed and have not been given yet; `flush` gives them."""
        return self.due(self.consumed) - self.produced

    def state(self) -> LaneState:
        """Where the stream stands; the lane may go on and be taken back to it by `restore`."""
        return LaneState(self.consumed, self.produced, self._held, self._held_at)

    def restore(self, state: LaneState) -> None:
        """Go on from `state`, which a lane of the same rates gave."""
        self.consumed, self.produced = state.consumed, state.produced
        # No array is ever written to, so it is still what it was.
        self._held, self._held_at = state.held, state.held_at

    def reset(self) -> None:
        """Forget everything; the next sample is the first of a new stream."""
        self.consumed = 0
        self.produced = 0
        # Silence before the first sample, as far as the filter reaches back.
        self._held = np.zeros(max(self._half - 1, 0))
        self._held_at = -len(self._held)

    def process(self, samples: Samples) -> Samples:
        """The outputs that `samples`, shape (n,), int16, complete: shape (m,), int16, m may be 0."""
        self.consumed += len(samples)
        if self._half == 0:
            self.produced += len(samples)
            return samples
        self._held = np.concatenate((self._held, samples))
        return self._emit(self.due(max(self.consumed - self._half, 0)))

    def flush(self) -> Samples:
        """The rest of the stream, shape (`pending`,), as if silence followed; then the lane is reset."""
        if self._half == 0:
            self.reset()
            return np.zeros(0, dtype=np.int16)
        self._held = np.concatenate((self._held, np.zeros(self._half)))
        rest = self._emit(self.due(self.consumed))
        self.reset()
        return rest

    def due(self, inputs: int) -> int:
        """How many outputs lie before the end of the first `inputs` input samples."""
        return -(-inputs * self._up // self._down)

    def _emit(self, until: int) -> Samples:
        first, count = self.produced, until - self.produced
        if count <= 0:
            return np.zeros(0, dtype=np.int16)
        if self._few and first % self._up == 0:
            # The last block may reach beyond what is there: its outputs that are kept give weight only to what is.
            blocks = -(-count // self._size)
            most = max(1, _AT_ONCE // self._matrix.size)
            parts = [self._blocks(first + at * self._size, min(most, blocks - at)) for at in range(0, blocks, most)]
            sums = (parts[0] if len(parts) == 1 else np.concatenate(parts))[:count]
        else:
            sums = self._sums(first, count)
        self.produced = until
        keep = until * self._down // self._up - self._half + 1 - self._held_at
        if keep > 0:
            self._held = self._held[keep:]
            self._held_at += keep
        sums += 0.5
        np.floor(sums, out=sums)
        np.maximum(sums, -32768.0, out=sums)
        np.minimum(sums, 32767.0, out=sums)
        return sums.astype(np.int16)

    def _blocks(self, first: int, blocks: int) -> Floats:
        """So many blocks of outputs from `first` on, which is of phase 0; not rounded."""
        begin = first * self._down // self._up - self._half + 1 - self._held_at
        places = _places(blocks, self._size * self._down // self._up, self._matrix.shape[0])
        sums: Floats = (self._held[begin:].take(places, mode="clip") @ self._matrix).ravel()
        return sums

    def _sums(self, first: int, count: int) -> Floats:
        """Outputs `first` and so many after it, not rounded: any number of any phase."""
        taps = self._rows.shape[1]
        if not self._few:
            places, phases = np.divmod(np.arange(first, first + count) * self._down, self._up)
            windows = sliding_window_view(self._held, taps)[places - self._half + 1 - self._held_at]
            ragged: Floats = np.einsum("ij,ij->i", windows, self._rows[phases])
            return ragged
        sums = np.empty(count)
        for offset in range(min(self._up, count)):
            inputs, phase = divmod((first + offset) * self._down, self._up)
            begin = inputs - self._half + 1 - self._held_at
            outputs = -(-(count - offset) // self._up)
            stretch = self._held[begin : begin + (outputs - 1) * self._down + taps]
            sums[offset :: self._up] = _every(self._down, stretch, self._rows[phase], outputs)
        return sums
