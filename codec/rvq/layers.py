"""Causal layers, and the state that lets them work through a signal piece by piece.

A signal is [batch, steps, channels]: what a step holds lies together, as matrix products and norms read it.

Every layer gives the same result for a whole sequence and for its pieces: what it needs of the past is kept per slot in
a `SlotState`. Without one a layer starts from silence and keeps nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class SlotState:
    """What causal layers remember, per slot: tensors [slots, ...] by the layer that owns them.

    One step is `begin(reset)`, any number of `read` and `write`, `commit(run)`. What a layer writes is only taken over
    at the commit, and only for the slots that run, so that a paused slot does not move.

    A step of some slots alone is `begin_some(slots)`, `read` and `write`, `commit_some()`: then the layers work on
    that many rows, in that order.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._kept: dict[nn.Module, Tensor] = {}
        self._written: dict[nn.Module, Tensor] = {}
        self._some: Tensor | None = None

    def begin(self, reset: Tensor) -> None:
        """Forget the slots in `reset`, bool [slots]."""
        self._some = None
        self._written.clear()
        if bool(reset.any()):
            for kept in self._kept.values():
                kept[reset] = 0  # assigned and not multiplied: a NaN does not survive

    def begin_some(self, slots: Tensor) -> None:
        """The layers will work on `slots`, int64 [rows], each at most once."""
        self._written.clear()
        self._some = slots

    def read(self, owner: nn.Module, like: Tensor, length: int) -> Tensor:
        """The last `length` steps that `owner` saw, shape [rows, length, channels of `like`]; zeros at first."""
        kept = self._kept.get(owner)
        if kept is None:
            return like.new_zeros(len(like), length, like.shape[2])
        return kept if self._some is None else kept[self._some]

    def write(self, owner: nn.Module, tail: Tensor) -> None:
        """What `owner` will want to read next time."""
        self._written[owner] = tail

    def commit_some(self) -> None:
        """Take over what was written for the slots that `begin_some` was given."""
        for owner, written in self._written.items():
            if owner not in self._kept:
                self._kept[owner] = written.new_zeros(self.slots, *written.shape[1:])
            self._kept[owner][self._some] = written
        self._written.clear()

    def commit(self, run: Tensor) -> None:
        """Take over what was written for the slots in `run`, bool [slots]."""
        everyone = bool(run.all())
        for owner, written in self._written.items():
            kept = self._kept.get(owner)
            if everyone:
                self._kept[owner] = written.clone()  # a tail is a view of something ten times as long
            elif kept is None:
                self._kept[owner] = keep_rows(run, written, torch.zeros_like(written))
            else:
                self._kept[owner] = keep_rows(run, written, kept)
        self._written.clear()

    @property
    def kept(self) -> list[Tensor]:
        """What each of `owners` remembers, [slots, ...]: not copied."""
        return list(self._kept.values())

    def take(self, run: Tensor, new: Sequence[Tensor]) -> None:
        """Have `owners` remember `new` for the slots in `run`, bool [slots]."""
        everyone = bool(run.all())
        for owner, rows in zip(self._kept, new, strict=True):
            self._kept[owner] = rows if everyone else keep_rows(run, rows, self._kept[owner])

    @property
    def owners(self) -> tuple[nn.Module, ...]:
        """The layers that remember something, in the order of their first step."""
        return tuple(self._kept)

    def rows(self, slots: Tensor) -> list[Tensor]:
        """What each of `owners` remembers of `slots`, int64 [rows]: copies."""
        return [kept[slots] for kept in self._kept.values()]

    def put(self, slots: Tensor, rows: Sequence[Tensor]) -> None:
        """Have `owners` remember `rows` of `slots`."""
        for kept, row in zip(self._kept.values(), rows, strict=True):
            kept[slots] = row


