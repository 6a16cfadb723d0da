"""CPU of a process by its own accounting, and how it may be confined to a core."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

HZ = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU seconds so far. `main`: of the main thread, on which the event loop runs; `others`: of all other threads."""

    main: float
    others: float

    @property
    def total(self) -> float:
        return self.main + self.others

    def __sub__(self, before: Cpu) -> Cpu:
        return Cpu(self.main - before.main, self.others - before.others)


def cpu(pid: int) -> Cpu:
    """What `pid` has used, user and system time."""
    main = _seconds(Path(f"/proc/{pid}/task/{pid}/stat"))
    return Cpu(main, _seconds(Path(f"/proc/{pid}/stat")) - main)


def _seconds(stat: Path) -> float:
    fields = stat.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / HZ


def confine(*pids: int) -> bool:
    """Give the processes `pids` the first core and this one the others; False where there is only one."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        return False
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(task.name), {cores[0]})
    os.sched_setaffinity(0, set(cores[1:]))
    return True
