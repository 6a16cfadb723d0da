"""The codec frame by frame, for a fixed number of slots at once.

Every slot has a state of its own: what the layers remember, the end of the overlap-add, the pulses' phase, and a frame
counter, which picks the noise. So the same codes give the same sound whenever they come, and a slot's sound does not
depend on its neighbours. All slots go through one computation of one shape; `run` says which of them move, `reset`
which begin anew (before they move). What a slot that does not run was given is not looked at.

Put together, the frames equal `RvqCodec.encode` and `RvqCodec.decode` of the whole.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..identity import CodecIdentity
from .checkpoint import Checkpoint
from .layers import SlotState, keep_rows
from .model import DELAY, FIRST_PITCH
from .synthesis import FRAME, HOP, NOISE_FRAMES, TAIL, filter_segments, overlap_add, pulse_train

Pcm = NDArray[np.float32]
"""Samples in -1..1 at 24 kHz, shape [slots, FRAME], float32."""
Codes = NDArray[np.int64]
"""Codes, shape [slots, codebooks], int64."""
Mask = NDArray[np.bool_]
"""One truth value per slot, shape [slots], bool."""

T = TypeVar("T", bound=np.generic)

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
            latent = self._codec.encoder(torch.from_numpy(np.where(run[:, None], samples, np.float32(0))), self._state)
            codes = self._codec.quantizer.encode(latent, self.identity.codebooks, self._norms)[:, :, 0]
            self._state.commit(moving)
            out: Codes = torch.where(moving[:, None], codes, 0).numpy()
        return out


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
        with torch.inference_mode():
            # The hop before the first, which no code describes.
            pulses, phase = pulse_train(torch.full((1, 1), FIRST_PITCH, dtype=torch.float64), torch.zeros(1).double())
            self._first_pulses, self._first_phase = pulses[0], phase[0]
            self._pulses = pulses.repeat(slots, 1)
            self._phase = phase.repeat(slots)
            self._hiss = torch.zeros(slots, HOP)
            self._tail = torch.zeros(slots, TAIL)
            self._frame = torch.zeros(slots, dtype=torch.int64)

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
            wave = self._step(torch.from_numpy(np.where(run[:, None], given, 0)), moving)
            out: Pcm = torch.where(moving[:, None], wave.clamp(-1.0, 1.0), 0.0).numpy()
        return out

    def _begin(self, anew: Tensor) -> None:
        self._envelopes.begin(anew)
        self._pitches.begin(anew)
        if bool(anew.any()):
            self._pulses[anew] = self._first_pulses
            self._phase[anew] = self._first_phase
            self._hiss[anew] = 0
            self._tail[anew] = 0
            self._frame[anew] = 0

    def _step(self, codes: Tensor, moving: Tensor) -> Tensor:
        """Codes [slots, codebooks] to samples [slots, FRAME], with the states of the slots in `moving` taken on."""
        latent = self._codec.quantizer.decode(codes[:, :, None])
        harmonic, noise = self._codec.decoder(latent, self._envelopes)
        pitch = torch.exp2(self._pitch(latent.double(), self._pitches))
        new_pulses, phase = pulse_train(pitch, self._phase)
        new_hiss = self._codec.noise[self._frame % NOISE_FRAMES]
        pulses = torch.cat((self._pulses, new_pulses), 1)
        hiss = torch.cat((self._hiss, new_hiss), 1)
        wave = overlap_add(filter_segments(harmonic, noise, pulses, hiss, self._codec.window))
        wave[:, :TAIL] += self._tail

        self._envelopes.commit(moving)
        self._pitches.commit(moving)
        self._pulses = keep_rows(moving, new_pulses[:, -HOP:], self._pulses)
        self._hiss = keep_rows(moving, new_hiss[:, -HOP:], self._hiss)
        self._tail = keep_rows(moving, wave[:, FRAME:], self._tail)
        self._phase = keep_rows(moving, phase, self._phase)
        self._frame = self._frame + moving
        return wave[:, :FRAME]


def _positive(slots: int) -> int:
    if not isinstance(slots, int) or isinstance(slots, bool) or slots < 1:
        raise SlotInputError("slots", f"{slots!r} is not a whole number from 1 on")
    return slots


def _masks(run: Mask, reset: Mask, slots: int) -> tuple[Tensor, Tensor]:
    checked = (_array(name, mask, (slots,), np.dtype(np.bool_)) for name, mask in (("run", run), ("reset", reset)))
    moving, anew = (torch.from_numpy(mask.copy()) for mask in checked)
    return moving, anew


def _array(field: str, array: NDArray[T], shape: tuple[int, ...], dtype: np.dtype[T]) -> NDArray[T]:
    if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype != dtype:
        found = f"{array.dtype} {list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
        raise SlotInputError(field, f"expected {dtype.name} {list(shape)}, not {found}")
    return array
