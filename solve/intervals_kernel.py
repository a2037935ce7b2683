"""What else may set an observation's pace, compiled."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from topocal.topo.jit import compiled_when_long, passes

__all__ = ["count_rivals", "list_rivals"]

_F = NDArray[np.float64]
_I = NDArray[np.int64]
_I32 = NDArray[np.int32]


@compiled_when_long(passes(1))
def count_rivals(
    indptr: _I32, column: _I32, load: _F, slowest: _F, asked: _I, top: _I, least: _F, counts: _I
) -> None:
    """How many columns other than the one at ``top`` may take longer than ``least``.

    ``top`` and ``least`` are one per row, ``slowest`` one per column; ``counts`` one per row
    that is ``asked`` for.
    """
    for a in range(len(asked)):
        s = asked[a]
        found = 0
        for k in range(indptr[s], indptr[s + 1]):
            found += k != top[s] and load[k] + slowest[column[k]] > least[s]
        counts[a] = found


@compiled_when_long(passes(1))
def list_rivals(
    indptr: _I32, column: _I32, load: _F, slowest: _F, asked: _I, top: _I, least: _F, rivals: _I32
) -> None:
    """The columns that :func:`count_rivals` counts, row after row."""
    at = 0
    for s in asked:
        for k in range(indptr[s], indptr[s + 1]):
            if k != top[s] and load[k] + slowest[column[k]] > least[s]:
                rivals[at] = column[k]
                at += 1
