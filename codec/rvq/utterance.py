"""One utterance through the codec: what comes out has the length of what went in, and lies where it lay.

The encoder hears 20 ms more than the decoder has sounded (`ENCODER_DELAY`), so an utterance is followed by at least
that much silence, up to a whole frame, and the first 20 ms that are decoded are left out. Sample n of what is heard is
then the codec's version of sample n of what was said.

An utterance goes in chunks: a short one, so that its sound can begin, then longer ones, which cost a fifth. Where the
chunks lie follows from the length alone, so the same codes are decoded in the same steps whenever it is done.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ..pcm import to_bytes, to_samples
from .model import DELAY
from .stream import StreamingRvqDecoder
from .synthesis import FRAME

FIRST_CHUNK: int = 2
"""Frames: 140 ms of sound after one step."""
CHUNKS: tuple[int, ...] = (2, 4, 8)
"""Lengths of chunks, in frames. What is left at the end takes the shortest that holds it."""
_FULL_SCALE = 32767.0

Floats = NDArray[np.float32]


def frames_for(samples: int) -> int:
    """Frames that carry an utterance of `samples` samples."""
    return -(-(samples + DELAY) // FRAME)


def chunk_after(done: int, frames: int) -> int:
    """Length of the chunk that begins with frame `done` of `frames`; beyond the end it is filled up."""
    if done == 0:
        return FIRST_CHUNK
    return next((length for length in CHUNKS if length >= frames - done), CHUNKS[-1])


def chunks_of(frames: int) -> Iterator[tuple[int, int]]:
    """First frame and length of every chunk of an utterance of `frames` frames."""
    done = 0
    while done < frames:
        length = chunk_after(done, frames)
        yield done, length
        done += length


def framed(pcm: bytes) -> Floats:
    """PCM16 to what the encoder hears of it: float32, whole chunks, silence behind. Raises ValueError for half a
    sample."""
    said = to_samples(pcm)
    frames = frames_for(len(said))
    filled = np.zeros(max((first + length for first, length in chunks_of(frames)), default=0) * FRAME, np.float32)
    filled[: len(said)] = said / _FULL_SCALE
    return filled


def to_pcm16(samples: Floats) -> bytes:
    """Decoded samples, float32 [n] in -1..1, to PCM16 bytes."""
    return to_bytes(np.rint(samples * _FULL_SCALE).astype(np.int16))


def decode_utterance(decoder: StreamingRvqDecoder, codes: NDArray[np.int64]) -> bytes:
    """The sound of a whole utterance as PCM16: codes int64 [frames, codebooks] to frames * FRAME - DELAY samples.

    Uses and resets slot 0. Raises SlotInputError.
    """
    decoder.reset([0])
    heard = []
    for first, length in chunks_of(len(codes)):
        part = codes[first : first + length]
        filled = np.pad(part, ((0, length - len(part)), (0, 0)))
        heard.append(decoder.decode_some(filled[None], [0])[0, : len(part) * FRAME])
    return to_pcm16(np.concatenate(heard)[DELAY:]) if heard else b""
