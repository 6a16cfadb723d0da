"""The codec frame by frame, for a fixed number of slots at once.

Every slot has a state of its own: what the layers remember, the end of the overlap-add, the pulses' phase, and a frame
counter, which picks the noise. So the same codes give the same sound whenever they come, and a slot's sound does not
depend on its neighbours. All slots go through one computation of one shape; `run` says which of them move, `reset`
which begin anew (before they move). What a slot that does not run was given is not looked at.

Put together, the frames equal `RvqCodec.encode` and `RvqCodec.decode` of the whole.

Where there is no tick that all slots share, `encode_some` and `decode_some` take several frames of only the slots that
have them. Most of a step's time goes into reading the weights, so eight frames at once cost a fifth of eight steps.
What comes out then depends on the number of slots and frames as far as rounding does: about 1e-6.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..identity import CodecIdentity
from ..recording import Computation, record
from .checkpoint import Checkpoint
from .layers import GivenState, SlotState, keep_rows
from .model import DELAY, FIRST_PITCH
from .synthesis import FRAME, HOP, NOISE_FRAMES, TAIL, filter_segments, overlap_add, pulse_train

Pcm = NDArray[np.float32]
"""Samples in -1..1 at 24 kHz, shape [slots, FRAME], float32."""
Codes = NDArray[np.int64]
"""Codes, shape [slots, codebooks], int64."""
Mask = NDArray[np.bool_]
"""One truth value per slot, shape [slots], bool."""
Pieces = NDArray[np.float32]
"""Samples of several frames in -1..1 at 24 kHz, shape [rows, frames * FRAME], float32."""
CodePieces = NDArray[np.int64]
"""Codes of several frames, shape [rows, frames, codebooks], int64."""

T = TypeVar("T", bound=np.generic)

_TRACED_ROWS, _TRACED_FRAMES = 3, 4
"""Sizes of the example; any but 1, which would be taken for what may be stretched."""

ENCODER_DELAY: int = DELAY
"""Samples by which decoded sound trails what was encoded. At the end of an utterance encode one more frame of silence,
or its last 20 ms are missing."""


class SlotInputError(ValueError):
    """A step was given something malformed; no slot has moved. `field` names the argument."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class StreamingRvqEncoder:
    """Sound to codes for `slots` streams. Not for several threads at once.

    `codebooks` may be fewer than the checkpoint has; `identity` is that of the codes given out. Raises
    CodecIdentityError for more than there are, SlotInputError for no slots.
    """

    def __init__(self, checkpoint: Checkpoint, slots: int, *, codebooks: int | None = None) -> None:
        self.identity: CodecIdentity = checkpoint.identity.with_codebooks(
            checkpoint.identity.codebooks if codebooks is None else codebooks
        )
        self.slots = _positive(slots)
        self._codec = checkpoint.codec
        self._norms = checkpoint.codec.quantizer.norms()
        self._state = SlotState(slots)
        self._traced: Computation | None = None

    def encode(self, pcm: Pcm, run: Mask, reset: Mask) -> Codes:
        """One frame of each slot in `run` to its codes; rows of the others are 0.

        Raises SlotInputError for a wrong shape or type, or for samples that are not finite in a slot that runs.
        """
        moving, anew = _masks(run, reset, self.slots)
        samples = _array("pcm", pcm, (self.slots, FRAME), np.dtype(np.float32))
        broken = np.flatnonzero(~np.isfinite(samples).all(1) & run)
        if len(broken):
            raise SlotInputError("pcm", f"slots {broken.tolist()} have samples that are not finite; end those streams")
        with torch.inference_mode():
            self._state.begin(anew)
            given = torch.from_numpy(np.where(run[:, None], samples, np.float32(0)))
            if self._traced is None:
                codes = self._encode(given, self._state)
                self._state.commit(moving)
            else:
                codes, *after = self._traced(given, *self._state.kept)
                self._state.take(moving, after)
            out: Codes = torch.where(moving[:, None], codes[:, :, 0], 0).numpy()
        return out

    def reset(self, slots: Sequence[int]) -> None:
        """Zero `slots`. Raises SlotInputError for one that does not exist."""
        with torch.inference_mode():
            self._state.begin(_mask(slots, self.slots))

    def encode_some(self, pcm: Pieces, slots: Sequence[int]) -> CodePieces:
        """The next frames of `slots`, row by row, to their codes; the other slots do not move.

        Raises SlotInputError for a wrong shape or type, a slot that does not exist or comes twice, or samples that
        are not finite.
        """
        rows = _rows(slots, self.slots)
        length = _pieces("pcm", pcm, 2)
        if length % FRAME:
            raise SlotInputError("pcm", f"{length} samples are no whole number of frames of {FRAME}")
        samples = _array("pcm", pcm, (len(rows), length), np.dtype(np.float32))
        broken = np.flatnonzero(~np.isfinite(samples).all(1))
        if len(broken):
            raise SlotInputError(
                "pcm", f"slots {rows[broken].tolist()} have samples that are not finite; end those streams"
            )
        with torch.inference_mode():
            if self._traced is None:
                self._state.begin_some(rows)
                codes = self._encode(torch.from_numpy(samples), self._state)
                self._state.commit_some()
            else:
                codes, *kept = self._traced(torch.from_numpy(samples), *self._state.rows(rows))
                self._state.put(rows, kept)
            out: CodePieces = codes.transpose(1, 2).contiguous().numpy()
        return out

    def _encode(self, samples: Tensor, state: SlotState) -> Tensor:
        """Samples [rows, FRAME * frames] to codes [rows, codebooks, frames]."""
        latent = self._codec.encoder(samples, state)
        return self._codec.quantizer.encode(latent, self.identity.codebooks, self._norms)

    def trace(self) -> None:
        """Record what a step computes, so that from now on it runs without the interpreter.

        That takes a third off its time, and its hundreds of operations do not wait for other threads' turns in Python.
        The results are the same, bit for bit. All slots are zeroed.
        """
        every = list(range(self.slots))
        self.encode_some(np.zeros((self.slots, FRAME), np.float32), every)  # so that all layers have a state
        owners = self._state.owners

        def step(samples: Tensor, *kept: Tensor) -> tuple[Tensor, ...]:
            state = GivenState(owners, kept)
            return (self._encode(samples, state), *state.written())

        rows = torch.zeros(_TRACED_ROWS, dtype=torch.int64)
        self._traced = record(step, torch.zeros(_TRACED_ROWS, _TRACED_FRAMES * FRAME), *self._state.rows(rows))
        self.reset(every)


