"""What the machine at hand must not change: a missing torch, a shell that has all ignore Ctrl-C."""

from __future__ import annotations

import signal
from importlib.util import find_spec

# What cannot be looked at without torch is left out where it is not installed.
collect_ignore = [] if find_spec("torch") else ["measure/worker.py"]

# A shell's `&` has Ctrl-C ignored, and so would have all processes that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
