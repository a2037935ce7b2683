"""What cannot be looked at without torch is left out where it is not installed."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = [] if find_spec("torch") else ["measure/worker.py"]
