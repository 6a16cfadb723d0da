"""Preferring a thread whose work has a deadline to those that can wait."""

from __future__ import annotations

import os
import sys
import threading

PREFERENCE = 5
"""Steps of niceness: about three times the share of a full core. Threads that want little are served as before."""


def prefer_this_thread() -> bool:
    """Have the calling thread served before others of this machine. False where that is not allowed or not possible.

    Linux lets a process with CAP_SYS_NICE do so, or one whose RLIMIT_NICE reaches that far (setpriority(2)).
    """
    if sys.platform != "linux":
        # Elsewhere a thread's number is not one that priorities go by.
        return False
    try:
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) - PREFERENCE)
    except OSError:
        return False
    return True
