"""CPU of a process by its own accounting, and how it may be confined to a core."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path


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
    """What `pid` has used, user and system time.

    From the scheduler's own sums, in nanoseconds: the fields of /proc/PID/stat are rounded to ticks of 10 ms, the
    process's and its threads' apart, so that their difference may be below nothing. What a thread used since the last
    tick of the scheduler (4 ms, as a rule) is in the whole already and not yet in `main`.
    """
    # The main thread first, so that what it uses in between counts for the whole.
    main = int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9
    return Cpu(main, time.clock_gettime(_clock(pid)) - main)


def _clock(pid: int) -> int:
    """The clock of a process's CPU time, as clock_getcpuclockid(3) makes it."""
    return (~pid << 3) | 2


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
