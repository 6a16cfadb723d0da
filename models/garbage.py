"""Python's search for garbage in cycles, kept from holding up the sessions.

A full search looks at every object that can hold others. Libraries and models alone bring eighty thousand: a tenth of a
second in which nobody is served. They stay for the life of the process, so they need not be searched again.
"""

from __future__ import annotations

import gc
from typing import Final

YOUNG: Final = 5_000
"""Objects made, less those freed, from which the youngest are searched; a session at work makes no cycles per frame."""


def spare_what_stays() -> None:
    """Leave everything that there is now out of every later search. For the process that serves, once it is ready."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
