"""`talkover codes`: what the agent said in a recorded session, decoded again from its codes."""

from __future__ import annotations

import json
import sys
import wave
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from codec.identity import CodecIdentity, CodecIdentityError
from sessions.codes_track import FILE, CodesTrackError, RecordedCodes, read_codes
from sessions.core.timeline import TICK_RATE, Ticks, ticks_per_sample

if TYPE_CHECKING:
    from codec.rvq.checkpoint import Checkpoint

LONGEST: Ticks = 24 * 3600 * TICK_RATE


class CodesError(Exception):
    """The codes cannot be decoded; the message says why and what to do."""


def codes(*, recording: Path, out: Path | None, as_json: bool) -> int:
    """Print what the codes of `recording` (a session's folder, or the file itself) are; with `out`, decode them into a
    WAV file. Returns the exit status."""
    path = recording / FILE if recording.is_dir() else recording
    try:
        recorded = read_codes(path)
    except FileNotFoundError:
        return _refuse(f"{path} is not there; a session has codes where its voice travelled as codes")
    except OSError as error:
        return _refuse(f"{path}: {error.strerror}")
    except CodesTrackError as error:
        return _refuse(f"{path}: {error}")
    if out is not None:
        try:
            _write(out, decoded(recorded, _codec()), recorded.codec.sample_rate)
        except (CodesTrackError, CodecIdentityError, CodesError) as error:
            return _refuse(str(error))
        except OSError as error:
            return _refuse(f"{out} cannot be written: {error.strerror}")
    print(json.dumps(_figures(recorded), indent=1) if as_json else _told(recorded))
    if not recorded.whole:
        print("talkover codes: the file ends within a record, which is left out", file=sys.stderr)
    return 0


def _refuse(message: str) -> int:
    print(f"talkover codes: {message}", file=sys.stderr)
    return 1


def _figures(recorded: RecordedCodes) -> dict[str, object]:
    frames = sum(len(stream.frames) for stream in recorded.streams)
    coded = sum(piece.length for stream in recorded.streams for piece in stream.pieces)
    return {
        "codec": asdict(recorded.codec),
        "utterances": len(recorded.streams),
        "frames": frames,
        "seconds": round(coded / TICK_RATE, 3),
        "bits_per_second": round(8 * frames * recorded.codec.frame_bytes * TICK_RATE / coded) if coded else 0,
        "whole": recorded.whole,
    }


def _told(recorded: RecordedCodes) -> str:
    codec, figures = recorded.codec, _figures(recorded)
    return (
        f"{codec.name}/{codec.version}, {codec.codebooks} codebooks of {codec.codebook_size}, "
        f"{codec.hop} samples a frame at {codec.sample_rate} Hz\n"
        f"{figures['seconds']} s of speech in {figures['utterances']} utterances, {figures['frames']} frames, "
        f"{figures['bits_per_second']} bit/s"
    )


def _codec() -> Checkpoint:
    try:
        from codec.rvq.checkpoint import CheckpointError, load_checkpoint
    except ModuleNotFoundError as error:
        raise CodesError(f"{error.name} is not installed; run: pip install 'talkover[native]'") from error
    try:
        return load_checkpoint()
    except CheckpointError as error:
        raise CodesError(str(error)) from error


def decoded(recorded: RecordedCodes, checkpoint: Checkpoint) -> bytes:
    """The samples that were generated, in the order of generation, as PCM16 at the codec's rate; silence where what was
    generated had no codes.

    Raises CodecIdentityError for codes of another codec, CodesTrackError for positions that cannot be.
    """
    import numpy as np
    import torch

    from codec.rvq.stream import ENCODER_DELAY, StreamingRvqDecoder
    from codec.rvq.utterance import decode_utterance

    checkpoint.identity.require(CodecIdentity(**asdict(recorded.codec)))
    if recorded.end > LONGEST:
        raise CodesTrackError(
            "at", f"{recorded.end // TICK_RATE} s of speech are more than a day's; the file is damaged"
        )
    torch.set_num_threads(1)
    decoder = StreamingRvqDecoder(checkpoint, 1)
    tick = ticks_per_sample(recorded.codec.sample_rate)
    pcm = bytearray(recorded.end // tick * 2)
    for stream in recorded.streams:
        heard = decode_utterance(decoder, np.array(stream.frames, np.int64))
        for piece in stream.pieces:
            if piece.offset < ENCODER_DELAY * tick:
                raise CodesTrackError("offset", f"{piece.offset} lies before the first sound of an utterance")
            first, at, size = piece.offset // tick - ENCODER_DELAY, piece.at // tick, piece.length // tick
            pcm[2 * at : 2 * (at + size)] = heard[2 * first : 2 * (first + size)]
    return bytes(pcm)


def _write(out: Path, pcm: bytes, rate: int) -> None:
    with out.open("wb") as raw, wave.open(raw, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(pcm)
