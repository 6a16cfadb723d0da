"""The published models' sizes, laid out once for all tests."""

from __future__ import annotations

import functools

from models.plan.families import Planned, planned


@functools.cache
def published(name: str) -> Planned:
    """Laying out 35 billion parameters takes a second, even without memory."""
    return planned(name)