class _Sound(NamedTuple):
    """What the synthesis remembers of each slot, one row a slot."""

    pulses: Tensor
    """The last hop, float32 [slots, HOP]."""
    phase: Tensor
    """Of the pulses, in cycles, float64 [slots]."""
    hiss: Tensor
    """The last hop of noise, float32 [slots, HOP]."""
    tail: Tensor
    """What filtered segments add to the next frame, float32 [slots, TAIL]."""
    frame: Tensor
    """Frames decoded, int64 [slots]."""


class StreamingRvqDecoder:
    """Codes to sound for `slots` streams, without delay: a frame in, FRAME samples out.

    Not for several threads at once. `codebooks` may be fewer than the checkpoint has; `identity` is that of the codes
    it takes. Raises CodecIdentityError for more than there are, SlotInputError for no slots.
    """

    def __init__(self, checkpoint: Checkpoint, slots: int, *, codebooks: int | None = None) -> None:
        self.identity: CodecIdentity = checkpoint.identity.with_codebooks(
            checkpoint.identity.codebooks if codebooks is None else codebooks
        )
        self.slots = _positive(slots)
        self._codec = checkpoint.codec
        self._pitch = checkpoint.codec.precise_pitch()
        self._envelopes = SlotState(slots)
        self._pitches = SlotState(slots)
        self._traced: Computation | None = None
        with torch.inference_mode():
            # The hop before the first, which no code describes.
            pulses, phase = pulse_train(torch.full((1, 1), FIRST_PITCH, dtype=torch.float64), torch.zeros(1).double())
            zeros = torch.zeros
            self._first = _Sound(pulses, phase, zeros(1, HOP), zeros(1, TAIL), zeros(1, dtype=torch.int64))
            self._sound = _Sound(*(part.repeat(slots, *[1] * (part.dim() - 1)) for part in self._first))

    def decode(self, codes: Codes, run: Mask, reset: Mask) -> Pcm:
        """The sound of one frame of each slot in `run`, within -1..1; rows of the others are silence.

        Raises SlotInputError for a wrong shape or type, or for a code that does not exist in a slot that runs.
        """
        moving, anew = _masks(run, reset, self.slots)
        given = _array("codes", codes, (self.slots, self.identity.codebooks), np.dtype(np.int64))
        wrong = np.flatnonzero(((given < 0) | (given >= self.identity.codebook_size)).any(1) & run)
        if len(wrong):
            raise SlotInputError(
                "codes",
                f"slots {wrong.tolist()} have codes outside 0..{self.identity.codebook_size - 1}; end those streams",
            )
        with torch.inference_mode():
            self._begin(anew)
            given = np.where(run[:, None], given, 0)
            every = torch.from_numpy(given)[:, :, None]
            wave, sound = self._decode_every(every, moving)
            self._sound = _Sound(*map(partial(keep_rows, moving), sound, self._sound))
            out: Pcm = torch.where(moving[:, None], wave.clamp(-1.0, 1.0), 0.0).numpy()
        return out

    def reset(self, slots: Sequence[int]) -> None:
        """Zero `slots`. Raises SlotInputError for one that does not exist."""
        with torch.inference_mode():
            self._begin(_mask(slots, self.slots))

    def decode_some(self, codes: CodePieces, slots: Sequence[int]) -> Pieces:
        """The sound of the next frames of `slots`, row by row, within -1..1; the other slots do not move.

        Raises SlotInputError for a wrong shape or type, a slot that does not exist or comes twice, or a code that
        does not exist.
        """
        rows = _rows(slots, self.slots)
        frames = _pieces("codes", codes, 3)
        given = _array("codes", codes, (len(rows), frames, self.identity.codebooks), np.dtype(np.int64))
        wrong = np.flatnonzero(((given < 0) | (given >= self.identity.codebook_size)).any((1, 2)))
        if len(wrong):
            raise SlotInputError(
                "codes",
                f"slots {rows[wrong].tolist()} have codes outside 0..{self.identity.codebook_size - 1}; end those "
                "streams",
            )
        with torch.inference_mode():
            wave, after = self._decode_rows(torch.from_numpy(given).transpose(1, 2), rows)
            for kept, part in zip(self._sound, after, strict=True):
                kept[rows] = part
            out: Pieces = wave.clamp(-1.0, 1.0).numpy()
        return out

    def _decode_every(self, codes: Tensor, moving: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
        """Samples of one frame of all slots, and what the synthesis remembers; the layers have taken on what they do
        for the slots in `moving`."""
        if self._traced is None:
            result = self._synthesize(codes, self._sound, self._envelopes, self._pitches)
            self._envelopes.commit(moving)
            self._pitches.commit(moving)
            return result
        envelopes, pitches = self._envelopes.kept, self._pitches.kept
        wave, *after = self._traced(codes, *envelopes, *pitches, *self._sound)
        layers = len(envelopes), len(envelopes) + len(pitches)
        self._envelopes.take(moving, after[: layers[0]])
        self._pitches.take(moving, after[layers[0] : layers[1]])
        return wave, after[layers[1] :]

    def _decode_rows(self, codes: Tensor, rows: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
        """Samples, and what the synthesis remembers; the layers have taken on what they do."""
        before = [part[rows] for part in self._sound]
        if self._traced is None:
            self._envelopes.begin_some(rows)
            self._pitches.begin_some(rows)
            result = self._synthesize(codes, _Sound(*before), self._envelopes, self._pitches)
            self._envelopes.commit_some()
            self._pitches.commit_some()
            return result
        envelopes, pitches = self._envelopes.rows(rows), self._pitches.rows(rows)
        wave, *after = self._traced(codes, *envelopes, *pitches, *before)
        layers = len(envelopes), len(envelopes) + len(pitches)
        self._envelopes.put(rows, after[: layers[0]])
        self._pitches.put(rows, after[layers[0] : layers[1]])
        return wave, after[layers[1] :]

    def trace(self) -> None:
        """Record what a step computes; see `StreamingRvqEncoder.trace`. All slots are zeroed."""
        every = list(range(self.slots))
        self.decode_some(np.zeros((self.slots, 1, self.identity.codebooks), np.int64), every)
        owners, pitch_owners = self._envelopes.owners, self._pitches.owners
        layers = len(owners), len(owners) + len(pitch_owners)

        def step(codes: Tensor, *kept: Tensor) -> tuple[Tensor, ...]:
            envelopes = GivenState(owners, kept[: layers[0]])
            pitches = GivenState(pitch_owners, kept[layers[0] : layers[1]])
            wave, after = self._synthesize(codes, _Sound(*kept[layers[1] :]), envelopes, pitches)
            return (wave, *envelopes.written(), *pitches.written(), *after)

        rows = torch.zeros(_TRACED_ROWS, dtype=torch.int64)
        self._traced = record(
            step,
            torch.zeros(_TRACED_ROWS, self.identity.codebooks, _TRACED_FRAMES, dtype=torch.int64),
            *(*self._envelopes.rows(rows), *self._pitches.rows(rows), *(part[rows] for part in self._sound)),
        )
        self.reset(every)

    def _begin(self, anew: Tensor) -> None:
        self._envelopes.begin(anew)
        self._pitches.begin(anew)
        if bool(anew.any()):
            for kept, first in zip(self._sound, self._first, strict=True):
                kept[anew] = first[0]

    def _synthesize(
        self, codes: Tensor, before: _Sound, envelopes: SlotState, pitches: SlotState
    ) -> tuple[Tensor, _Sound]:
        """Codes [rows, codebooks, frames] to samples [rows, FRAME * frames], and what the next frame needs of them."""
        frames = codes.shape[2]
        latent = self._codec.quantizer.decode(codes)
        harmonic, noise = self._codec.decoder(latent, envelopes)
        pitch = torch.exp2(self._pitch(latent.double(), pitches))
        new_pulses, phase = pulse_train(pitch, before.phase)
        new_hiss = self._codec.noise[(before.frame[:, None] + torch.arange(frames)) % NOISE_FRAMES].flatten(1)
        pulses = torch.cat((before.pulses, new_pulses), 1)
        hiss = torch.cat((before.hiss, new_hiss), 1)
        wave = overlap_add(filter_segments(harmonic, noise, pulses, hiss, self._codec.window))
        wave[:, :TAIL] += before.tail
        length = FRAME * frames
        after = _Sound(new_pulses[:, -HOP:], phase, new_hiss[:, -HOP:], wave[:, length:], before.frame + frames)
        return wave[:, :length], after


def _positive(slots: int) -> int:
    if not isinstance(slots, int) or isinstance(slots, bool) or slots < 1:
        raise SlotInputError("slots", f"{slots!r} is not a whole number from 1 on")
    return slots


def _rows(given: Sequence[int], slots: int) -> Tensor:
    """Slot numbers as int64 [rows]."""
    if not given or len(set(given)) != len(given) or not all(type(slot) is int and 0 <= slot < slots for slot in given):
        raise SlotInputError("slots", f"{list(given)!r} are not different slots out of 0..{slots - 1}")
    return torch.tensor(list(given))


def _mask(given: Sequence[int], slots: int) -> Tensor:
    """Slot numbers as bool [slots]."""
    mask = torch.zeros(slots, dtype=torch.bool)
    mask[_rows(given, slots)] = True
    return mask


def _pieces(field: str, array: NDArray[T], axes: int) -> int:
    """Length of the second axis, which is that of time."""
    if not isinstance(array, np.ndarray) or array.ndim != axes or not array.shape[1]:
        raise SlotInputError(field, f"expected an array of {axes} axes, of which the second holds at least one frame")
    length: int = array.shape[1]
    return length


def _masks(run: Mask, reset: Mask, slots: int) -> tuple[Tensor, Tensor]:
    checked = (_array(name, mask, (slots,), np.dtype(np.bool_)) for name, mask in (("run", run), ("reset", reset)))
    moving, anew = (torch.from_numpy(mask.copy()) for mask in checked)
    return moving, anew


def _array(field: str, array: NDArray[T], shape: tuple[int, ...], dtype: np.dtype[T]) -> NDArray[T]:
    if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype != dtype:
        found = f"{array.dtype} {list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
        raise SlotInputError(field, f"expected {dtype.name} {list(shape)}, not {found}")
    return array
