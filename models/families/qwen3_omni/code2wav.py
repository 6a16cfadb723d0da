"""Codes to sound by windows, each sample once and at its absolute place.

A window of n frames gives a little less than n hops of samples (the transposed convolutions keep the rest), so the end
of one window is not where the next frame begins. What comes out is therefore told apart by its absolute index: the
window over frames [a, n) begins at sample a·hop, and of it goes out what lies behind all that was sent before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .omni import Omni


@dataclass(slots=True)
class Track:
    """The border state of one answer's sound: frames that a later window needs, from frame `first` on, how many were
    decoded, and how many samples were sent."""

    frames: list[Tensor] = field(default_factory=list)
    first: int = 0
    decoded: int = 0
    sent: int = 0

    @property
    def waiting(self) -> int:
        """Frames that are not decoded yet."""
        return self.first + len(self.frames) - self.decoded

    def push(self, codes: Tensor) -> None:
        """One frame, int64 [codebooks]."""
        self.frames.append(codes)


@dataclass(frozen=True, slots=True)
class Window:
    """Decode the next `frames` (at least one) that wait in `track`."""

    track: Track
    frames: int


def _codes(track: Track, begin: int, length: int) -> Tensor:
    """Frames [begin, begin + length), int64 [codebooks, length]."""
    first = begin - track.first
    return torch.stack(track.frames[first : first + length], -1)


class Code2Wav:
    """Decodes windows of many answers together. Stateless itself: the border state is each answer's `Track`."""

    def __init__(self, omni: Omni) -> None:
        self._net = omni.net.code2wav
        self._device = self._net.code_embedding.weight.device
        self.hop = int(self._net.total_upsample)
        self._left = omni.shape.left

    def decode(self, windows: Sequence[Window]) -> list[Tensor]:
        """What each window adds: float [samples] in -1..1. Windows of one length go together."""
        together: Mapping[int, list[int]] = defaultdict(list)
        begins = [self._begin(window.track) for window in windows]
        for index, (window, begin) in enumerate(zip(windows, begins, strict=True)):
            together[window.track.decoded + window.frames - begin].append(index)
        sounds: dict[int, Tensor] = {}
        for length, indices in together.items():
            codes = torch.stack([_codes(windows[index].track, begins[index], length) for index in indices])
            waves = self._net(codes.to(self._device))[:, 0].float().cpu()
            for index, wave in zip(indices, waves, strict=True):
                sounds[index] = self._new(windows[index], begins[index], wave)
        return [sounds[index] for index in range(len(windows))]

    def _begin(self, track: Track) -> int:
        """The frame that the window begins with."""
        return 0 if self._left is None else max(0, track.decoded - self._left)

    def _new(self, window: Window, begin: int, wave: Tensor) -> Tensor:
        track, base = window.track, begin * self.hop
        new = wave[track.sent - base :]
        track.sent = base + len(wave)
        track.decoded += window.frames
        if self._left is not None:
            unneeded = max(0, track.decoded - self._left - track.first)
            del track.frames[:unneeded]
            track.first += unneeded
        return new
