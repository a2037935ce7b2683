"""Time on a machine that does other things too.

A fabric's rates are kept by the kernel; when the processes on it get the processor is not.
A rank that is woken some milliseconds late on a busy machine makes a message of 40 ms look
several per cent longer.  Round-robin real-time scheduling wakes it at once.
"""

from __future__ import annotations

import os

__all__ = ["prefer"]


def prefer(wanted: bool) -> bool:
    """Let the calling thread, and threads it starts, run before ordinary ones; or no more.

    Returns
    -------
    Whether the system allows it: it takes the privilege, and does no harm where it is not
    there.
    """
    policy = os.SCHED_RR if wanted else os.SCHED_OTHER
    lowest = os.sched_get_priority_min(policy)
    try:
        os.sched_setscheduler(0, policy, os.sched_param(lowest))
    except OSError:
        return False
    return True
