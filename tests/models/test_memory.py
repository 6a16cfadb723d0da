from __future__ import annotations

import sys
from pathlib import Path

import pytest

from models.memory import return_freed_memory


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only glibc holds freed pages back in this way")
def test_pages_that_were_freed_go_back_to_the_system() -> None:
    # Small blocks with a survivor behind them: the top of the heap cannot be given back by free itself.
    blocks = [bytearray(60_000) for _ in range(1500)]
    survivors = blocks[::100]
    full = resident()
    del blocks
    return_freed_memory()
    assert resident() < full - 50_000_000
    assert len(survivors) == 15
