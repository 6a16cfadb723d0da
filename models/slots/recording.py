"""A computation of many small operations, recorded so that it runs without the interpreter: for CPUs."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

Computation = Callable[..., tuple[Tensor, ...]]

_OPTIMIZED_AFTER = 2
"""Runs that watch what comes and prepare for it: they take as long as hundreds later ones."""


def record(computation: Computation, *example: Tensor) -> Computation:
    """What `computation` does with tensors of the shapes of `example`, in place where it works in place.

    It must not depend on their values otherwise than by tensor operations, and take all state that it changes as an
    argument: whatever else it reads is a constant from now on. `example` is copied, not changed.
    """
    with warnings.catch_warnings(), torch.no_grad():
        # What the recorder warns of are sizes of layers, which do not change.
        warnings.simplefilter("ignore")
        examples = tuple(tensor.clone() for tensor in example)
        recorded: Computation = torch.jit.trace(computation, examples, check_trace=False)  # type: ignore[no-untyped-call]
    with torch.inference_mode():
        for _ in range(_OPTIMIZED_AFTER):
            recorded(*examples)
    return recorded
