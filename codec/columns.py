"""Where the weights of linear layers lie in memory."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn


def by_columns(layers: Iterable[nn.Linear | nn.Conv1d]) -> None:
    """Have the inputs' weights of one output lie apart, and those of one input to all outputs together.

    Few rows times many weights is the time of reading the weights, and laid like this a CPU reads them in order. Shapes
    and values stay, so that whoever uses or saves them sees nothing of it. Convolutions: those that are one product of
    the steps that they see at a time, one step after the other.
    """
    for layer in layers:
        weight = layer.weight.data
        order = tuple(reversed(range(weight.dim())))
        layer.weight.data = weight.permute(order).contiguous().permute(order)
