"""About how long work takes, for bars that follow the clock.

The figures are processor seconds of benchmarks/scale.py and benchmarks/policy.py on one core of
2.1 GHz, rounded (docs/reliability.md, docs/policy.md); half or twice as long is to be expected.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["assigning_s", "fitting_s", "of_model_s", "simulating_s"]

_PER_SAMPLE_S: Final = 1.2e-4
_PER_REQUEST_S: Final = 2e-5

_PER_FLOW_S: Final = 1e-5
_CROWDED_S: Final = 3e-7
"""Flows on the same few pairs delay each other: so much for each flow and flow per pair."""

_PER_BYTE_S: Final = {"predicting": 4e-7, "caps": 3e-7, "report": 8e-7}
"""By what is done with a model, whose file grows with the machine and its measurements."""


def fitting_s(samples: int) -> float:
    """Seconds to fit a machine to so many samples."""
    return 1.0 + _PER_SAMPLE_S * samples


def assigning_s(requests: int) -> float:
    """Seconds to assign so many requests."""
    return 0.5 + _PER_REQUEST_S * requests


def simulating_s(flows: Sequence[object], pairs: int) -> float:
    """Seconds to simulate flows between so many different pairs of endpoints."""
    return _PER_FLOW_S * len(flows) + _CROWDED_S * len(flows) * len(flows) / max(1, pairs)


def of_model_s(path: str | Path, what: str) -> float:
    """Seconds to read a model and do something with it; nothing where there is no such file."""
    try:
        return _PER_BYTE_S[what] * os.stat(path).st_size  # noqa: PTH116 - a name may be no path
    except (OSError, ValueError):
        return 0.0
