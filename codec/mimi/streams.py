"""State of a fixed batch of streams: one row per stream in every buffer, changed in place and never reshaped.

A model keeps no state of its own. Every module that needs some says which buffers, and `Streams` holds them for the
whole model. A stream is reset by zeroing all its rows, keys and values included: whatever one tenant left there,
a NaN too, cannot reach the next. A stream that does not run keeps its rows whatever was computed in its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Layout:
    """Where and how long state is kept. `margin`: frames by which a stream can be rewound."""

    batch: int
    margin: int
    device: torch.device
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Buffers:
    """State of one module; the first dimension of every tensor is the stream.

    `tails` are what the last frame left behind, so a rewind needs copies of older ones. `rings` keep what older frames
    wrote beside what newer ones did, so for them a rewind is only a position.
    """

    tails: dict[str, Tensor]
    rings: dict[str, Tensor]


class Streaming(nn.Module):
    """A module with state per stream."""

    def buffers_for(self, layout: Layout) -> Buffers:
        """New zeroed buffers."""
        raise NotImplementedError


class Streams:
    """All state of `model` for `batch` streams. `run` and `position` are read by the modules during a step.

    `run`: bool [batch], which streams this step is for. `position`: int64 [batch], frames that a stream has done.
    A step is `begin(run)`, the model's computation, `end()`.
    """

    def __init__(self, model: nn.Module, batch: int, *, margin: int = 0) -> None:
        if batch < 1:
            raise ValueError(f"batch {batch} must be at least 1")
        if margin < 0:
            raise ValueError(f"margin {margin} must not be negative")
        weight = next(model.parameters())
        self.layout = Layout(batch, margin, weight.device, weight.dtype)
        self.run = torch.ones(batch, dtype=torch.bool, device=weight.device)
        self.position = torch.zeros(batch, dtype=torch.int64, device=weight.device)
        self._rows = torch.arange(batch, device=weight.device)
        self._state: dict[int, Buffers] = {}
        for module in model.modules():
            if isinstance(module, Streaming):
                self._state[id(module)] = module.buffers_for(self.layout)
        self._tails = [tail for state in self._state.values() for tail in state.tails.values()]
        self._history = [tail.new_zeros(margin + 1, *tail.shape) for tail in self._tails] if margin else []

    @property
    def batch(self) -> int:
        return self.layout.batch

    @property
    def margin(self) -> int:
        """Frames by which `rewind` can go back."""
        return self.layout.margin

    @property
    def bytes(self) -> int:
        """Memory that all buffers take."""
        every = [*self._tails, *self._history]
        every += [ring for state in self._state.values() for ring in state.rings.values()]
        return sum(buffer.numel() * buffer.element_size() for buffer in every)

    @property
    def tensors(self) -> list[Tensor]:
        """Everything that a step reads or changes, but for what a rewind needs: the tensors themselves, in an order
        that does not change."""
        every = [buffer for state in self._state.values() for buffer in (*state.tails.values(), *state.rings.values())]
        return [self.run, self.position, *every]

    @contextmanager
    def standing_in(self, tensors: Sequence[Tensor]) -> Iterator[None]:
        """Work on `tensors`, in the order of `self.tensors`, instead of the own ones meanwhile."""
        own = self.tensors
        self._put(tensors)
        try:
            yield
        finally:
            self._put(own)

    def _put(self, tensors: Sequence[Tensor]) -> None:
        self.run, self.position, *rest = tensors
        every = iter(rest)
        for state in self._state.values():
            for buffers in (state.tails, state.rings):
                buffers.update({name: next(every) for name in buffers})

    def of(self, module: nn.Module) -> Buffers:
        """The buffers of one of the model's modules."""
        return self._state[id(module)]

    def begin(self, run: Tensor) -> None:
        """The next step is for the streams where `run`, bool [batch], is true."""
        self.run.copy_(run)

    def keep(self, buffer: Tensor, value: Tensor) -> None:
        """Write `value` to the rows of `buffer` whose stream runs."""
        buffer.copy_(torch.where(self.run.view(-1, *[1] * (buffer.dim() - 1)), value, buffer))

    def end(self) -> None:
        """The step is done: the streams that ran are one frame further."""
        self.position.add_(self.run.long())
        if not self._history:
            return
        place = self.position % (self.margin + 1)
        for tail, history in zip(self._tails, self._history, strict=True):
            # A stream that did not run writes what is there already.
            history.index_put_((place, self._rows), tail)

    def reset(self, mask: Tensor) -> None:
        """Begin anew the streams where `mask`, bool [batch], is true."""
        self.position.masked_fill_(mask, 0)
        for state in self._state.values():
            for buffer in (*state.tails.values(), *state.rings.values()):
                buffer.masked_fill_(mask.view(-1, *[1] * (buffer.dim() - 1)), 0)
        for history in self._history:
            history.masked_fill_(mask.view(1, -1, *[1] * (history.dim() - 2)), 0)

    def rewind(self, back: Tensor) -> None:
        """Take every stream back by `back` frames, int64 [batch], 0..`margin` and never before its first frame.

        Not checked here, as that would wait for the device: the caller knows how far its streams are.
        """
        self.position.sub_(back)
        place = self.position % (self.margin + 1)
        moved = back > 0
        for tail, history in zip(self._tails, self._history, strict=True):
            old = history[place, self._rows]
            tail.copy_(torch.where(moved.view(-1, *[1] * (tail.dim() - 1)), old, tail))
