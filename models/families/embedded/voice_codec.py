"""The codec between talker and carrier: clauses of all responses through one encoder and one decoder, in chunks.

A clause is an utterance with a slot of its own, zeroed when it is let. Chunks of the same length go together, the ones
that fall silent first at the head. The slot's generation says whether what comes out is still wanted.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from codec.frames import CodecFrame
from codec.identity import CodecIdentity
from codec.rvq.checkpoint import Checkpoint, CheckpointError, load_checkpoint
from codec.rvq.shipped import SHIPPED
from codec.rvq.stream import ENCODER_DELAY, StreamingRvqDecoder, StreamingRvqEncoder
from codec.rvq.synthesis import FRAME
from codec.rvq.utterance import CHUNKS, chunk_after, framed, frames_for, to_pcm16
from sessions.codes_track import CodesFormat, CodeSpan
from sessions.core.timeline import Ticks, Word, ticks_per_sample

from ...slots.table import Lease, SlotTable

VOICES: Mapping[tuple[str, str], frozenset[str]] = {("talkover-rvq", "1"): frozenset({"default", "heart"})}
"""Voices of the embedded talker that a codec (name, version) was trained on, as its model card says."""

TOGETHER: int = 32
"""Frames in one step at most, of all slots: about 25 ms on a core, for which a first chunk may have to wait."""

Codes = NDArray[np.int64]
"""Codes of one chunk, shape [frames, codebooks]."""


class VoiceCodecError(Exception):
    """The codec cannot be used. The message says why, and what to do."""


@dataclass(slots=True, eq=False)
class Utterance:
    """One clause on its way. All counts are of 24 kHz samples or of frames, as their names say."""

    said: NDArray[np.float32]
    """The talker's samples, and silence up to whole chunks."""
    samples: int
    frames: int
    words: tuple[Word, ...]
    lease: Lease
    number: int
    """Which of the utterances of this codec."""
    begin: int
    """Frames of the response before it."""
    done: int = 0
    """Frames decoded."""

    @property
    def chunk(self) -> int:
        """Frames of its next chunk, some of which may only fill it up."""
        return chunk_after(self.done, self.frames)

    @property
    def wanted(self) -> int:
        """Frames of its next chunk that are its own."""
        return min(self.chunk, self.frames - self.done)

    @property
    def finished(self) -> bool:
        return self.done >= self.frames

    @property
    def left(self) -> Ticks:
        """How much sound is still to come."""
        return (self.samples - self._sounded(self.done)) * _TICK

    def next_samples(self) -> NDArray[np.float32]:
        return self.said[self.done * FRAME : (self.done + self.chunk) * FRAME]

    def frames_of(self, codes: Codes) -> tuple[CodecFrame, ...]:
        """The next chunk's own frames, on the track of the response's codes."""
        at = (self.begin + self.done) * _FRAME_TICKS
        return tuple(
            CodecFrame(start, start + _FRAME_TICKS, tuple(row))
            for start, row in zip(
                range(at, at + self.wanted * _FRAME_TICKS, _FRAME_TICKS), codes.tolist(), strict=False
            )
        )

    def take(self, heard: NDArray[np.float32], frames: Sequence[CodecFrame], codec: CodesFormat) -> Chunk:
        """Of a decoded chunk what belongs to the utterance; then it stands at the next chunk."""
        first, position = self.done, self.done * FRAME
        self.done += len(frames)
        begin = max(ENCODER_DELAY, position)
        end = min(self.done * FRAME, self.samples + ENCODER_DELAY)
        span = CodeSpan(codec, self.number, begin * _TICK, first, tuple(frame.codes for frame in frames))
        words = self.words if first == 0 else ()
        return Chunk(to_pcm16(heard[begin - position : end - position]), words, span)

    def _sounded(self, frames: int) -> int:
        return min(self.samples, max(0, frames * FRAME - ENCODER_DELAY))


@dataclass(frozen=True, slots=True)
class Chunk:
    """What is heard of some frames, as it goes to the lane."""

    pcm: bytes
    words: tuple[Word, ...]
    span: CodeSpan


_TICK = ticks_per_sample(24_000)
_FRAME_TICKS = FRAME * _TICK