class GivenState(SlotState):
    """A state for one step, made of what layers remember and giving what they will: for a step as a function."""

    def __init__(self, owners: Sequence[nn.Module], kept: Sequence[Tensor]) -> None:
        super().__init__(len(kept[0]))
        self._kept = dict(zip(owners, kept, strict=True))

    def written(self) -> list[Tensor]:
        """What `owners` will want to read next time."""
        return [self._written[owner] for owner in self._kept]


def keep_rows(run: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """Rows of `new` [slots, ...] where `run` [slots] holds, else of `old`; a NaN in an unused row has no effect."""
    return torch.where(run.view(-1, *[1] * (new.dim() - 1)), new, old)


class CausalConv(nn.Conv1d):
    """Convolution of stride 1 on [batch, steps, channels] that sees only the past."""

    def __init__(self, inputs: int, outputs: int, width: int) -> None:
        super().__init__(inputs, outputs, width)
        self._width = width

    def forward(self, x: Tensor, state: SlotState | None = None) -> Tensor:
        steps = x.shape[1]
        x = _with_past(self, x, self._width - 1, state)
        return _product(self, torch.cat([x.narrow(1, tap, steps) for tap in range(self._width)], 2))


class DepthwiseConv(nn.Conv1d):
    """The same, each channel by itself."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__(channels, channels, width, groups=channels)
        self._width = width

    def forward(self, x: Tensor, state: SlotState | None = None) -> Tensor:
        steps = x.shape[1]
        x = _with_past(self, x, self._width - 1, state)
        if state is None:
            return super().forward(x.transpose(1, 2)).transpose(1, 2)
        # On the few steps of one frame these products cost a fifth of what the convolution's set-up does.
        taps = self.weight[:, 0].t().contiguous()
        total = x.new_zeros(()) if self.bias is None else self.bias
        for tap in range(self._width):
            total = torch.addcmul(total, x.narrow(1, tap, steps), taps[tap])
        return total


class Patches(nn.Conv1d):
    """[batch, steps, channels] to [batch, steps / width, outputs]: every `width` steps become one.

    A convolution whose stride is its width is one matrix product, and taken as that it is twice as fast on a frame.
    """

    def __init__(self, inputs: int, outputs: int, width: int = 1) -> None:
        super().__init__(inputs, outputs, width, width)
        self._width = width

    def forward(self, x: Tensor) -> Tensor:
        batch, steps, channels = x.shape
        return _product(self, x.reshape(batch, steps // self._width, self._width * channels))


def _product(layer: nn.Conv1d, x: Tensor) -> Tensor:
    """What `layer` makes of [batch, steps, width * channels], the steps that it sees at a time one after the other."""
    return F.linear(x, layer.weight.transpose(1, 2).flatten(1), layer.bias)


def _with_past(layer: nn.Module, x: Tensor, reach: int, state: SlotState | None) -> Tensor:
    """`x` with the `reach` steps before it in front."""
    if state is None:
        return F.pad(x, (0, 0, reach, 0))
    x = torch.cat((state.read(layer, x, reach), x), 1)
    state.write(layer, x.narrow(1, -reach, reach))
    return x


class ConvNextBlock(nn.Module):
    """A causal ConvNeXt block (Liu et al., 2022, arXiv 2201.03545) on [batch, steps, channels].

    Depthwise convolution, norm over channels, expansion, GELU, projection, scaled residual.
    """

    def __init__(self, channels: int, hidden: int, width: int) -> None:
        super().__init__()
        self.depthwise = DepthwiseConv(channels, width)
        self.norm = nn.LayerNorm(channels)
        self.expand = nn.Linear(channels, hidden)
        self.project = nn.Linear(hidden, channels)
        self.scale = nn.Parameter(torch.full((channels,), 0.1))

    def forward(self, x: Tensor, state: SlotState | None = None) -> Tensor:
        y: Tensor = self.norm(self.depthwise(x, state))
        return torch.addcmul(x, self.project(F.gelu(self.expand(y))), self.scale)
