"""Checks of measured times: they take a machine that has time for them.

A check that fails is tried again.  Where it keeps failing, whether the machine was busy decides
between a failure and a skip: every core is kept busy for a moment, and gets less than its time
where others run on it, or where the machine that it is part of has given it to others.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from typing import Final

import pytest

TRIES: Final = 3

_QUIET: Final = 0.95
"""Share of their time that cores get where nothing else runs: kernel threads take some of it."""

_FEWEST_CORES: Final = 2
"""Sender and receiver of a message want to run at the same time."""

_LOOK_S: Final = 0.5


def patiently(check: Callable[[], None]) -> None:
    """Try a check a few times; skip the test where the machine is too busy to pass it."""
    busy = False
    for left in range(TRIES - 1, -1, -1):
        try:
            check()
            return
        except AssertionError as error:
            share = share_of_cores()
            busy = busy or share < _QUIET
            if left:
                print(f"tried again, with {share:.0%} of the cores, after: {error}")
            elif busy:
                pytest.skip(f"others are busy on this machine, which left {share:.0%} of the cores")
            else:
                raise


def share_of_cores() -> float:
    """How much of the time of the cores a process for each of them gets; 0 where they are few."""
    cores = len(os.sched_getaffinity(0))
    if cores < _FEWEST_CORES:
        return 0.0
    with multiprocessing.get_context("spawn").Pool(cores) as pool:
        return sum(pool.map(_keep_busy, range(cores), chunksize=1)) / cores


def _keep_busy(_: int) -> float:
    began, used = time.monotonic(), time.process_time()
    while (passed := time.monotonic() - began) < _LOOK_S:
        pass
    return (time.process_time() - used) / passed