class VoiceCodec:
    """Encoder and decoder of `slots` utterances at a time, of the talker's voices in `voices`.

    `has_room`, `begin`, `holds`, `drop` and `unclean` are called under the engine's lock, `encode` and `decode` on its
    talking thread.
    """

    def __init__(self, checkpoint: Checkpoint, voices: frozenset[str], *, slots: int) -> None:
        self.identity: CodecIdentity = checkpoint.identity
        self.voices = voices
        self.format = CodesFormat(
            checkpoint.identity.name,
            checkpoint.identity.version,
            checkpoint.identity.sample_rate,
            checkpoint.identity.hop,
            checkpoint.identity.codebooks,
            checkpoint.identity.codebook_size,
        )
        self._encoder = StreamingRvqEncoder(checkpoint, slots)
        self._decoder = StreamingRvqDecoder(checkpoint, slots)
        self._table = SlotTable(slots)
        self._begun = 0

    @classmethod
    def load(cls, *, slots: int) -> VoiceCodec:
        """The codec that comes with the product. Raises VoiceCodecError where its weights cannot be used."""
        try:
            checkpoint = load_checkpoint(SHIPPED)
        except CheckpointError as error:
            raise VoiceCodecError(str(error)) from error
        identity = checkpoint.identity
        # Products as small as these take longer on two threads than on one.
        torch.set_num_threads(1)
        codec = cls(checkpoint, VOICES.get((identity.name, identity.version), frozenset()), slots=slots)
        codec._warm_up()
        return codec

    def _warm_up(self) -> None:
        """The first steps allocate, and nobody is to wait for that."""
        self._encoder.trace()
        self._decoder.trace()
        for chunk in CHUNKS:
            codes = self._encoder.encode_some(np.zeros((1, chunk * FRAME), np.float32), [0])
            self._decoder.decode_some(codes, [0])
        self.clean([0])

    @property
    def has_room(self) -> bool:
        """Whether an utterance can begin."""
        return self._table.taken < self._table.capacity

    @property
    def taken(self) -> int:
        """Slots in use."""
        return self._table.taken

    def begin(self, pcm: bytes, words: tuple[Word, ...], begin: int) -> Utterance:
        """`pcm`: a clause; `begin`: frames of its response before it. Raises Busy where there is no room."""
        lease = self._table.admit(time.monotonic())
        self._begun += 1
        samples = len(pcm) // 2
        return Utterance(framed(pcm), samples, frames_for(samples), words, lease, self._begun, begin)

    def holds(self, utterance: Utterance) -> bool:
        """Whether its slot is still its own."""
        return self._table.holds(utterance.lease)

    def drop(self, utterance: Utterance) -> None:
        """It is over, or not wanted any more. Idempotent."""
        self._table.release(utterance.lease, time.monotonic())

    def unclean(self) -> tuple[int, ...]:
        """Slots that must be zeroed before the next step; told once."""
        return tuple(sorted(self._table.clean()))

    def clean(self, slots: Sequence[int]) -> None:
        if slots:
            self._encoder.reset(slots)
            self._decoder.reset(slots)

    def encode(self, batch: Sequence[Utterance]) -> list[Codes]:
        """The next chunk of each, all of one length. Nobody stands anywhere else afterwards: see `Utterance.take`."""
        slots = [utterance.lease.slot for utterance in batch]
        codes = self._encoder.encode_some(np.stack([utterance.next_samples() for utterance in batch]), slots)
        return list(codes)

    def decode(self, batch: Sequence[Utterance], frames: Sequence[Sequence[CodecFrame]]) -> list[NDArray[np.float32]]:
        """The sound of those frames, one row for each utterance. Raises CodecFrameError for frames of another codec."""
        codes = np.zeros((len(batch), batch[0].chunk, self.identity.codebooks), np.int64)
        for row, own in zip(codes, frames, strict=True):
            for at, frame in enumerate(own):
                frame.check(self.identity)
                row[at] = frame.codes
        return list(self._decoder.decode_some(codes, [utterance.lease.slot for utterance in batch]))

    @staticmethod
    def together(chunks: Sequence[int]) -> list[int]:
        """Which chunks go in one step: numbers into `chunks`, the lengths of those that are due, most urgent first.

        The first goes, and with it those of its length, as far as `TOGETHER` allows.
        """
        same = [number for number, length in enumerate(chunks) if length == chunks[0]]
        return same[: TOGETHER // chunks[0]] if chunks else []
