"""Looks through the memory of this process for what should be gone: every object that Python knows, not only those that
somebody thought of."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from pathlib import Path
from types import (
    AsyncGeneratorType,
    CodeType,
    CoroutineType,
    FrameType,
    FunctionType,
    GeneratorType,
    ModuleType,
)

_TESTS = str(Path(__file__).parents[2])


def holders_of(marks: list[str], *, but: Iterable[object] = ()) -> list[str]:
    """Descriptions of the objects that hold a text or bytes in which one of `marks` occurs.

    `but`: what may hold them. Running code of tests, and code and modules altogether, are passed over: what a test has
    written down about itself is not what the server kept.
    """
    gc.collect()
    pairs = [(mark, mark.encode()) for mark in marks]
    known = {id(one) for one in (*but, marks, pairs, *pairs)}
    return [
        f"{type(holder).__module__}.{type(holder).__qualname__}: {text[:200]!r}"
        for holder in gc.get_objects()
        if id(holder) not in known and not _of_a_test(holder)
        for text in _texts(holder, pairs)
    ]


def _texts(holder: object, pairs: list[tuple[str, bytes]]) -> list[str]:
    found = []
    for held in gc.get_referents(holder):
        if isinstance(held, str):
            if any(mark in held for mark, _ in pairs):
                found.append(held)
        elif isinstance(held, bytes | bytearray) and any(raw in held for _, raw in pairs):
            found.append(held.decode("utf-8", "replace"))
    return found


def _of_a_test(holder: object) -> bool:
    if isinstance(holder, FrameType | CodeType | FunctionType | ModuleType):
        return True
    if isinstance(holder, CoroutineType):
        return holder.cr_code.co_filename.startswith(_TESTS)
    if isinstance(holder, GeneratorType):
        return holder.gi_code.co_filename.startswith(_TESTS)
    return isinstance(holder, AsyncGeneratorType) and holder.ag_code.co_filename.startswith(_TESTS)
