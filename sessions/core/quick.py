"""Frozen records that are made quickly.

A session makes hundreds of events and effects a second. What `dataclasses` writes for a frozen class sets each field by
its name, through `object.__setattr__`, which looks the name up each time; by its slot it takes two thirds of that.
Nothing else of the class changes: it stays frozen, and is made with the same arguments.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, fields


def quicken(kinds: Iterable[type]) -> None:
    """Give frozen dataclasses with slots, whose fields are all arguments with at most a plain default, such an
    `__init__`. Raises ValueError for another class."""
    for kind in kinds:
        given = fields(kind)
        plain = all(one.init and not one.kw_only and one.default_factory is MISSING for one in given)
        if not plain or not hasattr(kind, "__slots__") or hasattr(kind, "__post_init__"):
            raise ValueError(f"{kind.__name__} must have slots and no field but plain arguments")
        known: dict[str, object] = {f"_set_{one.name}": getattr(kind, one.name).__set__ for one in given}
        known |= {f"_default_{one.name}": one.default for one in given}
        arguments = [one.name if one.default is MISSING else f"{one.name}=_default_{one.name}" for one in given]
        lines = [f"    _set_{one.name}(self, {one.name})\n" for one in given] or ["    pass\n"]
        exec(f"def __init__({', '.join(['self', *arguments])}):\n{''.join(lines)}", known)
        made, before = known["__init__"], kind.__init__  # type: ignore[misc]
        for name in ("__annotations__", "__module__", "__qualname__"):
            setattr(made, name, getattr(before, name))
        kind.__init__ = made  # type: ignore[misc]
