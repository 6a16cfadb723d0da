"""A streaming resampler: rational rate, linear phase, a short known delay, and exact counts.

A polyphase FIR (Crochiere and Rabiner, "Multirate Digital Signal Processing", 1983, section 3.3). Block resamplers of
the FFT kind hold back up to 115 ms from 8 to 16 kHz, which an interruption cannot wait for; this one holds back 32
periods of the lower rate: 4 ms at 8 kHz, 2 ms at 16 kHz.

Up and down again is as good as nothing done: the filter's square is a Nyquist filter (-3 dB at the lower Nyquist
frequency, falling as evenly on both sides as root-raised-cosine filters of modems do), so what the way up lets stand
beyond the band's edge, the way down folds back to where it is missing. Telephone audio that crosses a 24 kHz engine
keeps its whole band, up to an error of -75 dB, which no filter of this length that ends before the edge can do. What it
costs: of a tone just above the edge something folds back to just below it.

Coefficients are multiples of 2**-20, multiplied with the samples in float64, where sums of such products are exact. A
sample therefore does not depend on how the stream was cut into chunks, nor on what goes through beside it, nor on the
order in which a BLAS adds.
"""

from __future__ import annotations

from collections.abc import Sequence
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
_BLOCK = 24
"""About how many outputs one matrix makes: with more the zeros in it cost more than the calls that they save."""
_NOTHING: Samples = np.zeros(0, np.int16)
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


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """What all lanes of one ratio share."""

    up: int
    down: int
    half: int
    """Reach of the filter to each side, in input samples; 0: samples pass through."""
    rows: Floats
    """Coefficients per phase, see `_filter`."""
    matrix: Floats
    """Makes a block of outputs, the first of phase 0, shape (inputs, outputs); the first input is the one that weighs
    first in the first output."""
    size: int
    """Outputs of a block; 0: there are too many phases for blocks, or nothing to do."""
    hop: int
    """Inputs from one block to the next."""
    gap: Samples
    """Silence, as much as a block has inputs."""

    def due(self, inputs: int) -> int:
        """How many outputs lie before the end of the first `inputs` inputs."""
        return -(-inputs * self.up // self.down)

    def begins(self, produced: int) -> int:
        """The oldest input that the outputs from number `produced` on need, made in whole rounds of phases."""
        return produced // self.up * self.down - self.half + 1

    def blocks(self, inputs: Samples, count: int) -> Samples:
        """So many blocks, one behind the other, of inputs that reach to the end of the last."""
        heard = np.ndarray(
            (count, len(self.matrix)), np.int16, inputs, 0, (self.hop * inputs.itemsize, inputs.itemsize)
        )
        most = max(1, _AT_ONCE // self.matrix.size)
        made = [
            _rounded(heard[at : at + most].astype(np.float64) @ self.matrix).ravel() for at in range(0, count, most)
        ]
        return made[0] if len(made) == 1 else np.concatenate((_NOTHING, *made))

    def singly(self, inputs: Samples, first: int, count: int) -> Samples:
        """So many outputs from number `first` on, whatever their phases, of inputs that begin where those `begins`."""
        if not count:
            return _NOTHING
        places, phases = np.divmod(np.arange(first, first + count) * self.down, self.up)
        windows = sliding_window_view(inputs, self.rows.shape[1])[places - self.half + 1 - self.begins(first)]
        return _rounded(np.einsum("ij,ij->i", windows, self.rows[phases]))


@lru_cache(maxsize=64)
def _plan(up: int, down: int) -> _Plan:
    none = np.zeros((0, 0))
    if up == down:
        return _Plan(up, down, 0, none, none, 0, 0, _NOTHING)
    half, rows = _filter(up, down)
    if up > _FEW_PHASES:
        return _Plan(up, down, half, rows, none, 0, 0, _NOTHING)
    periods = max(1, _BLOCK // up)
    matrix = np.zeros(((periods - 1) * down + (up - 1) * down // up + rows.shape[1], periods * up))
    for output in range(periods * up):
        inputs, phase = divmod(output * down, up)
        matrix[inputs : inputs + rows.shape[1], output] = rows[phase]
    matrix.setflags(write=False)
    return _Plan(up, down, half, rows, matrix, periods * up, periods * down, np.zeros(len(matrix), np.int16))


def _rounded(sums: Floats) -> Samples:
    """To samples, what is beyond full scale to full scale; `sums` is used up."""
    sums += 0.5
    whole = np.floor(sums, out=sums).astype(np.int32)
    np.maximum(whole, -32768, out=whole)
    np.minimum(whole, 32767, out=whole)
    return whole.astype(np.int16)


@dataclass(frozen=True, slots=True)
class LaneState:
    """What a `Resampler` knows of its stream. `consumed`, `produced`: samples so far."""

    consumed: int
    produced: int
    held: Samples


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
        self._plan = _plan(out_rate // common, in_rate // common)
        self.reset()

    @property
    def delay(self) -> int:
        """Input samples that must follow an instant before its output is given."""
        return self._plan.half

    @property
    def pending(self) -> int:
        """Output samples that belong to input already consumed and have not been given yet; `flush` gives them."""
        return self.due(self.consumed) - self.produced

    def state(self) -> LaneState:
        """Where the stream stands; the lane may go on and be taken back to it by `restore`."""
        return LaneState(self.consumed, self.produced, self._held)

    def restore(self, state: LaneState) -> None:
        """Go on from `state`, which a lane of the same rates gave."""
        self.consumed, self.produced = state.consumed, state.produced
        # No array is ever written to, so it is still what it was.
        self._held = state.held

    def reset(self) -> None:
        """Forget everything; the next sample is the first of a new stream."""
        self.consumed = 0
        self.produced = 0
        # From the oldest input on that the next output needs: silence, as far as the filter reaches back.
        self._held = np.zeros(max(self._plan.half - 1, 0), np.int16)

    def process(self, samples: Samples) -> Samples:
        """The outputs that `samples`, shape (n,), int16, complete: shape (m,), int16, m may be 0."""
        return process([self], [samples])[0]

    def skip(self, samples: Samples) -> int:
        """As `process`, without making the outputs. Returns how many there would have been."""
        skipped = self.ready(len(samples))
        self.consumed += len(samples)
        self._give(skipped, np.concatenate((self._held, samples)))
        return skipped

    def flush(self) -> Samples:
        """The rest of the stream, shape (`pending`,), as if silence followed; then the lane is reset."""
        [rest] = _emit([self], [np.zeros(self._plan.half, np.int16)], [self.pending])
        self.reset()
        return rest

    def due(self, inputs: int) -> int:
        """How many outputs lie before the end of the first `inputs` input samples."""
        return self._plan.due(inputs)

    def ready(self, inputs: int) -> int:
        """How many outputs the next `inputs` input samples complete."""
        reached = self.consumed + inputs - self._plan.half
        return self._plan.due(reached) - self.produced if reached > 0 else 0

    def _give(self, count: int, inputs: Samples) -> None:
        """So many more outputs are made of `inputs`: what was held, and what followed."""
        begins = self._plan.begins
        before, self.produced = self.produced, self.produced + count
        if self._plan.half:
            # A copy, for `inputs` may be a part of far more.
            self._held = inputs[begins(self.produced) - begins(before) :].copy()


def process(lanes: Sequence[Resampler], stretches: Sequence[Samples]) -> list[Samples]:
    """What `Resampler.process` gives for each stretch and its lane, together: many cost a fraction of one by one.

    Raises ValueError for lanes that have not all the same rates.
    """
    counts = []
    for lane, samples in zip(lanes, stretches, strict=True):
        if lane.in_rate != lanes[0].in_rate or lane.out_rate != lanes[0].out_rate:
            raise ValueError("the rates of the lanes differ; give those of each pair of rates by themselves")
        counts.append(lane.ready(len(samples)))
        lane.consumed += len(samples)
    return _emit(lanes, stretches, counts)


def _emit(lanes: Sequence[Resampler], stretches: Sequence[Samples], counts: Sequence[int]) -> list[Samples]:
    """So many more outputs of each of `lanes`, which have the same rates, from what it holds and what follows."""
    if not lanes:
        return []
    plan = lanes[0]._plan
    given: list[Samples] = []
    if not plan.size:
        for lane, samples, count in zip(lanes, stretches, counts, strict=True):
            heard = np.concatenate((lane._held, samples)) if plan.half else samples
            given.append(plan.singly(heard, lane.produced, count) if plan.half else samples)
            lane._give(count, heard)
        return given
    # Behind each other, each from a multiple of `hop` on: so the blocks of all lie `hop` apart. What a block that
    # reaches beyond its lane finds there has no weight in the outputs that are kept.
    pieces: list[Samples] = []
    begins: list[int] = []
    end = blocks = 0
    for lane, samples, count in zip(lanes, stretches, counts, strict=True):
        begins.append(end)
        blocks = end // plan.hop - (-(lane.produced % plan.up + count) // plan.size)
        length = len(lane._held) + len(samples)
        pieces += (lane._held, samples, plan.gap[: -length % plan.hop])
        end += length + -length % plan.hop
    heard = np.concatenate((*pieces, plan.gap))
    made = plan.blocks(heard, blocks)
    for lane, samples, count, begin in zip(lanes, stretches, counts, begins, strict=True):
        first = begin // plan.hop * plan.size + lane.produced % plan.up
        given.append(made[first : first + count])
        lane._give(count, heard[begin : begin + len(lane._held) + len(samples)])
    return given
