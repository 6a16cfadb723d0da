"""Whether what is over is freed as the last one lets go of it, and not when the garbage collector comes by."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections import Counter
from collections.abc import Iterator

WITHIN = 20.0
"""Seconds that the last ones have to let go, such as a socket of which the loop has to hear that it is closed."""


class Freed:
    """Watches objects without holding them."""

    def __init__(self) -> None:
        self._left: dict[int, tuple[str, weakref.ref[object]]] = {}
        self._changed = asyncio.Event()

    def watch(self, *objects: object) -> None:
        for one in objects:
            number = len(self._left)

            def gone(_: object, number: int = number) -> None:
                del self._left[number]
                self._changed.set()

            self._left[number] = (type(one).__name__, weakref.ref(one, gone))

    @property
    def left(self) -> list[str]:
        """The types of those that are still there."""
        return [name for name, _ in self._left.values()]

    async def all(self) -> None:
        """Wait until there is none; fails with what is left."""
        try:
            async with asyncio.timeout(WITHIN):
                while self._left:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"still there: {self.left}") from None


CALLERS = ("server.call_command.", "server.phone_peers.")
"""The product's own callers of telephones, which tests call with."""


def ours() -> Counter[str]:
    """How many objects of the server there are, by type."""
    names = (f"{kind.__module__}.{kind.__qualname__}" for kind in map(type, gc.get_objects()))
    return Counter(
        name for name in names if name.startswith(("server.", "sessions.", "codec.")) and not name.startswith(CALLERS)
    )


async def back_to(before: Counter[str]) -> None:
    """Wait until there is no more of the product than that; fails with what there is more of."""
    try:
        async with asyncio.timeout(WITHIN):
            while ours() - before:  # noqa: ASYNC110 - nobody tells when a reference goes
                await asyncio.sleep(0)
    except TimeoutError:
        raise AssertionError(f"still there: {ours() - before}") from None


@contextlib.contextmanager
def no_collector() -> Iterator[None]:
    """Nothing inside is freed but by its last reference."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
