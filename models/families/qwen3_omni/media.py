"""From files and samples to what the encoders take, as the checkpoint's processors do it.

Sound: Whisper's log-mel features of 128 bands (arXiv 2212.04356, section 2.2). Images: scaled to whole patches and cut
into them, neighbours that are merged later side by side (Qwen2-VL, arXiv 2409.12191, section 2.1).
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, cast

import av
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from transformers.audio_utils import mel_filter_bank

from codec.resample import Resampler
from sessions.core.timeline import Span, Ticks, ticks_per_sample

from .errors import MediaError

RATE = 16_000
HOP, WINDOW, BANDS = 160, 400, 128
KEPT_TICKS: Ticks = 120 * 48_000
"""How much of the input track is kept for turns that may be read again."""
MOST_PIXELS = 16 << 20
"""Of an image file; its header was checked before, but what is in the file may be larger than that says."""
_DECODERS = {b"\x89PNG": "png", b"\xff\xd8": "mjpeg", b"RIFF": "webp"}
"""By how a file begins."""


@dataclass(frozen=True, slots=True)
class Medium:
    """What an encoder is given. `name` says what it is: equal names, equal content.

    Sound: `mel` float [bands, frames]. An image: `patches` float [n, channels · 2 · side²] of a `grid` of rows and
    columns of patches.
    """

    kind: Literal["audio", "image"]
    name: str
    tensor: Tensor
    grid: tuple[int, int] | None = None

    @property
    def length(self) -> int:
        """Its size in encoder positions before merging."""
        return self.tensor.shape[1] if self.kind == "audio" else self.tensor.shape[0]


class InputTrack:
    """The last two minutes of what a user said. Not safe for threads; the engine guards it."""

    def __init__(self) -> None:
        self._pieces: deque[tuple[Ticks, Ticks, bytes, int]] = deque()

    def append(self, start: Ticks, pcm: bytes, rate: int) -> None:
        """Mono int16 at `rate` Hz from `start` on."""
        end = start + len(pcm) // 2 * ticks_per_sample(rate)
        self._pieces.append((start, end, pcm, rate))
        while self._pieces and self._pieces[0][1] < end - KEPT_TICKS:
            self._pieces.popleft()

    def cut(self, span: Span) -> list[tuple[bytes, int]] | None:
        """The samples of `span`, in stretches with their rates; None where not all of it is held."""
        pieces = [piece for piece in self._pieces if piece[0] < span.end and piece[1] > span.start]
        if not pieces or pieces[0][0] > span.start or pieces[-1][1] < span.end:
            return None
        found: list[tuple[bytes, int]] = []
        for start, end, pcm, rate in pieces:
            tick = ticks_per_sample(rate)
            first = max(0, span.start - start) // tick * 2
            last = (min(end, span.end) - start) // tick * 2
            if found and found[-1][1] == rate:
                found[-1] = (found[-1][0] + pcm[first:last], rate)
            else:
                found.append((pcm[first:last], rate))
        return found


def sound(stretches: list[tuple[bytes, int]]) -> NDArray[np.float32]:
    """Float32 in -1..1 at 16 kHz."""
    parts: list[NDArray[np.floating]] = []
    for pcm, rate in stretches:
        samples = np.frombuffer(pcm, "<i2")
        if rate != RATE:
            resampler = Resampler(rate, RATE)
            samples = np.concatenate([resampler.process(samples), resampler.flush()])
        parts.append(samples / np.float32(32768))
    return np.concatenate(parts).astype(np.float32)


def audio(name: str, samples: NDArray[np.float32]) -> Medium:
    """Log-mel features of `samples` at 16 kHz. Raises MediaError for less than 25 ms."""
    if samples.size < WINDOW:
        raise MediaError("audio_too_short", f"{samples.size} samples are less than one window of 25 ms")
    wave = torch.from_numpy(np.ascontiguousarray(samples))
    spectrum = torch.stft(wave, WINDOW, HOP, window=torch.hann_window(WINDOW), return_complex=True)
    power = spectrum[:, :-1].abs().square()
    mel = (_filters() @ power).clamp(min=1e-10).log10()
    mel = torch.maximum(mel, mel.max() - 8.0)
    return Medium("audio", name, (mel + 4.0) / 4.0)


@lru_cache(maxsize=1)
def _filters() -> Tensor:
    bank = mel_filter_bank(1 + WINDOW // 2, BANDS, 0.0, RATE / 2, RATE, norm="slaney", mel_scale="slaney")
    return torch.from_numpy(bank.T.astype(np.float32))


@dataclass(frozen=True, slots=True)
class Patches:
    """How images are cut: `side` of a patch, so many of them `merge`d either way, and at most `most` merged ones."""

    side: int
    merge: int
    most: int

    @property
    def name(self) -> str:
        """What features hang on besides content and weights."""
        return f"patch {self.side} merge {self.merge} most {self.most} mean 0.5 deviation 0.5"


def image(name: str, data: bytes, patches: Patches) -> Medium:
    """Decode and cut an image file. Raises MediaError for one that cannot be decoded."""
    pixels = _decode(data)
    unit = patches.side * patches.merge
    height, width = _fit(pixels.shape[1], pixels.shape[2], unit, patches.most)
    scaled = functional.interpolate(
        pixels[None].float(), (height, width), mode="bicubic", antialias=True, align_corners=False
    )
    normal = scaled.round().clamp(0, 255) / 127.5 - 1.0
    # A still image is a film of two equal pictures, the least that a patch spans in time.
    film = normal.repeat(2, 1, 1, 1)
    rows, columns, side, merge = height // patches.side, width // patches.side, patches.side, patches.merge
    cut = film.reshape(1, 2, 3, rows // merge, merge, side, columns // merge, merge, side)
    cut = cut.permute(0, 3, 6, 4, 7, 2, 1, 5, 8)
    return Medium("image", name, cut.reshape(rows * columns, 3 * 2 * side * side), (rows, columns))


def _fit(height: int, width: int, unit: int, most: int) -> tuple[int, int]:
    """The nearest size of whole units with its shape, at least one and together at most `most`."""
    rows, columns = max(1, round(height / unit)), max(1, round(width / unit))
    if rows * columns > most:
        shrink = math.sqrt(most / (rows * columns))
        rows, columns = max(1, int(rows * shrink)), max(1, int(columns * shrink))
        rows, columns = min(rows, most // columns), min(columns, most)
        rows = max(1, rows)
    return rows * unit, columns * unit


def _decode(data: bytes) -> Tensor:
    """RGB, uint8 [3, height, width]."""
    try:
        # A whole file is one packet. Opening it as a film would decode it once more, however large, to look at it.
        name = next(name for begin, name in _DECODERS.items() if data.startswith(begin))
        decoder = cast(av.VideoCodecContext, av.CodecContext.create(name, "r"))
        decoder.options = {"max_pixels": str(MOST_PIXELS)}
        frame = next(iter([*decoder.decode(av.Packet(data)), *decoder.decode(None)]))
        pixels = frame.to_ndarray(format="rgb24")
    except (av.error.FFmpegError, StopIteration, ValueError) as error:
        raise MediaError(
            "image_not_decodable",
            f"the image cannot be decoded ({error}); save it again as PNG or JPEG of at most {MOST_PIXELS} pixels",
        ) from error
    return torch.from_numpy(np.ascontiguousarray(pixels)).permute(2, 0, 1)
