"""Looks through the memory of this process for what should be gone: every object that Python knows, not only those that
somebody thought of."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

_ATOMS = (str, bytes, bytearray)


def holders_of(marks: Iterable[str], *, but: Iterable[object] = ()) -> list[str]:
    """Descriptions of the objects that hold a text or bytes in which one of `marks` occurs.

    `but`: what may hold them, such as what the test itself has. Frames of running code, code and modules are passed
    over: what a test has written down about itself is not what the server kept.
    """
    gc.collect()
    wanted = [(mark, mark.encode()) for mark in marks]
    known = {id(one) for one in but}
    found = []
    for holder in gc.get_objects():
        if id(holder) in known or isinstance(holder, FrameType | CodeType | FunctionType | ModuleType):
            continue
        if holder is wanted or any(holder is pair for pair in wanted):
            continue
        for held in _texts(holder):
            if any((mark if isinstance(held, str) else raw) in held for mark, raw in wanted):  # type: ignore[operator]
                found.append(f"{type(holder).__module__}.{type(holder).__qualname__}: {str(held)[:200]!r}")
                break
    return found


def _texts(holder: Any) -> list[str | bytes | bytearray]:
    return [held for held in gc.get_referents(holder) if isinstance(held, _ATOMS)]
