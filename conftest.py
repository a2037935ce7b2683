"""What the surroundings must not change: a missing torch, a shell that has all ignore Ctrl-C, the
width and the colours of a terminal, a job of other ranks that the tests run in, slowness."""

from __future__ import annotations

import os
import re
import signal
from importlib.util import find_spec

from hypothesis import HealthCheck, settings

# What cannot be looked at without torch is left out where it is not installed.
collect_ignore = [] if find_spec("torch") else ["measure/worker.py"]

# A shell's `&` has Ctrl-C ignored, and so would have all processes that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Of the first ones Rich makes a width and colours; the others say that this is a rank among many.
_SURROUNDINGS = re.compile(
    r"COLUMNS|LINES|TERMINAL_WIDTH|TERM|(NO|FORCE|CLI)_?COLOR.*|PY_COLORS|TTY_.*|GITHUB_ACTIONS"
    r"|RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|MASTER_(ADDR|PORT)"
    r"|(SLURM|TORCHELASTIC|GLOO)_.*"
)
for _name in filter(_SURROUNDINGS.fullmatch, list(os.environ)):
    del os.environ[_name]

# No example is too slow for a slow machine. What is drawn stays as it was: the same each time where
# CI is set, by chance elsewhere.
settings.register_profile(
    "any machine",
    parent=settings.default,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("any machine")
