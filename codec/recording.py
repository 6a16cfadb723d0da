"""A computation of many small operations, recorded so that it runs without the interpreter: for CPUs."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

Computation = Callable[..., tuple[Tensor, ...]]

_OPTIMIZED_AFTER = 2
"""Runs that watch what comes and prepare for it: they take as long as hundreds later ones."""


def record(computation: Computation, *example: Tensor) -> Computation:
    """What `computation` does with tensors like those of `example`, in place where it works in place.

    It must not depend on their values otherwise than by tensor operations, and take all state that it changes as an
    argument: whatever else it reads, its weights too, is copied and a constant from now on. Sizes that it takes from
    its arguments may be others later, but those that are 1 in `example` stay 1. `example` is copied, not changed.
    """
    with warnings.catch_warnings(), torch.no_grad():
        # What the recorder warns of are sizes of layers, which do not change.
        warnings.simplefilter("ignore")
        # Copies: what was made for inference alone is not taken.
        examples = tuple(tensor.clone() for tensor in example)
        traced = torch.jit.trace(computation, examples, check_trace=False)  # type: ignore[no-untyped-call]
        # Read back from its written form its weights are known to it alone, and it never asks for the interpreter's
        # lock to count who else uses them.
        written = io.BytesIO()
        torch.jit.save(traced, written)
        written.seek(0)
        recorded: Computation = torch.jit.load(written)  # type: ignore[no-untyped-call]
    with torch.inference_mode():
        for _ in range(_OPTIMIZED_AFTER):
            recorded(*examples)
    return recorded
